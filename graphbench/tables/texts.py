"""Store many texts in little memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np


class Texts(Sequence[str]):
    """A sequence of texts as one array of bytes: each takes 8 bytes and its UTF-8; a `str` in a list takes 57 more.

    Examples:
        >>> texts = Texts(["C", "CCO"])
        >>> texts.extend(["O"])
        >>> texts[1], texts[1:], len(texts), texts == ["C", "CCO", "O"]
        ('CCO', ['CCO', 'O'], 3, True)
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bytes: Any = bytearray()
        self._ends: Any = array("q", [0])
        self.extend(texts)

    @classmethod
    def of_arrays(cls, data: np.ndarray, ptr: np.ndarray) -> Texts:
        """Use the two arrays that `data` and `ptr` return, without a copy; nothing can be added afterwards."""
        texts = cls()
        texts._bytes, texts._ends = data, ptr
        return texts

    @property
    def data(self) -> np.ndarray:
        """Return all texts, one after the other, uint8 `[bytes]`."""
        return np.frombuffer(self._bytes, dtype=np.uint8) if len(self._bytes) else np.zeros(0, np.uint8)

    @property
    def ptr(self) -> np.ndarray:
        """Return the first byte of each text, and the end of the last, int64 `[texts + 1]`."""
        return np.frombuffer(self._ends, dtype=np.int64)

    def extend(self, texts: Iterable[str]) -> None:
        """Append texts."""
        for text in texts:
            self._bytes += text.encode("utf-8")
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        data = memoryview(self._bytes)
        return (str(data[start:end], "utf-8") for start, end in pairwise(self._ends.tolist()))

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[row] for row in range(*place.indices(len(self)))]
        row = range(len(self))[place]
        return str(memoryview(self._bytes)[self._ends[row] : self._ends[row + 1]], "utf-8")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]
