"""`fastfill curve`: what a backfill would give, from features alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastfill.cli import evaluation
from fastfill.cli.dataset_curve import PIECES, PieceOptions, curve_over_pieces, piece_options
from fastfill.cli.datasets import refuse_typed
from fastfill.cli.evaluation import EvaluationOptions, evaluation_options
from fastfill.cli.findings import command_line, show, watching
from fastfill.cli.main import commands
from fastfill.cli.options import bundled
from fastfill.cli.refitting import refit_candidates
from fastfill.cli.servings import serving_option

if TYPE_CHECKING:
    from fastfill.align import Alignment
    from fastfill.evaluate import Candidate, RefitCandidate, Setting
    from fastfill.order import Order


@dataclass(frozen=True)
class CurveSource:
    """What is measured: an alignment, or vectors that are aligned already; and its orders."""

    file: str | None
    aligned: str | None
    variance: str | None
    order_file: str | None
    policy: str | None
    refit: bool
    pairs: int | None

    @property
    def name(self) -> str:
        """What it is called in titles and legends."""
        return Path(self.file or self.aligned or "a map that is learned again").stem


_SOURCE = [
    click.argument("file", required=False),
    click.option("--aligned", metavar="FILE", help="Aligned gallery of a method of your own."),
    click.option("--variance", metavar="FILE", help="Its predicted squared error of each item."),
    click.option("--order-file", metavar="FILE",
                 help="An order (Parquet with the columns id, rank)."),
    click.option("--policy", metavar="A,B", help="random, sigma, mixed, novelty, entropy, margin, "
                 "least-confidence, oracle, traffic:POLICY.  [default: sigma,random; with "
                 "--refit mixed]"),
    click.option("--refit", is_flag=True, help="Learn the map from random rows of the gallery, and "
                 "again along the way; FILE may be left out, or says how."),
    click.option("--pairs", type=click.IntRange(1), metavar="N", help="Rows that the first map is "
                 "learned from (--refit).  [default: 5 % of the gallery]"),
]  # fmt: skip


@commands.command()
@bundled(CurveSource, "source", _SOURCE)
@piece_options
@evaluation_options
def curve(source: CurveSource, pieces: PieceOptions, options: EvaluationOptions) -> None:
    """Show the quality of a search along its backfill.

    FILE is an alignment that `fastfill align` has written; or bring your own aligned vectors with
    --aligned. Files are written FILE.npy, FILE.npz:KEY or FILE.parquet.

    \b
    fastfill curve photos.safetensors --old old.npy --new new.npy \\
      --labels labels.npy -o report/
    fastfill curve --aligned H.npy --variance V.npy --new new.npy \\
      --labels labels.npy
    fastfill curve --refit --old old.npy --new new.npy \\
      --query-old qo.npy --query-new qn.npy --qrels qrels.tsv \\
      --metrics ndcg@10 --serving old,aligned,both,auto
    fastfill curve --engine ray s3://bucket/gallery --query-new q.npy \\
      --query-labels labels.npy
    """
    if pieces.engine is not None:
        curve_over_pieces(source.file, pieces, options)
    else:
        refuse_typed(PIECES.__contains__, "is for a gallery in pieces: give --engine too.")
        _curve_of_files(source, options)


def _curve_of_files(source: CurveSource, options: EvaluationOptions) -> None:
    from fastfill.evaluate import study

    _check_source(source, options)
    alignment = None if source.file is None else load(source.file)
    own = "l2" if alignment is None else alignment.distance
    setting = evaluation.read_setting(options, options.distance or own)
    findings = study(
        setting,
        _candidates(source, alignment, setting, options),
        title=options.title or f"Backfilling curves of {source.name}",
        takes=options.takes,
        command=command_line(),
        progress=watching(options.as_json),
    )
    show(findings, options.output, options.as_json)


def _check_source(source: CurveSource, options: EvaluationOptions) -> None:
    if source.refit:
        _check_refit(source, options)
    elif (source.file is None) == (source.aligned is None):
        raise click.UsageError(
            "Name an alignment (FILE) or aligned vectors (--aligned), one of the two; or learn the "
            "map along the way (--refit)."
        )
    elif source.pairs is not None:
        raise click.UsageError("--pairs belongs to --refit: an alignment has learned already.")
    if source.file is not None and source.variance:
        raise click.UsageError("--variance belongs to --aligned: an alignment has its own.")
    if source.file is not None and not options.old:
        raise click.UsageError("An alignment needs --old, the vectors that it maps.")


def _check_refit(source: CurveSource, options: EvaluationOptions) -> None:
    if not options.old:
        raise click.UsageError("--refit needs --old, the vectors that maps are learned from.")
    given = {
        "--aligned": source.aligned,
        "--variance": source.variance,
        "--order-file": source.order_file,
        "--side": options.side,
        "--pairs-old": options.pairs_old,
    }
    for flag, value in given.items():
        if value:
            raise click.UsageError(f"{flag} does not go with --refit, which learns its own maps.")


def load(file: str) -> Alignment:
    """A saved alignment."""
    from fastfill.align import Alignment

    return Alignment.load(file)


def _candidates(
    source: CurveSource, alignment: Alignment | None, setting: Setting, options: EvaluationOptions
) -> Sequence[Candidate | RefitCandidate]:
    """Orders, each in the ways that it is served."""
    from fastfill.evaluate import in_each_way

    if source.refit:
        return refit_candidates(source.policy, source.pairs, alignment, setting, options)
    orders = _orders(source, alignment, setting, options)
    fused = alignment is not None and alignment.reference is not None
    return in_each_way(orders, serving_option(options.serving, setting, fused=fused))


def _orders(
    source: CurveSource, alignment: Alignment | None, setting: Setting, options: EvaluationOptions
) -> list[Candidate]:
    """The policies and the order of a file, as candidates of the one aligned gallery."""
    from fastfill.order import read_order

    new = setting.new
    if alignment is not None and setting.old is not None:
        aligned, predicts = alignment(setting.old, evaluation.matrix(options.side)), True
    else:
        aligned, predicts = evaluation.own_aligned(
            source.aligned or "", source.variance, new, setting.distance
        )
    default = "sigma,random" if predicts else "random"
    names = evaluation.policies(source.policy or default)
    evaluation.check_policies(names, predicts)
    orders: list[str | Order] = list(names)
    if source.order_file:
        orders.insert(0, read_order(source.order_file, new.ids))
        names.insert(0, Path(source.order_file).stem)
    return evaluation.candidates(
        aligned, orders, names, options, alignment, source.name, predicts=predicts
    )
