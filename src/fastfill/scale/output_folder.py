"""The folder that a job writes: which job it belongs to, and which of its files are finished.

`_fastfill.json` is there before the first file, and lists the files when all of them are. A folder
that holds anything else is not written to, and one that is not finished is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastfill.errors import FileError, some
from fastfill.scale.folders import Folder

MANIFEST = "_fastfill.json"  # readers of a data set pass over names that begin with _
OWN = re.compile(r"-\d{5}-[0-9a-f]{20}\.parquet$")  # how names of files end that a job writes


def is_data(path: str) -> bool:
    """Is it a file of a data set, and not hidden?

    >>> is_data("day=1/a.parquet"), is_data("_pieces/a.parquet"), is_data("a.json")
    (True, False, False)
    """
    hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
    return path.endswith((".parquet", ".parq")) and not hidden


@dataclass(frozen=True)
class OutputFolder:
    """An output folder as one job sees it.

    >>> import tempfile
    >>> folder = Folder(tempfile.mkdtemp())
    >>> OutputFolder(folder, Folder("gallery"), "transform of vector").claim()
    >>> folder.write("a-00000-0123456789abcdef0123.parquet", b"the first finished piece")
    >>> OutputFolder(folder, Folder("gallery"), "order by vector").claim()
    Traceback (most recent call last):
        ...
    fastfill.errors.FileError: ...: belongs to another job ...
    """

    folder: Folder
    source: Folder
    job: str

    def claim(self) -> None:
        """Take an empty folder, or go on in one of this job; refuse all others."""
        self._check_apart()
        manifest, found = read_manifest(self.folder), data_files(self.folder)
        if manifest is None or not found:
            self._check_empty(found)
            self._write([], None)
            return
        others = manifest.get("job"), manifest.get("input")
        if others != (self.job, self.source.address):
            job, source = (other or "unknown" for other in others)
            raise FileError(
                f"{self.folder.url}: belongs to another job ({job}, from {source}), not to this "
                f"one ({self.job}, from {self.source.address}). Name another folder with -o, or "
                "take this one away."
            )

    def finish(self, files: Sequence[str], rows: int) -> None:
        """List the files in order; those of other alignments or former inputs go."""
        mine = {name for name in self.folder.names() if OWN.search(name)}
        for name in mine - set(files):
            self.folder.remove(name)
        self._write(files, rows)

    def _write(self, files: Sequence[str], rows: int | None) -> None:
        manifest = {
            "input": self.source.address, "job": self.job, "rows": rows, "files": list(files)
        }  # fmt: skip
        self.folder.write(MANIFEST, json.dumps(manifest, indent=1).encode())

    def _check_apart(self) -> None:
        inner, outer = f"{self.folder.address}/", f"{self.source.address}/"
        if inner.startswith(outer) or outer.startswith(inner):
            raise FileError(
                f"{self.folder.url}: the results of {self.source.url} cannot be written into the "
                "same folder, nor one into the other. Name another folder with -o."
            )

    def _check_empty(self, found: Sequence[str]) -> None:
        if found:
            raise FileError(
                f"{self.folder.url}: has files that no job of FastFill has listed ({some(found)}). "
                "Name an empty folder with -o, or take them away."
            )


def data_files(folder: Folder) -> list[str]:
    """The paths of all files of a data set below a folder."""
    start = len(folder.path) + 1
    return [path for path in (info.path[start:] for info in folder.files()) if is_data(path)]


def read_manifest(folder: Folder) -> dict[str, Any] | None:
    """What a job has written about its folder; None where none has."""
    if MANIFEST not in folder.names():
        return None
    try:
        manifest = dict(json.loads(folder.read(MANIFEST)))
        list(manifest["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"{folder.url}/{MANIFEST}: does not list the files of the folder. Take the folder "
            "away, and run the job again that wrote it."
        ) from error
    return manifest


def finished_files(folder: Folder, present: Sequence[str]) -> list[str] | None:
    """The files of a folder that a job has written, in the order of its input; None of others.

    Refused where files are missing or not listed: what was read would not be the data set.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    listed = [str(name) for name in manifest["files"]]
    if manifest.get("rows", 0) is None:
        raise FileError(
            f"{folder.url}: is not finished ({manifest.get('job')}). Run the command again that "
            "writes it."
        )
    missing, more = sorted(set(listed) - set(present)), sorted(set(present) - set(listed))
    if missing:
        raise FileError(
            f"{folder.url}: lacks {some(missing)}, which {MANIFEST} lists. Run the command again "
            "that writes it."
        )
    if more:
        raise FileError(
            f"{folder.url}: has {some(more)}, which {MANIFEST} does not list: a job has not "
            "finished here, or they are not its own. Run that job again, or take them away."
        )
    return listed
