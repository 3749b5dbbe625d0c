"""`fastfill align`, `transform`, `inspect`: learn a map, apply it, look into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fastfill.cli.main import commands, console, print_json, say
from fastfill.errors import InputError
from fastfill.features import DISTANCES, Distance

if TYPE_CHECKING:
    from fastfill.align import Alignment

METHODS = ("auto", "ridge", "procrustes", "kernel", "residual", "paper")


@commands.command()
@click.argument("old")
@click.argument("new", required=False)
@click.option("-o", "--output", required=True, help="The alignment to write, a .safetensors file.")
@click.option("--labels", help="Labels of the pairs, numbered as the rows of the head.")
@click.option("--head", help="The new model's classifier (classes, dimensions), without bias.")
@click.option("--side", help="Side-information: features of a third model, row by row.")
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option("--loss", help="l2, disc or l2+disc, each with or without +uncertainty.")
@click.option(
    "--discriminative", type=click.Choice(["cross-entropy", "arcface"]), default="cross-entropy",
    show_default=True, help="What the new model's head was trained with.",
)  # fmt: skip
@click.option("--distance", type=click.Choice(DISTANCES), default="l2", show_default=True)
@click.option("--epochs", type=click.IntRange(min=1), help="Instead of the method's own.")
@click.option(
    "--setback", type=click.FloatRange(0, 1),
    help="How far doubtful vectors are set back, from 0 (not at all) to 1.",
)  # fmt: skip
@click.option("--device", help="cpu or cuda; cuda by default where there is one.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--old-name", default="old", help="Name of the old model, kept in the file.")
@click.option("--new-name", default="new", help="Name of the new model, kept in the file.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def align(
    old: str,
    new: str | None,
    output: str,
    labels: str | None,
    head: str | None,
    side: str | None,
    method: str,
    loss: str | None,
    discriminative: str,
    distance: Distance,
    epochs: int | None,
    setback: float | None,
    device: str | None,
    seed: int,
    old_name: str,
    new_name: str,
    as_json: bool,
) -> None:
    """Learn a map from the vectors OLD to the vectors NEW of the same items.

    Files are FILE.npy, FILE.npz:KEY or FILE.parquet (id, vector, label). With the URL of a gallery
    in place of both, the map is learned from the gallery's own pairs and kept in it too.
    """
    from fastfill.align import fit_alignment
    from fastfill.cli.migrate import align_store
    from fastfill.cli.progress import training_bar
    from fastfill.features import check_target, read_matrix, read_pairs
    from fastfill.wiring import is_url

    check_target(output)
    options: dict[str, Any] = {
        "method": method,
        "loss": loss,
        "head": None if head is None else read_matrix(head),
        "seed": seed,
        "epochs": epochs,
        "setback": setback,
        "device": device,
        "discriminative": discriminative,
    }
    if is_url(old):
        if new or labels or side:
            raise InputError(f"{old} holds the pairs itself: give no NEW, --labels or --side.")
        alignment = align_store(old, **options)
    elif new is None:
        raise InputError("Give the vectors of both models, OLD and NEW, or the URL of a gallery.")
    else:
        pairs = read_pairs(old, new, labels, side)
        models = (old_name, new_name)
        with training_bar(console) as report:
            alignment = fit_alignment(
                pairs, distance=distance, models=models, report=report, **options
            )
    alignment.save(output)
    show(alignment, output)
    say(f"\nNext: fastfill transform {output} OLD -o aligned.npz")
    if as_json:
        print_json(describe(alignment, output))


@commands.command()
@click.argument("file")
@click.argument("old")
@click.option("-o", "--output", required=True, help="OUT.npz with arrays vectors and variance.")
@click.option("--side", help="Side-information, where the alignment was learned with it.")
@click.option("--estimates", is_flag=True, help="Write the estimates, not what is to be served.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def transform(
    file: str, old: str, output: str, side: str | None, estimates: bool, as_json: bool
) -> None:
    """Map the vectors OLD into the new space with the alignment FILE.

    The vectors are those to serve: where the alignment sets them back by their doubt, they are.
    To compare them with new vectors, ask for the estimates. Memory does not grow with the rows.
    """
    from fastfill.align import Alignment
    from fastfill.align.streaming import transform_file
    from fastfill.cli.progress import counting_bar

    alignment = Alignment.load(file)
    with counting_bar(console, "mapping", "rows") as tick:
        rows = transform_file(alignment, old, output, side=side, estimates=estimates, tick=tick)
    back = alignment.setback is not None and not estimates
    say(
        f"Wrote {rows:,} aligned vectors{', set back by their doubt,' * back} and their variance "
        f"to {output}."
    )
    if as_json:
        print_json({"rows": rows, "dimensions": alignment.new_dim, "output": output})


@commands.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def inspect(file: str, as_json: bool) -> None:
    """Show what is in the alignment FILE."""
    from fastfill.align import Alignment

    alignment = Alignment.load(file)
    show(alignment, file)
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


def show(alignment: Alignment, name: str) -> None:
    """The same for people, with the comparison that `auto` made."""
    from rich.markup import escape
    from rich.table import Table

    facts = alignment.facts
    held = facts["held_out"]
    length = ", unit length" if alignment.scaling.unit else ""
    if alignment.scaling.length is not None:
        length = f", length {alignment.scaling.length:.3g}"
    lines = {
        "file": name,
        "method": f"{alignment.method}, loss {facts['loss']}",
        "map": f"{facts['models']['old']} ({alignment.old_dim}) → "
        f"{facts['models']['new']} ({alignment.new_dim}{length})",
        "distance": alignment.distance,
        "pairs": f"{facts['pairs']:,}, of which {held['pairs']:,} were held out to measure",
        "variance explained": f"{100 * held['explained']:.1f} % on held-out pairs",
        "σ² against true error": f"Kendall τ {held['kendall_tau']:.2f}, "
        f"the 90 % bound covers {100 * held['coverage_90']:.0f} %",
        "head": "none" if alignment.head is None else f"{len(alignment.head):,} classes",
        "fingerprint": alignment.fingerprint[:16],
    }
    if alignment.side_dim:
        lines["side-information"] = f"{alignment.side_dim} dimensions"
    width = max(map(len, lines))
    for key, value in lines.items():
        console.print(f"[bold]{key:<{width}}[/]  {escape(value)}", soft_wrap=True)
    if "compared" in facts:
        compared = Table("method", held["metric"], "variance explained", box=None, pad_edge=False)
        for method, row in facts["compared"].items():
            mark = " ←" if method == alignment.method else ""
            compared.add_row(
                method + mark,
                f"{100 * row['score']:.1f} %",
                f"{100 * row['explained']:.1f} %",
            )
        console.print("\nCompared on held-out pairs:")
        console.print(compared)
