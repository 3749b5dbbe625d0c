"""A folder of files, local or in object storage, whose files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from fastfill.errors import FileError
from fastfill.features import replacing

T = TypeVar("T")

AT_ONCE = 16  # files read at the same time: in object storage each takes a while
SETTINGS = ("AWS_", "AZURE_", "GOOGLE_")  # how the names of such variables begin


def _filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL or a path, and the path in it."""
    if "://" in url:
        return _remote(url, _storage_settings())
    return _local(), os.path.abspath(url)  # noqa: PTH100 - and without ..


@lru_cache(maxsize=1)
def _local() -> Any:
    import pyarrow.fs

    return pyarrow.fs.LocalFileSystem()


def _storage_settings() -> tuple[tuple[str, str], ...]:
    """What the environment says of object storage: with other settings a URL is another place."""
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith(SETTINGS)))


@lru_cache(maxsize=16)
def _remote(url: str, settings: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """Made once for each URL and these `settings`, which pyarrow reads from the environment."""
    import pyarrow.fs

    with folder_errors(url):
        system, path = pyarrow.fs.FileSystem.from_uri(url)
        return system, str(path)


@contextmanager
def folder_errors(url: str) -> Iterator[None]:
    """What a file system raises, as one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(f"{url}: no such file or folder. Check the path.") from None
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds too
        if isinstance(error, FileError):
            raise
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise FileError(
            f"{url}: cannot be read or written ({text}). Check its address, and the credentials "
            "in the environment."
        ) from error


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or of object storage (`s3://BUCKET/FOLDER`).

    >>> import tempfile
    >>> folder = Folder(tempfile.mkdtemp()).child("finished")
    >>> folder.write("a.json", b"{}")
    >>> folder.names(), folder.read("a.json")
    ({'a.json'}, b'{}')
    """

    url: str
    below: str = ""  # the way from the URL to the folder

    @property
    def system(self) -> Any:
        """The pyarrow file system."""
        return _filesystem(self.url)[0]

    @property
    def path(self) -> str:
        """The folder in that file system."""
        return "/".join(filter(None, [_filesystem(self.url)[1].rstrip("/"), self.below]))

    @property
    def address(self) -> str:
        """The same for all ways to write it: the whole path of a folder on this machine."""
        whole = f"{self.url.rstrip('/')}/{self.below}".rstrip("/")
        return self.path if self.is_local else whole

    @property
    def is_local(self) -> bool:
        """Is it on this machine?"""
        return bool(self.system.type_name == "local")

    def child(self, name: str) -> Folder:
        """A folder inside."""
        return replace(self, below="/".join(filter(None, [self.below, name])))

    def names(self) -> set[str]:
        """The files that are there; none where there is no such folder yet."""
        return {info.base_name for info in self.files(deep=False)}

    def files(self, deep: bool = True) -> list[Any]:
        """Path, size and time of every file, by path."""
        import pyarrow.fs as fs

        selector = fs.FileSelector(self.path, recursive=deep, allow_not_found=True)
        with folder_errors(self.url):
            infos = self.system.get_file_info(selector)
        return sorted((i for i in infos if i.type == fs.FileType.File), key=lambda i: i.path)

    def open(self, name: str) -> Any:
        """A file to be read at any place."""
        with folder_errors(f"{self.url}/{name}"):
            return self.system.open_input_file(f"{self.path}/{name}")

    def read(self, name: str) -> bytes:
        """A whole file."""
        with self.open(name) as file:
            return bytes(file.read())

    def write(self, name: str, data: Any) -> None:
        """Write a file; it appears only when it is whole, as objects in object storage do."""
        with folder_errors(f"{self.url}/{name}"):
            if self.is_local:
                Path(self.path).mkdir(parents=True, exist_ok=True)
                with replacing(f"{self.path}/{name}") as temporary:
                    temporary.write_bytes(data)
                return
            with self.system.open_output_stream(f"{self.path}/{name}") as stream:
                stream.write(data)

    def remove(self, name: str) -> None:
        """Take one file away."""
        with folder_errors(f"{self.url}/{name}"):
            self.system.delete_file(f"{self.path}/{name}")

    def clear(self) -> None:
        """Take away the folder and all that is in it."""
        with folder_errors(self.url):
            if self.files():
                self.system.delete_dir(self.path)


def read_at_once(read: Callable[[str], T], names: Sequence[str]) -> list[T]:
    """What is read of many small files, in their order.

    >>> read_at_once(len, ["a.json", "bc.json"])
    [6, 7]
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(read, names))
