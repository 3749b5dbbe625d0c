"""The guess of how many tokens a text is."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fastfill.features.text_tokens import rough_tokens

ANY = st.text(st.characters(exclude_categories=[]))  # halves of surrogate pairs too


@given(ANY, ANY)
def test_a_guess_is_that_of_the_parts_of_a_text(first: str, second: str) -> None:
    """ASCII counts a quarter, each other character by its bytes in UTF-8, anywhere."""
    each = [
        1 / 4 if ord(c) < 128 else len(c.encode("utf-8", "surrogatepass")) / 3
        for c in first + second
    ]
    assert math.isclose(rough_tokens(first + second), sum(each), abs_tol=1e-9)
    assert rough_tokens(first + second) >= len(first + second) / 4


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF)))
def test_a_chinese_character_is_a_token(text: str) -> None:
    """Where a quarter of one would be a request four times as long as it may be."""
    assert math.isclose(rough_tokens(text), len(text))
