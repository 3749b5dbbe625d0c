"""`replacing`: a file appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastfill.errors import FileError
from fastfill.features import check_target, replacing


def write_half(path: Path, error: BaseException) -> None:
    """Write something, then fail."""
    with replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_nothing_half_written(
    error: type[BaseException], tmp_path: Path
) -> None:
    """After an error or Ctrl-C no file has appeared, and no temporary one is left."""
    with pytest.raises(error):
        write_half(tmp_path / "a.npz", error())
    assert list(tmp_path.iterdir()) == []


def test_an_exception_keeps_the_file_that_was_there(tmp_path: Path) -> None:
    """A failed rewrite leaves the earlier file as it was."""
    (tmp_path / "a.npz").write_bytes(b"earlier")
    with pytest.raises(RuntimeError):
        write_half(tmp_path / "a.npz", RuntimeError())
    assert (tmp_path / "a.npz").read_bytes() == b"earlier"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_file_is_not_there_before_the_end(tmp_path: Path) -> None:
    """Others see the file only when it is whole."""
    with replacing(tmp_path / "a.npz") as temporary:
        temporary.write_bytes(b"whole")
        assert not (tmp_path / "a.npz").exists()
    assert (tmp_path / "a.npz").read_bytes() == b"whole"


def test_targets_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    """A missing folder and a folder in the file's place are refused before any work."""
    with pytest.raises(FileError, match=r"the folder .*missing does not exist\. Create it first"):
        check_target(tmp_path / "missing" / "a.npz")
    with pytest.raises(FileError, match=r"is a folder\. Name a file in it"):
        check_target(tmp_path)


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """An error of the system while writing names the file and the system's reason."""
    with pytest.raises(FileError, match=r"a\.npz: cannot be written \(No space left on device\)"):
        write_half(tmp_path / "a.npz", OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []
