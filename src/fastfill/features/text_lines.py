"""Text files line by line: UTF-8, in bounded memory, with errors that name the file and the line.

Only a line feed ends a line. `str.splitlines` also breaks at characters such as U+2028, which may
stand in the middle of a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fastfill.errors import FileError

_MARK = b"\xef\xbb\xbf"  # byte order mark, which some editors put at the start


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line that is not blank, without its end.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = file.write_text("one\\n\\nthree")
    >>> list(read_lines(file))
    [(1, 'one'), (3, 'three')]
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = _decoded(line.removeprefix(_MARK) if number == 1 else line, path, number)
                if text.strip():
                    yield number, text.rstrip("\r\n")
    except FileNotFoundError:
        raise FileError(f"{path}: no such file. Check the path.") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path}: line {number} cannot be read as text ({error.reason}). Write it in UTF-8."
        ) from None
