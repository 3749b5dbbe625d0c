"""Writing files whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastfill.errors import FileError
from fastfill.features.sources import Source


def check_target(path: Source) -> Path:
    """A path that a file can be written to; worth knowing before hours of work."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"{target}: the folder {target.parent} does not exist. Create it first.")
    if target.is_dir():
        raise FileError(f"{target}: is a folder. Name a file in it.")
    return target


@contextmanager
def replacing(path: Source) -> Iterator[Path]:
    """Write to a temporary neighbour that takes the place of `path` only when all went well.

    >>> import tempfile; target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = check_target(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except OSError as error:
        raise FileError(
            f"{target}: cannot be written ({error.strerror or error}). "
            "Check the disk and its permissions."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
