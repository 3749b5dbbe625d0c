"""`fastfill curve`: what a backfill would give, from features alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastfill.cli import evaluation
from fastfill.cli.main import commands

if TYPE_CHECKING:
    from fastfill.align import Alignment
    from fastfill.features import Distance, Features
    from fastfill.report import Candidate


@commands.command()
@click.argument("file", required=False)
@click.option("--aligned", metavar="FILE", help="Aligned gallery of a method of your own.")
@click.option("--variance", metavar="FILE", help="Its predicted squared error of each item.")
@click.option("--order-file", metavar="FILE", help="An order (Parquet with the columns id, rank).")
@click.option("--policy", metavar="A,B", help="random, sigma, mixed, novelty, entropy, margin, "
              "least-confidence, oracle, traffic:POLICY.  [default: sigma,random]")  # fmt: skip
@evaluation.evaluation_options
def curve(file: str | None, **options: Any) -> None:
    """Show the quality of a search along its backfill.

    FILE is an alignment that `fastfill align` has written; or bring your own aligned vectors with
    --aligned. Files are written FILE.npy, FILE.npz:KEY or FILE.parquet.

    \b
    fastfill curve photos.safetensors --old old.npy --new new.npy --labels labels.npy -o report/
    fastfill curve --aligned H.npy --variance V.npy --new new.npy --labels labels.npy
    """
    from fastfill.report import study

    _check_source(file, options)
    alignment = None if file is None else load(file)
    own: Distance = "l2" if alignment is None else alignment.distance
    setting = evaluation.read_setting(options, options["distance"] or own)
    name = Path(file or options["aligned"]).stem
    findings = study(
        setting,
        _orders(alignment, setting.new, setting.old, options, name),
        title=options["title"] or f"Backfilling curves of {name}",
        takes=options["takes"],
        command=evaluation.command_line(),
        progress=evaluation.watching(options),
    )
    evaluation.show(findings, options)


def _check_source(file: str | None, options: evaluation.Options) -> None:
    if (file is None) == (options["aligned"] is None):
        raise click.UsageError(
            "Name an alignment (FILE) or aligned vectors (--aligned), one of the two."
        )
    if file is not None and options["variance"]:
        raise click.UsageError("--variance belongs to --aligned: an alignment has its own.")
    if file is not None and not options["old"]:
        raise click.UsageError("An alignment needs --old, the vectors that it maps.")


def load(file: str) -> Alignment:
    """A saved alignment."""
    from fastfill.align import Alignment

    return Alignment.load(file)


def _orders(
    alignment: Alignment | None,
    new: Features,
    old: Features | None,
    options: evaluation.Options,
    label: str,
) -> list[Candidate]:
    """The policies and the order of a file, as candidates of the one aligned gallery."""
    from fastfill.order import read_order

    if alignment is not None and old is not None:
        aligned, predicts = alignment(old, evaluation.matrix(options["side"])), True
    else:
        aligned, predicts = evaluation.own_aligned(
            options["aligned"], options["variance"], new, options["new"]
        )
    default = "sigma,random" if predicts else "random"
    names = evaluation.policies(options["policy"] or default)
    evaluation.check_policies(names, predicts)
    orders: list[Any] = list(names)
    if options["order_file"]:
        orders.insert(0, read_order(options["order_file"], new.ids))
        names.insert(0, Path(options["order_file"]).stem)
    return evaluation.candidates(
        aligned, orders, names, options, alignment, label, predicts=predicts
    )
