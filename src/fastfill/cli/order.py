"""`fastfill order`: the order alone, for people who run their own backfill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fastfill.cli.datasets import (
    ENGINE_OPTIONS,
    LANCE,
    EngineOptions,
    check_output,
    is_dataset,
    refuse_for_datasets,
    refuse_for_files,
    run_job,
)
from fastfill.cli.main import commands, console, print_json
from fastfill.cli.options import bundled
from fastfill.cli.outputs import refuse_overwriting
from fastfill.errors import IdError, InputError, some

if TYPE_CHECKING:
    from fastfill.align import Aligned, Alignment
    from fastfill.features import Array, Features, Ints, Pairs


@dataclass(frozen=True)
class OrderOptions:
    """What the order depends on beside the alignment and the gallery."""

    policy: str
    pairs_old: str | None
    pairs_new: str | None
    pilot: str | None
    pilot_ids: str | None
    shown: str | None
    side: str | None
    seed: int


_OPTIONS = [
    click.option("--policy", default="mixed", show_default=True,
                 help="random, sigma, mixed, novelty, entropy, margin, least-confidence, or "
                 "traffic:POLICY."),
    click.option("--pairs-old", help="Old vectors of the pairs: for the policy novelty, and for a "
                 "pilot."),
    click.option("--pairs-new", help="New vectors of the pairs, for a pilot."),
    click.option("--pilot", help="New vectors of a random sample of OLD (50 items or more): their "
                 "true errors teach σ² of all others."),
    click.option("--pilot-ids", help="Ids of the pilot in OLD (row numbers where OLD has no ids); "
                 "a pilot with ids brings its own."),
    click.option("--shown", help="How often each item was shown, for a traffic policy."),
    click.option("--side", help="Side-information, where the alignment was learned with it."),
    click.option("--seed", type=int, default=0, show_default=True),
]  # fmt: skip


@commands.command("order", short_help="Write the order in which to backfill a gallery.")
@click.argument("file")
@click.argument("old")
@bundled(OrderOptions, "options", _OPTIONS)
@bundled(EngineOptions, "engine", ENGINE_OPTIONS)
@click.option("-o", "--output", help="ORDER.parquet with id, rank and score, or a folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def order_command(
    file: str,
    old: str,
    options: OrderOptions,
    engine: EngineOptions,
    output: str | None,
    as_json: bool,
) -> None:
    """Write the order in which to backfill the gallery OLD, by the alignment FILE.

    OLD is FILE.npy, FILE.npz:KEY or FILE.parquet; the ids are its ids, or row numbers. Or it is a
    folder of Parquet files, here or in object storage, or a Lance table, which get the columns
    COLUMN_rank and COLUMN_score: see transform.
    """
    from fastfill.align import Alignment

    target = check_output(old, output)
    refuse_overwriting(
        output, file, old, options.pairs_old, options.pairs_new, options.pilot, options.pilot_ids,
        options.shown, options.side,
    )  # fmt: skip
    _check_pilot(options)
    if is_dataset(old):
        _order_dataset(Alignment.load(file), old, target, options, engine, as_json)
    else:
        refuse_for_files(engine)
        _order_file(Alignment.load(file), old, target, options, as_json)


def _order_dataset(
    alignment: Alignment, old: str, output: str, options: OrderOptions, engine: EngineOptions,
    as_json: bool,
) -> None:  # fmt: skip
    from fastfill.scale import JobResult, LanceTable, order_folder, order_table

    refuse_for_datasets(
        {"--pilot": options.pilot, "--pairs-old": options.pairs_old, "--shown": options.shown,
         "--side": options.side}
    )  # fmt: skip
    runner = engine.open()

    def job(tick: Callable[[int, int], None]) -> JobResult:
        if old.startswith(LANCE):
            return order_table(
                alignment, LanceTable.from_url(old), policy=options.policy, seed=options.seed,
                engine=runner, tick=tick,
            )  # fmt: skip
        return order_folder(
            alignment, old, output, column=engine.column, key=engine.key, policy=options.policy,
            seed=options.seed, engine=runner, tick=tick,
        )  # fmt: skip

    again = "To rank them too, drop the rank and the score of all rows, and order again."
    run_job("scoring", job, output, as_json, again)


def _order_file(
    alignment: Alignment, old: str, output: str, options: OrderOptions, as_json: bool
) -> None:
    from fastfill.features import read_column, read_features, read_matrix, read_plain_look
    from fastfill.order import PolicyInput, arrange, write_order

    gallery = read_features(old)
    aligned = alignment(gallery, None if options.side is None else read_matrix(options.side))
    if options.pilot is not None:
        aligned = _by_pilot(alignment, aligned, gallery, options.pilot, options)
    inputs = PolicyInput(
        aligned,
        old=gallery.vectors,
        pairs_old=None if options.pairs_old is None else read_plain_look(options.pairs_old),
        head=alignment.head,
        shown=None if options.shown is None else read_column(options.shown),
        distance=alignment.distance,
        seed=options.seed,
    )
    arranged = arrange(options.policy, inputs)
    write_order(arranged, output, gallery.ids)
    first = ", ".join(str(i) for i in gallery.ids[arranged.positions[:5]])
    console.print(f"Wrote the order of {len(arranged):,} items to {output}: {first}, …")
    if as_json:
        print_json({"rows": len(arranged), "policy": options.policy, "output": output})


def _check_pilot(options: OrderOptions) -> None:
    """Refuse half of what a pilot needs, before anything is read."""
    if options.pilot is None and (options.pilot_ids or options.pairs_new):
        given = "--pilot-ids" if options.pilot_ids else "--pairs-new"
        raise InputError(f"{given} belongs to a pilot: give its new vectors as --pilot NEW.npy.")
    if options.pairs_new and not options.pairs_old:
        raise InputError("--pairs-new are the new vectors of the pairs: give --pairs-old too.")


def _by_pilot(
    alignment: Alignment, aligned: Aligned, gallery: Features, pilot: str, options: OrderOptions
) -> Aligned:
    """The same vectors with the error that the pilot leads to expect."""
    from fastfill.align import pilot_errors
    from fastfill.features import Features, read_column, read_features

    sample, name = read_features(pilot), pilot
    if options.pilot_ids is not None:
        name = options.pilot_ids
        sample = Features(sample.vectors, read_column(name, "id"), name=name)
    elif not sample.ids_given:
        raise InputError(f"{pilot} does not say which items it holds: give --pilot-ids FILE.")
    rows = _rows_of(sample.ids, gallery, name)
    return pilot_errors(
        aligned, gallery.vectors, rows, sample.vectors, pairs=_pairs(options), head=alignment.head
    )


def _pairs(options: OrderOptions) -> Pairs | None:
    from fastfill.features import read_pairs

    if options.pairs_old is None or options.pairs_new is None:
        return None
    return read_pairs(options.pairs_old, options.pairs_new)


def _rows_of(ids: Array, gallery: Features, name: str) -> Ints:
    """Where these ids are in the gallery."""
    import numpy as np

    kinds = ["texts" if column.dtype.kind == "U" else "numbers" for column in (ids, gallery.ids)]
    if kinds[0] != kinds[1]:
        raise IdError(f"{name}: the ids are {kinds[0]}, those of {gallery.name} are {kinds[1]}. "
                      "Write both the same way.")  # fmt: skip
    missing = np.setdiff1d(ids, gallery.ids)
    if len(missing):
        raise IdError(f"{name}: the gallery has no items {some(missing)}. Give ids of OLD.")
    order = np.argsort(gallery.ids, kind="stable")
    return np.asarray(order[np.searchsorted(gallery.ids, ids, sorter=order)])
