"""`fastfill order`: the order alone, for people who run their own backfill."""

from __future__ import annotations

import click

from fastfill.cli.main import commands, console, print_json


@commands.command("order")
@click.argument("file")
@click.argument("old")
@click.option(
    "--policy", default="mixed", show_default=True,
    help="random, sigma, mixed, novelty, entropy, margin, least-confidence, or traffic:POLICY.",
)  # fmt: skip
@click.option("-o", "--output", required=True, help="ORDER.parquet with id, rank and score.")
@click.option("--pairs-old", help="Old vectors of the pairs, for the policy novelty.")
@click.option("--shown", help="How often each item was shown, for a traffic policy.")
@click.option("--side", help="Side-information, where the alignment was learned with it.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
def order_command(
    file: str,
    old: str,
    policy: str,
    output: str,
    pairs_old: str | None,
    shown: str | None,
    side: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Write the order in which to backfill the gallery OLD, by the alignment FILE.

    OLD is FILE.npy, FILE.npz:KEY or FILE.parquet; the ids are its ids, or row numbers.
    """
    from fastfill.align import Alignment
    from fastfill.features import read_column, read_features, read_matrix
    from fastfill.order import PolicyInput, arrange, write_order

    alignment = Alignment.load(file)
    gallery = read_features(old)
    inputs = PolicyInput(
        alignment(gallery, None if side is None else read_matrix(side)),
        old=gallery.vectors,
        pairs_old=None if pairs_old is None else read_matrix(pairs_old),
        head=alignment.head,
        shown=None if shown is None else read_column(shown),
        distance=alignment.distance,
        seed=seed,
    )
    arranged = arrange(policy, inputs)
    write_order(arranged, output, gallery.ids)
    first = ", ".join(str(i) for i in gallery.ids[arranged.positions[:5]])
    console.print(f"Wrote the order of {len(arranged):,} items to {output}: {first}, …")
    if as_json:
        print_json({"rows": len(arranged), "policy": policy, "output": output})
