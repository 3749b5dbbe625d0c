"""How `curve` and `compare` answer queries: `--serving`, its default, and what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fastfill.align import ServingOption
    from fastfill.evaluate import Setting


def serving_option(text: str | None, setting: Setting, *, fused: bool) -> list[ServingOption]:
    """The ways to serve that were asked for, or the default.

    `fused`: can both models serve together, that is, are reference pairs there?
    """
    if text is None:
        return ["auto" if setting.query_old is not None and fused else "aligned"]
    servings = [_checked(name.strip()) for name in text.split(",") if name.strip()]
    if not servings:
        raise click.UsageError("--serving is empty: name a way to serve, such as auto.")
    for serving in servings:
        if serving != "aligned" and not setting.old_search:
            missing = "--old" if setting.old is None else "--query-old"
            raise click.UsageError(f"--serving {serving} needs {missing}: the old model answers.")
        if serving in ("both", "auto") and not fused:
            raise click.UsageError(
                f"--serving {serving} needs the reference pairs of an alignment, which aligned "
                "vectors and alignments of former versions do not have: give a FILE that "
                "`fastfill align` has written, or --refit."
            )
    return list(dict.fromkeys(servings))


def _checked(name: str) -> ServingOption:
    from fastfill.align import check_serving

    return "auto" if name == "auto" else check_serving(name)
