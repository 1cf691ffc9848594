"""Read a pickled list of graphs, graph by graph, without running code in the file.

LRGB publishes its superpixel graphs as one pickled list per split. COCO-SP's training list takes over 10 GB once it is
unpickled, and `pickle` can neither yield parts nor free them. This module executes the instructions that `pickletools`
decodes, only for plain containers, NumPy arrays and tensors. It yields graphs as they come and frees them.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from graphbench.data.files.foreign import FETCH_AGAIN, foreign, load_tensor_bytes
from graphbench.errors import CorruptData

_KINDS = "biuf"  # booleans, integers and floats, but no Python objects


class _Refused(ValueError):
    """The file needs something that does not occur in a list of graphs."""


def _empty_array(kind: Any, shape: Any, letter: Any) -> np.ndarray:
    """Create the empty array that pickle fills later."""
    if kind is not np.ndarray or tuple(shape) != (0,):
        raise _Refused("an array of an unknown kind")
    return np.empty(0, dtype=np.int8)


def _dtype(name: Any, *flags: Any) -> np.dtype[Any]:
    """Return a little-endian dtype of numbers."""
    dtype = np.dtype(str(name)).newbyteorder("<")
    if dtype.kind not in _KINDS:
        raise _Refused(f"an array of {dtype} instead of numbers")
    return dtype


def _array(buffer: bytes, dtype: np.dtype[Any], shape: Any, order: str) -> np.ndarray:
    """Create an array from a buffer of pickle's protocol 5."""
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


_REBUILD_TENSOR = torch.empty(0).__reduce_ex__(2)[0]
#: Globals that a file may use, under NumPy's old and new modules. All except the class `ndarray` may be called.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _REBUILD_TENSOR,
    ("torch.storage", "_load_from_bytes"): load_tensor_bytes,
    ("collections", "OrderedDict"): OrderedDict,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _empty_array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _array for core in ("core", "_core")},
}
_CALLABLE = [value for value in _ALLOWED.values() if value is not np.ndarray]
_LITERALS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
#: Instructions whose argument is the value itself.
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_VALUES = frozenset(_NUMBERS + _BYTES + _TEXTS)
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT, _GET = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")
_IGNORED = ("PROTO", "FRAME")


class _Machine:
    """A pickle machine for one list, which does not keep its items."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.memoised = 0
        self.fetched: set[int] = set()
        self.done = False
        self._handlers: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self.marks.append(len(self.stack)),
            "EMPTY_LIST": lambda _: self.stack.append([]),
            "EMPTY_DICT": lambda _: self.stack.append({}),
            "TUPLE": lambda _: self.stack.append(tuple(self._above_mark())),
            "MEMOIZE": lambda _: self._remember(self.memoised),
            "GLOBAL": lambda text: self._global(*text.split(" ", 1)),
            "STACK_GLOBAL": lambda _: self._global(*self._top(2)),
            "REDUCE": lambda _: self._call(*self._top(2)),
            "BUILD": lambda _: self._fill(self.stack.pop()),
            "STOP": lambda _: self._stop(),
        }

    def run(self, name: str, argument: Any) -> list[Any]:
        """Execute one instruction and return the items that it adds to the outermost list."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _LITERALS:
            self.stack.append(_LITERALS[name])
        elif name in _TUPLES:
            self.stack.append(tuple(self._top(_TUPLES[name])))
        elif name in _GET:
            self.fetched.add(argument)
            self.stack.append(self.memo[argument])
        elif name in _PUT:
            self._remember(argument)
        elif name in ("APPEND", "APPENDS"):
            return self._append(self._top(1) if name == "APPEND" else self._above_mark())
        elif name in self._handlers:
            self._handlers[name](argument)
        elif name not in _IGNORED:
            raise _Refused(f"the instruction {name}")
        return []

    def _top(self, count: int) -> list[Any]:
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def _above_mark(self) -> list[Any]:
        return self._top(len(self.stack) - self.marks.pop())

    def _append(self, items: list[Any]) -> list[Any]:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise _Refused(f"an append to a {type(target).__name__}")
        if len(self.stack) > 1:
            target.extend(items)
            return []
        # after a thousand graphs all shared objects (globals, dtypes, constants) have been read; others are not reused
        self.memo = {
            place: value
            for place, value in self.memo.items()
            if place in self.fetched
            or isinstance(value, str | np.dtype)
            or any(value is shared for shared in (target, *_ALLOWED.values()))
        }
        return items

    def _remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]
        self.memoised += 1

    def _global(self, module: str, name: str) -> None:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        self.stack.append(_ALLOWED[module, name])

    def _call(self, function: Any, arguments: Any) -> None:
        if not any(function is allowed for allowed in _CALLABLE):
            raise _Refused(f"a call of {type(function).__name__}")
        self.stack.append(function(*arguments))

    def _fill(self, state: Any) -> None:
        """Fill the array on top of the stack; a dtype needs no state."""
        target = self.stack[-1]
        if isinstance(target, np.dtype) and state[1] in ("<", "|"):
            return
        if not isinstance(target, np.ndarray) or not isinstance(state[2], np.dtype) or not isinstance(state[4], bytes):
            raise _Refused(f"a state of {type(target).__name__}")
        target.__setstate__(state)

    def _stop(self) -> None:
        if len(self.stack) != 1 or not isinstance(self.stack[0], list):
            raise _Refused("no single list")
        self.done = True


def read_pickled_graphs(path: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the tuples of a pickled list, with about a thousand of them in memory.

    Tensors, NumPy arrays of numbers, numbers, strings, bytes, lists and tuples in protocols 3 to 5 of `pickle` are
    supported; everything else is refused before anything is called.
    """
    with path.open("rb") as file:
        yield from _graphs(path, file)


def _graphs(path: Path, file: BinaryIO) -> Iterator[tuple[Any, ...]]:
    machine = _Machine()
    instructions = pickletools.genops(file)
    while not machine.done:
        with foreign(path, FETCH_AGAIN):
            try:
                opcode, argument, _ = next(instructions)
                items = machine.run(opcode.name, argument)
                if not all(isinstance(item, tuple) for item in items):
                    raise _Refused("a list of other objects than tuples")
            except _Refused as error:
                raise CorruptData(f"{path}: holds {error}, which no list of graphs needs. Nothing was run.") from error
            except StopIteration as error:
                raise CorruptData(f"{path} ends before its list does. {FETCH_AGAIN}") from error
        yield from items
