"""The authors' text files of TSP: an instance a line, the points and then the tour.

A line is `x1 y1 x2 y2 ... output i1 i2 ... in i1`, with points numbered from 1 and the first one of the tour repeated
at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graphbench.errors import CorruptData, MissingData

_NAMES = ("TSP_{}.txt", "tsp50-500_{}.txt")
_WORD = "output"


def text_file(folder: Path, split: str) -> Path:
    """Return the file of a split.

    Raises:
        MissingData: it is not there; says what it is called and where it belongs.
    """
    for name in _NAMES:
        if (path := folder / name.format(split)).is_file():
            return path
    names = " or ".join(name.format(split) for name in _NAMES)
    raise MissingData(
        f"TSP, source=text: {names} is not in {folder}. Put the files of the authors' archive TSP there (their "
        "repository benchmarking-gnns says from where), or take source=pyg or source=generated."
    )


def read_tours(file: Path, fewest: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield points `[n, 2]` and the order of the tour `[n]`, from 0, of every line.

    Args:
        file: of a split.
        fewest: points that an instance has at least.

    Raises:
        CorruptData: a line is something else; names it.
    """
    with file.open(encoding="ascii", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield _parsed(line.split(), fewest)
                except ValueError as error:
                    raise CorruptData(f"{file}, line {number}: {error}.") from error


def _parsed(words: list[str], fewest: int) -> tuple[np.ndarray, np.ndarray]:
    if words.count(_WORD) != 1:
        raise ValueError(f"expected the word {_WORD!r} once, between points and tour")
    middle = words.index(_WORD)
    points = np.array(words[:middle], dtype=np.float64)
    tour = np.array(words[middle + 1 :], dtype=np.int64) - 1
    if len(points) % 2 or len(points) < 2 * fewest:
        raise ValueError(f"{len(points)} coordinates before {_WORD!r} are no {fewest} or more points of two each")
    points = points.reshape(-1, 2)
    if not np.isfinite(points).all():
        raise ValueError("a coordinate is not finite")
    if len(tour) != len(points) + 1 or tour[0] != tour[-1] or set(tour.tolist()) != set(range(len(points))):
        raise ValueError(f"the tour does not visit each of {len(points)} points once and end where it began")
    return points, tour[:-1]
