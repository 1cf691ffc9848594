"""Read new shapes as point clouds: meshes, files of points with normals, and arrays."""

from __future__ import annotations

import io
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from graphbench.benchmarks.inputs import input_files, parts_of_items
from graphbench.benchmarks.points.base import PointCloudBenchmark, cloud_table
from graphbench.benchmarks.points.files import Files, bytes_of_name, shown_name
from graphbench.benchmarks.points.meshes import Floats, MeshChunk, clouds_of_meshes, to_unit_sphere
from graphbench.contracts import GraphTable, InputPart
from graphbench.errors import BadInput, CorruptData, GraphbenchError

MESH, ARRAY = ".off", ".npy"
#: Suffixes of files with a point per line.
TEXTS = (".xyz", ".txt", ".csv", ".pts")
SUFFIXES = (MESH, ARRAY, *TEXTS)
_COLUMNS = 6  # x y z and the normal
_NAMES = ("x", "y", "z", "nx", "ny", "nz")
_LENGTHS = (0.9, 1.1)  # accepted mean length of normals, unlike that of colours or angles
_LARGEST = float(np.finfo(np.float16).max)  # stored in half precision
_REAL = "iuf"  # kinds of dtypes of real numbers
_NUMPY = b"\x93NUMPY"
#: Errors of NumPy on files that are truncated, altered, or not arrays.
_BAD_ARRAY = (ValueError, TypeError, EOFError, OverflowError, SyntaxError, RecursionError, tokenize.TokenError)
_SIZE = 256  # clouds per part: six megabytes of 1,024 points


@dataclass(frozen=True)
class Sampling:
    """Maximum points of a cloud, points `stored` of a mesh (evaluation uses the first ones), and their seed."""

    num_points: int
    stored: int
    seed: int


class ShapeInput(PointCloudBenchmark):
    """Base of benchmarks that classify whole shapes, and read new shapes as in training, but without `rotations`."""

    python_input: ClassVar[str] = "arrays [points, 6], x y z and the normal of each point"

    def sampling(self) -> Sampling:
        """Return the number of points of a shape."""
        return Sampling(self.num_points, self.num_points, 0)

    def read_input(self, source: str, column: str | None = None, size: int = _SIZE) -> Iterator[InputPart]:
        """Read clouds from the files in a folder and its subfolders, or from one file, in the order of their paths.

        Points of a mesh (`.off`) are sampled by area. A file of points has six numbers per point, x y z and the normal
        of length 1: a NumPy array `[points, 6]` (`.npy`), or one line per point (`.xyz`, `.txt`, `.csv`, `.pts`),
        separated by blanks or commas; a header may name the columns in another order, see `read_points`. Clouds larger
        than the benchmark's are sampled; a smaller cloud keeps its size. A file has no `column`.
        """
        if column is not None:
            raise BadInput(f"{self.spec.name} reads a file for each shape, which has no column {column!r}.")
        files, root = input_files(Path(source), SUFFIXES, "shapes")
        names = [file.relative_to(root).as_posix() for file in files]
        frame = pd.DataFrame({"file": list(map(shown_name, names))}, dtype=object)
        read = partial(_read_shape, root, self.sampling())
        return parts_of_items(read, names, frame, size, _table_of, shown_name(f"Points of {source}"), workers=None)

    def read_objects(self, objects: Sequence[Any], size: int = _SIZE) -> Iterator[InputPart]:
        """Read arrays or tensors `[points, 6]`, x y z and the normal of each point, see `read_input`."""
        for number, item in enumerate(objects):
            if not isinstance(item, (np.ndarray, torch.Tensor)):
                raise BadInput(
                    f"{self.spec.name}: input {number} is of type {type(item).__name__}; expected arrays or tensors "
                    "[points, 6], x y z and the normal of each point."
                )
        arrays = [item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else item for item in objects]
        read = partial(_read_array, self.sampling())
        return parts_of_items(read, list(enumerate(arrays)), pd.DataFrame(index=range(len(arrays))), size, _table_of)


#: Points and normals of a shape, each float16 `[points, 3]`, or the problem.
Outcome = tuple[np.ndarray, np.ndarray] | str


def _table_of(clouds: Sequence[tuple[np.ndarray, np.ndarray]]) -> GraphTable:
    return cloud_table([points for points, _ in clouds], [normals for _, normals in clouds], None)


def _read_shape(root: Path, sampling: Sampling, name: str) -> Outcome:
    file = root / name
    try:
        if file.suffix.lower() == MESH:
            chunk = MeshChunk(Files(root), (name,), np.zeros(1, dtype=np.uint8), sampling.stored, sampling.seed)
            clouds = clouds_of_meshes(chunk)
            return clouds.points[0, : sampling.num_points], clouds.normals[0, : sampling.num_points]
        return cloud_of_points(read_points(file), name, sampling)
    except (GraphbenchError, OSError, MemoryError) as error:
        return shown_name(str(error).replace(f"{name} ", "the file ", 1)) or "it needs more memory than available"


def _read_array(sampling: Sampling, job: tuple[int, np.ndarray]) -> Outcome:
    number, values = job
    try:
        return cloud_of_points(values, str(number), sampling)
    except GraphbenchError as error:
        return str(error)


def read_points(file: Path) -> np.ndarray:
    """Read the numbers of a NumPy array or of a text, one row per point.

    The first line of a text may be a header. If it has the names x, y, z, nx, ny and nz, their columns are used in this
    order, wherever they are.

    Raises:
        BadInput: the header names x, y and z, but not all of these names, and not in their places.
        CorruptData: the file is not a table of numbers.
    """
    try:
        return _array(file) if file.suffix.lower() == ARRAY else _table(file.read_text(encoding="utf-8-sig"))
    except BadInput:
        raise
    except _BAD_ARRAY as error:  # UnicodeDecodeError is a ValueError
        reason = str(error).partition(";")[0].partition("\n")[0]
        raise CorruptData(f"the file cannot be read as points ({reason})") from error


def _array(file: Path) -> np.ndarray:
    with file.open("rb") as stream:
        if stream.read(len(_NUMPY)) != _NUMPY:  # np.load would also read an .npz of that name
            raise ValueError("it is not in NumPy's format")
    # Map the file first, so that a wrong size in a damaged header allocates nothing.
    with np.errstate(over="ignore"):
        return np.array(np.load(file, mmap_mode="r", allow_pickle=False))


def _table(text: str) -> np.ndarray:
    text = text.lstrip()
    first = text.partition("\n")[0]
    separator = next((mark for mark in (",", ";") if mark in first), None)
    words = [word.strip(" \"'\r#/").lower() for word in first.lstrip("#/ ").split(separator)]
    header = not any(map(_is_number, words))
    columns = _columns(words) if header else None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # NumPy only warns about a text without numbers
        try:
            values = np.loadtxt(io.StringIO(text), delimiter=separator, skiprows=int(header), usecols=columns, ndmin=2)
        except UserWarning as warning:
            raise ValueError("it holds no numbers") from warning
    return values


def _columns(header: Sequence[str]) -> list[int] | None:
    """Return the positions of the columns x, y, z and of the normal; None if the header does not name them."""
    if set(_NAMES) <= set(header):
        return [header.index(name) for name in _NAMES]
    misplaced = any(name in _NAMES and name != right for name, right in zip_longest(header, _NAMES))
    if misplaced and set(_NAMES[:3]) <= set(header):  # else the header is a remark in words
        raise BadInput(f"the header is {' '.join(header)}; expected {' '.join(_NAMES)}, in any order, or none of them")
    return None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def cloud_of_points(values: np.ndarray, name: str, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Return points and normals `[points, 3]` as the benchmark stores them: centred, with radius 1, float16.

    Larger clouds are sampled with the shape's name as seed.

    Examples:
        >>> corners = np.array([[0, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 1.0]])
        >>> points, normals = cloud_of_points(corners, "line", Sampling(3, 3, 0))
        >>> points[:, 0].tolist(), normals.shape
        ([-1.0, 1.0], (2, 3))
    """
    values = checked_points(values)
    count = len(values)
    if count > sampling.num_points:
        generator = np.random.RandomState([sampling.seed % (1 << 32), *bytes_of_name(name)])
        values = values[np.sort(generator.permutation(count)[: sampling.num_points])]
    return to_unit_sphere(values[:, :3]).astype(np.float16), values[:, 3:].astype(np.float16)


def checked_points(values: np.ndarray) -> Floats:
    """Check points with normals `[points, 6]`, and return them in float64; `BadInput` describes other values."""
    if values.ndim != 2 or values.shape[1] != _COLUMNS or values.dtype.kind not in _REAL:
        raise BadInput(
            f"there are {_describe(values)} instead of six numbers for each point (x y z and the normal, which the "
            "model was trained with)"
        )
    if not len(values):
        raise BadInput("there are no points")
    with np.errstate(over="ignore"):
        values = values.astype(np.float64)
        lengths = np.linalg.norm(values[:, 3:], axis=1)
    if not np.isfinite(values).all():
        raise BadInput("a point or normal is not finite")
    if not _LENGTHS[0] <= lengths.mean() <= _LENGTHS[1] or lengths.max() > _LARGEST:
        raise BadInput(f"columns 4 to 6 are not unit normals: their mean length is {lengths.mean():.4g}")
    if (values[:, :3] == values[0, :3]).all():
        raise BadInput(f"all {len(values):,} points are equal, which is not a shape")
    return values


def _describe(values: np.ndarray) -> str:
    if values.ndim == 2 and values.dtype.kind in _REAL:
        return f"{values.shape[1]}"
    return f"values of shape {list(values.shape)} and type {values.dtype}"
