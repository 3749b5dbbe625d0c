"""`fastfill align`, `transform`, `inspect`: learn a map, apply it, look into it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fastfill.align.methods import METHOD_NAMES
from fastfill.cli.dataset_align import PIECES, PairOptions, align_pieces, pair_options
from fastfill.cli.datasets import (
    ENGINE_OPTIONS,
    LANCE,
    EngineOptions,
    check_output,
    is_dataset,
    refuse_for_datasets,
    refuse_for_files,
    refuse_typed,
    run_job,
)
from fastfill.cli.main import commands, console, for_people, print_json, say
from fastfill.cli.options import bundled
from fastfill.cli.outputs import refuse_overwriting
from fastfill.errors import InputError
from fastfill.features import DISTANCES, Distance

if TYPE_CHECKING:
    from rich.console import Console

    from fastfill.align import Alignment
    from fastfill.align.losses import Discriminative
    from fastfill.features import Matrix, Pairs


@dataclass(frozen=True)
class AlignOptions:
    """How the map is learned, and from what beside the vectors."""

    labels: str | None
    head: str | None
    side: str | None
    method: str
    loss: str | None
    discriminative: Discriminative
    distance: Distance
    epochs: int | None
    penalty: float | None
    pair_distance: bool | None
    device: str | None
    seed: int
    old_name: str
    new_name: str


_OPTIONS = [
    click.option("--labels", help="Labels of the pairs, numbered as the rows of the head."),
    click.option("--head", help="The new model's classifier (classes, dimensions), without bias."),
    click.option("--side", help="Side-information: features of a third model, row by row."),
    click.option("--method", type=click.Choice(METHOD_NAMES), default="auto", show_default=True),
    click.option("--loss", help="l2, disc or l2+disc, each with or without +uncertainty."),
    click.option("--discriminative", type=click.Choice(["cross-entropy", "arcface", "cosine"]),
                 default="cross-entropy", show_default=True,
                 help="What the new model's head was trained with."),
    click.option("--distance", type=click.Choice(DISTANCES), default="l2", show_default=True),
    click.option("--epochs", type=click.IntRange(min=1), help="Instead of the method's own."),
    click.option("--penalty", "--setback", "penalty", type=click.FloatRange(0, 1),
                 help="Share of their predicted error by which vectors are moved away from all "
                 "queries, from 0 (not at all) to 1."),
    click.option("--pair-distance/--no-pair-distance", default=None,
                 help="May σ² use the distance from the pairs? By default it does where that "
                 "helps, except with paper."),
    click.option("--device", help="cpu or cuda; cuda by default where there is one."),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--old-name", default="old", help="Name of the old model, kept in the file."),
    click.option("--new-name", default="new", help="Name of the new model, kept in the file."),
]  # fmt: skip


@commands.command(
    "align", short_help="Learn a map from old vectors to new vectors of the same items."
)
@click.argument("old")
@click.argument("new", required=False)
@click.option("-o", "--output", required=True, help="The alignment to write, a .safetensors file.")
@bundled(AlignOptions, "options", _OPTIONS)
@pair_options
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def align_command(
    old: str,
    new: str | None,
    output: str,
    options: AlignOptions,
    pieces: PairOptions,
    as_json: bool,
) -> None:
    """Learn a map from the vectors OLD to the vectors NEW of the same items.

    Files are FILE.npy, FILE.npz:KEY or FILE.parquet (id, vector, label). Arrays of three dimensions
    (views, rows, dimensions) hold several views of each item, the same views under both models, the
    plain look first. With the URL of a gallery in place of both, the map is learned from the
    gallery's own pairs and kept in it too.

    With --engine, pairs come in pieces, more than fit into memory: OLD and NEW are folders of
    Parquet files that are matched by id, or OLD is one folder or Lance table with both vectors.
    """
    from fastfill.features import check_target

    check_target(output)
    refuse_overwriting(output, old, new, options.labels, options.head, options.side)
    alignment = _learned(old, new, output, options, pieces)
    alignment.save(output)
    show(alignment, output, console)
    say(f"\nNext: fastfill transform {output} OLD -o aligned.npz")
    if as_json:
        print_json(describe(alignment, output))


def _learned(
    old: str, new: str | None, output: str, options: AlignOptions, pieces: PairOptions
) -> Alignment:
    """From pieces, from a gallery or from two files."""
    from fastfill.wiring import is_url

    if pieces.engine is not None:
        return align_pieces(
            old, new, output, pieces, method=options.method, distance=options.distance,
            seed=options.seed, models=(options.old_name, options.new_name),
        )  # fmt: skip
    refuse_typed(PIECES.__contains__, "is for pairs in pieces: give --engine too.")
    if is_url(old):
        if new or options.labels or options.side:
            raise InputError(f"{old} holds the pairs itself: give no NEW, --labels or --side.")
        return _from_store(old, options)
    if new is None:
        raise InputError("Give the vectors of both models, OLD and NEW, or the URL of a gallery.")
    return _from_files(old, new, options)


def _from_files(old: str, new: str, options: AlignOptions) -> Alignment:
    from fastfill.align import Alignment
    from fastfill.cli.progress import training_bar
    from fastfill.features import read_pairs

    head = _head(options)
    pairs = _with_a_direction(read_pairs(old, new, options.labels, options.side), options.distance)
    with training_bar(console) as report:
        return Alignment.fit(
            pairs, method=options.method, loss=options.loss, head=head,
            distance=options.distance, seed=options.seed,
            models=(options.old_name, options.new_name), penalty=options.penalty,
            epochs=options.epochs, discriminative=options.discriminative,
            pair_distance=options.pair_distance, device=options.device, report=report,
        )  # fmt: skip


def _with_a_direction(pairs: Pairs, distance: Distance) -> Pairs:
    """Under cosine, the pairs without a zero vector: the others teach nothing, and are told."""
    import numpy as np

    from fastfill.errors import some

    there = pairs.old.vectors.any(axis=1) & pairs.new.vectors.any(axis=1)
    if distance != "cosine" or there.all() or not there.any():
        return pairs
    zero = np.flatnonzero(~there)
    say(f"{len(zero):,} pairs have a zero vector, which has no direction under cosine, and are "
        f"left out: rows {some(zero)}.")  # fmt: skip
    return pairs.take(np.flatnonzero(there))


def _from_store(url: str, options: AlignOptions) -> Alignment:
    from fastfill.align import FitOptions
    from fastfill.cli.opening import open_by_url

    fit = FitOptions(
        method=options.method, loss=options.loss, seed=options.seed, penalty=options.penalty,
        epochs=options.epochs, discriminative=options.discriminative,
        pair_distance=options.pair_distance, device=options.device,
    )  # fmt: skip
    return open_by_url(url, encode=False).align(fit=fit, head=_head(options))


def _head(options: AlignOptions) -> Matrix | None:
    from fastfill.features import read_matrix

    return None if options.head is None else read_matrix(options.head)


@commands.command()
@click.argument("file")
@click.argument("old")
@click.option("-o", "--output", help="OUT.npz with arrays vectors and variance, or a folder.")
@click.option("--side", help="Side-information, where the alignment was learned with it.")
@click.option("--estimates", is_flag=True, help="Write the estimates, not what is to be served.")
@bundled(EngineOptions, "engine", ENGINE_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def transform(
    file: str,
    old: str,
    output: str | None,
    side: str | None,
    estimates: bool,
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Map the vectors OLD into the new space with the alignment FILE.

    OLD is FILE.npy, FILE.npz:KEY or FILE.parquet; or a folder of Parquet files, here or in object
    storage (s3://BUCKET/FOLDER), or a Lance table (lance://PATH#TABLE.COLUMN), which gets the
    columns COLUMN_aligned and COLUMN_variance. These two are worked on piece by piece, by several
    processes or a cluster, and a run that was killed goes on where it was.

    The vectors are those to serve: where the alignment has a distance penalty, they are moved away
    from all queries by their predicted error. To compare them with new vectors, ask for the
    estimates. Memory does not grow with the rows.
    """
    from fastfill.align import Alignment

    target = check_output(old, output)
    refuse_overwriting(output, file, old, side)
    alignment = Alignment.load(file)
    if is_dataset(old):
        refuse_for_datasets({"--side": side})
        _transform_dataset(alignment, old, target, estimates, engine, as_json)
    else:
        refuse_for_files(engine)
        _transform_file(alignment, old, target, side, estimates, as_json)


def _transform_file(
    alignment: Alignment, old: str, output: str, side: str | None, estimates: bool, as_json: bool
) -> None:
    from fastfill.align.streaming import transform_file
    from fastfill.cli.progress import counting_bar

    with counting_bar(console, "mapping", "rows") as tick:
        rows = transform_file(alignment, old, output, side=side, estimates=estimates, tick=tick)
    moved = alignment.penalty is not None and not estimates
    say(
        f"Wrote {rows:,} aligned vectors{', with their distance penalty,' * moved} and their "
        f"variance to {output}."
    )
    if as_json:
        print_json({"rows": rows, "dimensions": alignment.new_dim, "output": output})


def _transform_dataset(
    alignment: Alignment, old: str, output: str, estimates: bool, options: EngineOptions,
    as_json: bool,
) -> None:  # fmt: skip
    from fastfill.scale import JobResult, LanceTable, transform_folder, transform_table

    engine = options.open()

    def job(tick: Callable[[int, int], None]) -> JobResult:
        if old.startswith(LANCE):
            table = LanceTable.from_url(old)
            return transform_table(alignment, table, estimates=estimates, engine=engine, tick=tick)
        return transform_folder(
            alignment, old, output, column=options.column, key=options.key, estimates=estimates,
            engine=engine, tick=tick,
        )  # fmt: skip

    run_job("mapping", job, output, as_json)


@commands.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def inspect(file: str, as_json: bool) -> None:
    """Show what is in the alignment FILE."""
    from fastfill.align import Alignment

    alignment = Alignment.load(file)
    show(alignment, file, for_people(as_json))
    if as_json:
        print_json(describe(alignment, file))


def describe(alignment: Alignment, name: str) -> dict[str, Any]:
    """Everything about an alignment that is not a matrix."""
    return {
        "file": name,
        "method": alignment.method,
        "old_dim": alignment.old_dim,
        "new_dim": alignment.new_dim,
        "side_dim": alignment.side_dim,
        "distance": alignment.distance,
        "unit_length": alignment.scaling.unit,
        "length": 1.0 if alignment.scaling.unit else alignment.scaling.length,
        "head_classes": None if alignment.head is None else len(alignment.head),
        "fingerprint": alignment.fingerprint,
        **alignment.facts,
    }


def show(alignment: Alignment, name: str, to: Console) -> None:
    """The same for people, with the comparison that `auto` made."""
    _show_facts(_lines(alignment, name), to)
    if "compared" in alignment.facts:
        _show_compared(alignment, to)
    if "not_tried" in alignment.facts:
        say(f"\n{alignment.facts['not_tried']}", to)


def _show_facts(facts: dict[str, str], to: Console) -> None:
    """A line for each; on a screen, what is longer goes on below its own beginning."""
    import textwrap

    from rich.markup import escape

    width = max(map(len, facts))
    room = to.width - width - 2 if to.is_terminal else sys.maxsize
    for key, value in facts.items():
        first, *rest = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False)
        to.print(f"[bold]{key:<{width}}[/]  {escape(first)}", soft_wrap=True)
        for line in rest:
            to.print(f"{'':{width}}  {escape(line)}", soft_wrap=True)


def _lines(alignment: Alignment, name: str) -> dict[str, str]:
    """What is said about an alignment, by what it is about."""
    facts, scaling = alignment.facts, alignment.scaling
    held, models = facts["held_out"], facts["models"]
    views = f" with {facts['views']} views each" if "views" in facts else ""
    length = ", unit length" if scaling.unit else ""
    if scaling.length is not None:
        length = f", length {scaling.length:.3g}"
    lines = {
        "file": name,
        "method": f"{alignment.method}, loss {facts['loss']}",
        "map": f"{models['old']} ({alignment.old_dim}) → "
        f"{models['new']} ({alignment.new_dim}{length})",
        "distance": alignment.distance,
        "pairs": f"{facts['pairs']:,}{views}, of which {held['pairs']:,} were held out to measure",
        "variance explained": f"{100 * held['explained']:.1f} % on held-out pairs",
        "σ² against true error": f"Kendall τ {held['kendall_tau']:.2f}, "
        f"the 90 % bound covers {100 * held['coverage_90']:.0f} %",
        "head": "none" if alignment.head is None else f"{len(alignment.head):,} classes",
        "fingerprint": alignment.fingerprint[:16],
    }
    if alignment.side_dim:
        lines["side-information"] = f"{alignment.side_dim} dimensions"
    return lines


def _show_compared(alignment: Alignment, to: Console) -> None:
    """The methods that `auto` tried, the chosen one marked."""
    from rich.table import Table

    metric = alignment.facts["held_out"]["metric"]
    table = Table("method", metric, "variance explained", box=None, pad_edge=False)
    for method, row in alignment.facts["compared"].items():
        chosen = " ←" if method == alignment.method else ""
        figures = (f"{100 * row[key]:.1f} %" for key in ("score", "explained"))
        table.add_row(method + chosen, *figures)
    to.print("\nCompared on held-out pairs:")
    to.print(table)
