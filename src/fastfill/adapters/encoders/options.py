"""Options in an encoder's name: `NAME?dim=256&prompt=passage:%20`, written as in a URL.

What they say is part of what a migration knows its model by: other options are another model.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl

from fastfill.errors import EncoderError, unknown_choice


def split_options(spec: str, name: str, allowed: Sequence[str]) -> tuple[str, dict[str, str]]:
    """A name without its options, and these by their names; `spec` is for the message.

    >>> split_options("st:tiny?dim=8", "tiny?dim=8&prompt=item:%20", ["dim", "prompt"])
    ('tiny', {'dim': '8', 'prompt': 'item: '})
    """
    bare, _, query = name.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for option in options:
        if option not in allowed:
            raise EncoderError(f"{spec}: {unknown_choice('option', option, allowed)}")
    return bare, options


def whole_number(spec: str, options: dict[str, str], name: str) -> int | None:
    """An option that counts something, from 1 on; None where it is not given.

    >>> whole_number("st:tiny?dim=8", {"dim": "8"}, "dim")
    8
    """
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise EncoderError(f"{spec}: {name} is a whole number from 1 on, not {text!r}.")
    return int(text)
