"""The ways to serve a gallery that is half new: the words that searches, curves and jobs share."""

from __future__ import annotations

from typing import Literal, get_args

from fastfill.errors import InputError, unknown_choice

# old: old queries on old vectors; aligned: new queries on the added vectors; both: their fusion
Serving = Literal["old", "aligned", "both"]
ServingOption = Literal["old", "aligned", "both", "auto"]  # auto: what the evidence chooses
SERVINGS: tuple[Serving, ...] = get_args(Serving)


def check_serving(name: str) -> Serving:
    """The way to serve of that name, or an error that lists all.

    >>> check_serving("both")
    'both'
    """
    if name not in SERVINGS:
        raise InputError(unknown_choice("way to serve", name, SERVINGS))
    return name
