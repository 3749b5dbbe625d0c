"""A map for programs in other languages: `fastfill export`."""

from __future__ import annotations

from pathlib import Path

import click

from fastfill.cli.main import commands, print_json, say
from fastfill.cli.opening import json_option
from fastfill.cli.outputs import refuse_overwriting
from fastfill.errors import InputError


@commands.command("export", short_help="Write an alignment as .onnx, for other programs to apply.")
@click.argument("file")
@click.argument("output")
@click.option(
    "--estimates", is_flag=True, help="The vectors as the map has them, without distance penalty."
)
@json_option
def export_command(file: str, output: str, estimates: bool, as_json: bool) -> None:
    """Write the alignment FILE as OUTPUT, an .onnx file that other languages can run."""
    from fastfill.align import Alignment
    from fastfill.align.onnx_export import write_onnx

    if Path(output).suffix != ".onnx":
        raise InputError(f"{output}: give a file that ends in .onnx, the one format there is.")
    refuse_overwriting(output, file)
    alignment = Alignment.load(file)
    write_onnx(alignment, output, estimates=estimates)
    side = f" and side (n, {alignment.side_dim})" if alignment.side_dim else ""
    say(
        f"Wrote {alignment!r} to {output}: input old (n, {alignment.old_dim}){side}, outputs "
        f"vectors (n, {alignment.new_dim}) and variance (n)."
    )
    if as_json:
        print_json(
            {
                "output": output,
                "method": alignment.method,
                "old_dim": alignment.old_dim,
                "side_dim": alignment.side_dim,
                "new_dim": alignment.new_dim,
                "fingerprint": alignment.fingerprint,
            }
        )
