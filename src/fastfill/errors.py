"""What can go wrong, as one tree. Catch `FastFillError` to catch all of it.

FastFillError
├── InputError                what was given cannot be used (also a ValueError)
│   ├── ShapeError            not 2-D, empty, rows or dimensions that do not fit together
│   ├── NonFiniteError        NaN or infinite numbers
│   ├── ZeroVectorError       vectors without a direction, under cosine
│   ├── IdError               duplicate ids, ids that do not match
│   ├── LabelError            labels missing, or outside the classifier's classes
│   ├── OrderError            an order that is no permutation, a policy that cannot be used
│   └── FileError             missing, truncated or of another format
│       └── ArtefactError     a saved alignment that cannot be read
├── TrainingError             the map could not be learned
├── EngineError               workers were lost again and again
├── MissingExtraError         an optional dependency is not installed (also an ImportError)
├── StoreError                the vector database refused or lost something
├── EncoderError              the new model failed or returned something unusable
│   └── EncoderBusyError      it is busy (HTTP 429, 503): wait and try again
└── MigrationError            the migration's state does not allow it
    └── RolledBackError       somebody has rolled it back while a run worked on it

Every message is one or two sentences: what is wrong, where (file, row, shape, id), and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FastFillError(Exception):
    """Base of all errors that FastFill raises on purpose."""


class InputError(FastFillError, ValueError):
    """What was given cannot be used."""


class ShapeError(InputError):
    """Not 2-D, empty, or rows or dimensions that do not fit together."""


class NonFiniteError(InputError):
    """NaN or infinite numbers."""


class ZeroVectorError(InputError):
    """Vectors without a direction, where the distance is cosine."""


class IdError(InputError):
    """Duplicate ids, or ids that do not match."""


class LabelError(InputError):
    """Labels that are missing, or outside the classifier's classes."""


class OrderError(InputError):
    """An order that is no permutation, or a policy that cannot be used here."""


class FileError(InputError):
    """A file that is missing, truncated or of another format."""


class ArtefactError(FileError):
    """A saved alignment that cannot be read."""


class TrainingError(FastFillError):
    """The map could not be learned."""


class EngineError(FastFillError):
    """The workers of an engine were lost again and again."""


class MissingExtraError(FastFillError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed: "
            f"run pip install 'fastfill[{extra}]'."
        )


class StoreError(FastFillError):
    """The vector database refused or lost something."""


class EncoderError(FastFillError):
    """The new model failed or returned something unusable."""


class EncoderBusyError(EncoderError):
    """The new model's server is busy."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds, where the server says


class MigrationError(FastFillError):
    """The migration's state does not allow it."""


class RolledBackError(MigrationError):
    """Somebody has rolled the migration back while a run worked on it."""


def some(items: Iterable[object], most: int = 5) -> str:
    """The first few of many things, for a message.

    >>> some([3, 1, 4, 1, 5, 9])
    '3, 1, 4, 1, 5, … (6 in all)'
    """
    shown = [str(item) for item in items]
    if len(shown) <= most:
        return ", ".join(shown)
    return f"{', '.join(shown[:most])}, … ({len(shown)} in all)"


def unknown_choice(kind: str, given: object, choices: Sequence[str]) -> str:
    """A sentence that names what was given, what it may have meant, and all that there is.

    >>> unknown_choice("method", "rigde", ["ridge", "kernel"])
    "Unknown method 'rigde': did you mean 'ridge'? Use one of ridge, kernel."
    >>> unknown_choice("method", "magic", ["ridge", "kernel"])
    "Unknown method 'magic': use one of ridge, kernel."
    """
    from difflib import get_close_matches

    near = get_close_matches(str(given), choices, n=1)
    meant = f"did you mean {near[0]!r}? Use" if near else "use"
    return f"Unknown {kind} {given!r}: {meant} one of {', '.join(choices)}."
