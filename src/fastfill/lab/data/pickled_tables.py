"""Reading the tables of a `cifar-100-python` file without executing anything.

The published files are Python pickles, and unpickling can run any code. `pickletools.genops`
only *names* the instructions of such a file; the small machine here carries out the few that
build dicts, lists, numbers, texts and byte arrays. A global name is kept as the text it is and
never imported, and whatever else a file asks for is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastfill.errors import FileError, some
from fastfill.lab.data.image_sets import Pixels

_ARRAY = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_NAMES = (*_ARRAY, "numpy ndarray", "numpy dtype")


class _Name(str):
    """A global name that the file mentions: a text, never the thing of that name."""


class _Bytes:
    """A byte array that is being described: its shape and its content come later."""

    def __init__(self) -> None:
        self.value: Pixels | None = None


class _Mark:
    pass


def read_tables(path: Path) -> dict[str, Any]:
    """The dict in the file; values are numbers, texts, lists and uint8 arrays.

    Raises `FileError` for a file of any other content, naming the instruction it holds.
    """
    machine = _Machine(path)
    try:
        data = path.read_bytes()
        for opcode, argument, _ in pickletools.genops(data):
            machine.step(opcode.name, argument)
    except FileError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise FileError(
            f"{path}: not a cifar-100-python table ({error}). Download the archive again, "
            "or use the binary version of CIFAR-100."
        ) from error
    return machine.result()


class _Machine:
    """Stack, memo and the instructions that the published files use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.simple: dict[str, Callable[[], Any]] = {
            "MARK": _Mark, "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
            "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
        }  # fmt: skip

    def result(self) -> dict[str, Any]:
        value = self.stack[-1] if self.stack else None
        if not isinstance(value, dict):
            raise FileError(f"{self.path}: holds a {type(value).__name__}, not a dict of tables.")
        return {_text(key): _finished(item) for key, item in value.items()}

    def step(self, name: str, argument: Any) -> None:
        if name in ("PROTO", "FRAME", "STOP"):
            return
        if name in self.simple:
            self.stack.append(self.simple[name]())
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[int(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[int(argument)])
        elif name.startswith(("BININT", "INT", "LONG", "SHORT_BIN", "BINSTRING", "BINBYTES",
                              "BINUNICODE", "UNICODE", "STRING")):  # fmt: skip
            self.stack.append(argument)
        elif name == "GLOBAL":
            self.stack.append(self._name(str(argument)))
        elif name == "STACK_GLOBAL":
            attribute, module = self.stack.pop(), self.stack.pop()
            self.stack.append(self._name(f"{module} {attribute}"))
        else:
            self._compose(name)

    def _compose(self, name: str) -> None:
        if name in ("SETITEM", "SETITEMS"):
            items = self._pop_items(2 if name == "SETITEM" else None)
            self.stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name in ("APPEND", "APPENDS"):
            items = self._pop_items(1 if name == "APPEND" else None)
            self.stack[-1].extend(items)
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            self.stack.append(tuple(self._pop_items(int(name[5:]) if name[5:] else None)))
        elif name == "REDUCE":
            arguments, called = self.stack.pop(), self.stack.pop()
            self.stack.append(self._reduce(called, arguments))
        elif name == "BUILD":
            state = self.stack.pop()
            self._build(self.stack[-1], state)
        else:
            raise self._refuse(f"the instruction {name}")

    def _pop_items(self, count: int | None) -> list[Any]:
        """The last items on the stack: so many, or all above the mark."""
        if count is None:
            at = max(i for i, item in enumerate(self.stack) if isinstance(item, _Mark))
            items = self.stack[at + 1 :]
            del self.stack[at:]
        else:
            items = self.stack[-count:]
            del self.stack[-count:]
        return items

    def _name(self, name: str) -> _Name:
        if name not in _NAMES:
            raise self._refuse(f"{name.replace(' ', '.')}, which is code")
        return _Name(name)

    def _reduce(self, called: Any, arguments: Any) -> Any:
        if called in _ARRAY:
            return _Bytes()
        if called == "numpy dtype":
            if _text(arguments[0]) not in ("u1", "|u1", "uint8"):
                raise self._refuse(f"numbers of type {_text(arguments[0])}")
            return _Name("uint8")
        raise self._refuse(f"a call of {called}")

    def _build(self, target: Any, state: Any) -> None:
        if isinstance(target, _Bytes):
            _, shape, _, fortran, data = state
            raw = data if isinstance(data, bytes) else str(data).encode("latin-1")
            flat = np.frombuffer(raw, np.uint8)
            target.value = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
        elif target != "uint8":
            raise self._refuse("a state for something that is no array")

    def _refuse(self, what: str) -> FileError:
        return FileError(
            f"{self.path}: asks for {what}, so it is not a published cifar-100-python file; "
            "it was not loaded. Use the original archive or the binary version."
        )


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _finished(value: Any) -> Any:
    if isinstance(value, _Bytes):
        if value.value is None:
            raise FileError("An array without content; the file is damaged.")
        return value.value
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [_text(item) for item in value]
    return value


def table(tables: dict[str, Any], key: str, path: Path) -> Any:
    """One entry, or an error that names what there is."""
    if key not in tables:
        raise FileError(f"{path}: has no table {key!r}, only {some(sorted(tables))}.")
    return tables[key]
