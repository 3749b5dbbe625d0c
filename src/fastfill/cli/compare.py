"""`fastfill compare`: several alignments and orders on the same gallery, with significance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastfill.cli import evaluation
from fastfill.cli.curve import load
from fastfill.cli.evaluation import EvaluationOptions, evaluation_options
from fastfill.cli.findings import command_line, show, watching
from fastfill.cli.main import commands
from fastfill.cli.servings import serving_option

if TYPE_CHECKING:
    from fastfill.align import Aligned, Alignment
    from fastfill.evaluate import Candidate, Setting
    from fastfill.features import Distance, Features
    from fastfill.order import Order


@dataclass(frozen=True)
class ComparedEntry:
    """One argument, taken apart: `[NAME=]FILE[@ORDER]`.

    >>> ComparedEntry.parse("ours=H.npy@order.parquet")
    ComparedEntry(name='ours', source='H.npy', order='order.parquet')
    >>> ComparedEntry.parse("photos.safetensors@sigma")
    ComparedEntry(name='', source='photos.safetensors', order='sigma')
    """

    name: str
    source: str
    order: str

    @classmethod
    def parse(cls, text: str) -> ComparedEntry:
        """Take an argument apart; a folder may have = or @ in its name, a file may not."""
        folder, slash, file = text.rpartition("/")
        name = ""
        if "=" in text.partition("/")[0]:
            name, _, text = text.partition("=")
            folder, slash, file = text.rpartition("/")
        file, _, order = file.partition("@")
        return cls(name, f"{folder}{slash}{file}", order)

    @property
    def label(self) -> str:
        """What its alignment is called."""
        return self.name or Path(self.source).stem


@commands.command()
@click.argument("entries", nargs=-1, required=True, metavar="[NAME=]FILE[@ORDER]...")
@click.option(
    "--variance",
    "variances",
    multiple=True,
    metavar="NAME=FILE",
    help="Predicted squared errors of an aligned gallery; for each that has them.",
)
@click.option(
    "--policy",
    metavar="A,B",
    default="sigma,random",
    show_default=True,
    help="Orders of the entries that name none.",
)
@click.option("--baseline", metavar="NAME", help="Row of the table that all are compared with.  "
              "[default: the first random order]")  # fmt: skip
@evaluation_options
def compare(
    entries: tuple[str, ...],
    variances: tuple[str, ...],
    policy: str,
    baseline: str | None,
    options: EvaluationOptions,
) -> None:
    """Compare alignments and orders on one gallery.

    FILE is an alignment (.safetensors), or a gallery that is aligned already (.npy, .npz:KEY,
    .parquet). ORDER is a policy, or a Parquet file with the columns id and rank. Each row is
    compared with the baseline by a paired bootstrap over the queries.

    \b
    fastfill compare fct.safetensors@random fastfill.safetensors@sigma \\
      --old old.npy --new new.npy --labels labels.npy -o report/
    fastfill compare ours=H.npy@order.parquet --variance ours=V.npy \\
      base.safetensors …
    """
    from fastfill.evaluate import in_each_way, study

    parsed = [ComparedEntry.parse(entry) for entry in entries]
    files = _variances(variances, parsed)
    alignments = {one.source: load(one.source) for one in parsed if _is_alignment(one)}
    if alignments and not options.old:
        raise click.UsageError("Alignments need --old, the vectors that they map.")
    setting = evaluation.read_setting(options, _distance(alignments, options.distance))
    labels = ", ".join(dict.fromkeys(one.label for one in parsed))
    fused = _can_be_fused(parsed, alignments)
    servings = serving_option(options.serving, setting, fused=fused)
    findings = study(
        setting,
        in_each_way(_candidates(parsed, alignments, files, setting, policy, options), servings),
        title=options.title or f"{labels} compared",
        baseline=baseline,
        takes=options.takes,
        command=command_line(),
        progress=watching(options.as_json),
    )
    show(findings, options.output, options.as_json, gains=True)


def _can_be_fused(entries: list[ComparedEntry], alignments: dict[str, Alignment]) -> bool:
    """Has every entry reference pairs, by which both models can serve together?"""
    kept = {source for source, one in alignments.items() if one.reference is not None}
    return all(entry.source in kept for entry in entries)


def _is_alignment(entry: ComparedEntry) -> bool:
    return entry.source.endswith(".safetensors")


def _variances(given: tuple[str, ...], entries: list[ComparedEntry]) -> dict[str, str]:
    """`NAME=FILE` of each variance, by the name of its entry."""
    files = {}
    names = [one.label for one in entries if not _is_alignment(one)]
    for text in given:
        name, equals, file = text.partition("=")
        if not equals:
            raise click.UsageError(f"--variance {text}: write it NAME=FILE, of {', '.join(names)}.")
        if name not in names:
            raise click.UsageError(
                f"--variance {text}: no aligned gallery is called {name!r}, "
                f"only {', '.join(names) or 'none'}."
            )
        files[name] = file
    return files


def _distance(alignments: dict[str, Alignment], asked: Distance | None) -> Distance:
    """The one distance that all agree on."""
    distances: set[Distance] = {one.distance for one in alignments.values()}
    if asked is None and len(distances) > 1:
        raise click.UsageError(
            f"The alignments were learned for {' and '.join(sorted(distances))}: choose a "
            "--distance."
        )
    return asked or (distances.pop() if distances else "l2")


def _candidates(
    entries: list[ComparedEntry],
    alignments: dict[str, Alignment],
    variances: dict[str, str],
    setting: Setting,
    policy: str,
    options: EvaluationOptions,
) -> list[Candidate]:
    done: dict[tuple[str, str | None], tuple[Aligned, bool]] = {}  # each gallery is mapped once
    listed = []
    for entry in entries:
        alignment = alignments.get(entry.source)
        key = (entry.source, variances.get(entry.label))
        if key not in done:
            done[key] = _aligned(entry, alignment, key[1], setting, options)
        aligned, predicts = done[key]
        orders, names = _orders(entry, setting.new, predicts, policy)
        listed += evaluation.candidates(
            aligned, orders, names, options, alignment, entry.label, predicts=predicts
        )
    return listed


def _aligned(
    entry: ComparedEntry,
    alignment: Alignment | None,
    variance: str | None,
    setting: Setting,
    options: EvaluationOptions,
) -> tuple[Aligned, bool]:
    if alignment is not None and setting.old is not None:
        return alignment(setting.old, evaluation.matrix(options.side)), True
    return evaluation.own_aligned(entry.source, variance, setting.new, setting.distance)


def _orders(
    entry: ComparedEntry, new: Features, predicts: bool, policy: str
) -> tuple[list[str | Order], list[str]]:
    """The orders of an entry, and what each is called in the table."""
    from fastfill.order import read_order

    if entry.order.endswith(".parquet"):
        name = entry.name or f"{entry.label} {Path(entry.order).stem}"
        return [read_order(entry.order, new.ids)], [name]
    wanted = [entry.order] if entry.order else evaluation.policies(policy)
    if not entry.order and not predicts:
        wanted = [name for name in wanted if not name.endswith("sigma")] or ["random"]
    evaluation.check_policies(wanted, predicts)
    if entry.order and entry.name:
        return list(wanted), [entry.name]
    return list(wanted), [f"{entry.label} {name}" for name in wanted]
