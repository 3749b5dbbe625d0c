"""About how many tokens a text is, where nobody has counted them."""

from __future__ import annotations

ASCII_OF_A_TOKEN = 4  # characters
BYTES_OF_A_TOKEN = 3  # of everything else, in UTF-8: one character of Chinese, Japanese, Korean


def rough_tokens(item: str | bytes) -> float:
    """A guess, rather too high than too low: vocabularies know English best.

    >>> rough_tokens("a red bicycle..."), rough_tokens("赤い自転車")
    (4.0, 5.0)
    """
    if isinstance(item, bytes) or item.isascii():
        return len(item) / ASCII_OF_A_TOKEN
    plain = len(item.encode("ascii", "ignore"))
    other = len(item.encode("utf-8", "surrogatepass")) - plain
    return plain / ASCII_OF_A_TOKEN + other / BYTES_OF_A_TOKEN
