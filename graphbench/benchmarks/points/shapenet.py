"""ShapeNetPart: point-wise parts of objects of 16 categories, and the reader of their text files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from graphbench.benchmarks.inputs import input_files, parts_of_items
from graphbench.benchmarks.points import specs
from graphbench.benchmarks.points.base import WHOLE, PointCloudBenchmark, Rotations
from graphbench.benchmarks.points.files import Files, bytes_of_name, find_files, shown_name
from graphbench.benchmarks.points.inputs import ARRAY, TEXTS, checked_points, read_points
from graphbench.benchmarks.points.meshes import parse_numbers, to_unit_sphere
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import GraphTable, InputPart
from graphbench.contracts.spec import SPLITS
from graphbench.contracts.table import GRAPH, NODE, Column
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import BadInput, CorruptData, GraphbenchError, MissingData, check_choice

FOLDER = "shapenetcore_partanno_segmentation_benchmark_v0_normal"
ARCHIVE = f"{FOLDER}.zip"
ADDRESS = f"https://shapenet.cs.stanford.edu/media/{ARCHIVE}"
_CHUNK = 64  # shapes per job
#: Maps a category to the folder of its shapes, in the order of the published part numbers.
FOLDERS = {
    "Airplane": "02691156",
    "Bag": "02773838",
    "Cap": "02954340",
    "Car": "02958343",
    "Chair": "03001627",
    "Earphone": "03261776",
    "Guitar": "03467517",
    "Knife": "03624134",
    "Lamp": "03636649",
    "Laptop": "03642806",
    "Motorbike": "03790512",
    "Mug": "03797390",
    "Pistol": "03948459",
    "Rocket": "04099429",
    "Skateboard": "04225987",
    "Table": "04379243",
}
#: Number of parts of each category; part numbers are consecutive over all categories.
PARTS = (4, 2, 2, 4, 4, 3, 3, 2, 4, 2, 6, 2, 3, 3, 3, 3)
CATEGORY_FILE = "synsetoffset2category.txt"
SPLIT_FILES = {split: f"train_test_split/shuffled_{split}_file_list.json" for split in SPLITS}
_COLUMNS = 7  # x y z, normal, part


class ShapeNetPart(PointCloudBenchmark):
    """Part of each point of 16,881 shapes of 16 categories, with 50 parts in total and 2,500 points per shape.

    The published points with normals ("A scalable active framework for region annotation", Yi et al., SIGGRAPH Asia
    2016) are all stored. Training samples 2,500 points per shape at each step, evaluation always uses the same ones. A
    smaller shape repeats its points in training and keeps its size in evaluation. The category is an input. Scores are
    IoU of parts, by shape (`instance_IoU`) and by category (`class_IoU`); see
    `graphbench.training.tasks.metrics.PartIoU`. y is upright.

    Most released code trains on both training and validation shapes, and selects the checkpoint on the test shapes, as
    with `trainval`.

    Put the archive or its unpacked folder into `root`/ShapeNetPart (also as `raw`, where PyG puts it).

    Args:
        num_points: points per shape.
        rotations, scaling, rotation_seed: see `PointCloudBenchmark`.
        data_seed: seed of the order of points, which selects those in evaluation.
        trainval: also train on the validation shapes, and validate on the test shapes.
        options: see `PointCloudBenchmark`.
    """

    spec = specs.SHAPE_NET_PART
    upright = 1

    def __init__(
        self,
        num_points: int = 2_500,
        rotations: Rotations = "none",
        scaling: tuple[float, float] = (0.6, 1.4),
        rotation_seed: int = 0,
        data_seed: int = 0,
        trainval: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(num_points, rotations, scaling, rotation_seed, **options)
        check_choice("trainval", trainval, (True, False))
        self.data_seed, self.trainval = data_seed, trainval
        if trainval:
            spec = type(self).spec
            train, val, test = spec.split_sizes or (0, 0, 0)
            extra = {**spec.extra, "validation": "test"}
            self.spec = replace(spec, split_sizes=(train + val, test, test), disk_mb=None, extra=extra)

    def read_input(self, source: str, column: str | None = None, size: int = 64) -> Iterator[InputPart]:
        """Read shapes from files in the folder of their category, such as `Chair/mine.txt` or `03001627/mine.txt`.

        A point is a line (`.txt`, `.xyz`, `.csv`, `.pts`) or a row of an array (`.npy`): x y z and the normal of length
        1; a seventh number, the part in the published files, is skipped. All points are predicted, in the order of the
        file; a shape is not rotated. A file has no `column`.
        """
        if column is not None:
            raise BadInput(f"{self.spec.name} reads a file for each shape, which has no column {column!r}.")
        files, root = input_files(Path(source), (ARRAY, *TEXTS), "shapes")
        frame = pd.DataFrame({"file": [shown_name(file.relative_to(root).as_posix()) for file in files]}, dtype=object)
        return parts_of_items(_read_shape, files, frame, size, _table_of)

    def source_key(self) -> dict[str, Any]:
        """Return the published data set and the order of points: a prepared store needs no files of it."""
        return {"source": ARCHIVE, "data_seed": self.data_seed} | ({"trainval": True} if self.trainval else {})

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Read the shapes on all cores."""
        folder = Path(self.root, "ShapeNetPart")
        files = find_files(folder, ARCHIVE, FOLDER, CATEGORY_FILE)
        if files is None:
            raise MissingData(
                f"ShapeNetPart is missing. Put this file into {folder}:\n"
                f"  {ARCHIVE} from {ADDRESS} (or the folder {FOLDER} in it)\n"
                "If that server is down, the same archive is on kaggle.com as mitkir/shapenet."
            )
        lists = shape_lists(files)
        if self.trainval:
            lists["train"], lists["val"] = lists["train"] + lists["val"], lists["test"]
        return {split: self._read(files, split, names) for split, names in lists.items()}

    def _read(self, files: Files, split: str, names: list[str]) -> Iterator[GraphTable]:
        jobs = [
            ShapeChunk(files, tuple(names[start : start + _CHUNK]), self.data_seed)
            for start in range(0, len(names), _CHUNK)
        ]
        unit = f"chunks of {_CHUNK} shapes"
        for shapes in map_in_processes(read_shapes, jobs, len(jobs), f"Reading ShapeNetPart, {split}", unit=unit):
            yield _to_table(shapes)


def _to_table(shapes: Shapes) -> GraphTable:
    columns = {
        "pos": (shapes.points, NODE),
        "x_dense": (shapes.normals, NODE),
        "x": (np.repeat(shapes.categories, shapes.sizes)[:, None], NODE),
    } | ({"y": (shapes.parts[:, None], NODE)} if len(shapes.parts) else {})
    return make_table(columns, shapes.sizes)


def _table_of(clouds: Sequence[tuple[np.ndarray, int]]) -> GraphTable:
    points = np.concatenate([values for values, _ in clouds] or [np.zeros((0, 6))])
    shapes = Shapes(
        points[:, :3].astype(np.float16),
        points[:, 3:].astype(np.float16),
        np.zeros(0, dtype=np.uint8),
        np.array([category for _, category in clouds], dtype=np.uint8),
        np.array([len(values) for values, _ in clouds], dtype=np.int64),
    )
    return _to_table(shapes).with_columns(
        {WHOLE: torch.ones(len(clouds), 1, dtype=torch.uint8)}, {WHOLE: Column(GRAPH)}
    )


def _read_shape(file: Path) -> tuple[np.ndarray, int] | str:
    try:
        return _new_shape(file)
    except (GraphbenchError, OSError, MemoryError) as error:
        return shown_name(str(error)) or "it needs more memory than available"


def _new_shape(file: Path) -> tuple[np.ndarray, int]:
    """Read points and normals `[points, 6]`, centred, with radius 1, and the number of the category."""
    names = {name: number for number, pair in enumerate(FOLDERS.items()) for name in pair}
    folder = file.absolute().parent.name  # not resolved: a link counts where it is, not where it leads
    category = names.get(folder)
    if category is None:
        raise BadInput(f"its folder {folder!r} is not a category; expected one of {', '.join(FOLDERS)}")
    values = read_points(file)
    # A seventh number is the part, as in the published files.
    values = checked_points(values[:, :6] if values.ndim == 2 and values.shape[1] == _COLUMNS else values)
    return np.concatenate([to_unit_sphere(values[:, :3]), values[:, 3:]], axis=1), category


@dataclass(frozen=True)
class ShapeChunk:
    """A job: the shapes of some files, and the seed of the order of their points."""

    files: Files
    names: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Shapes:
    """S shapes, with their points one after the other.

    Args:
        points: centred, with radius 1, float16 `[sum(sizes), 3]`.
        normals: float16 `[sum(sizes), 3]`.
        parts: part of each point, uint8 `[sum(sizes)]`.
        categories: category of each shape, uint8 `[S]`.
        sizes: points of each shape, int64 `[S]`.
    """

    points: np.ndarray
    normals: np.ndarray
    parts: np.ndarray
    categories: np.ndarray
    sizes: np.ndarray


def shape_lists(files: Files) -> dict[str, list[str]]:
    """Read the names of each split's files."""
    names: dict[str, list[str]] = {}
    categories, *lists = files.read([CATEGORY_FILE, *SPLIT_FILES.values()])
    table = dict(line.split()[:2] for line in categories.decode(errors="replace").splitlines() if len(line.split()) > 1)
    if table != FOLDERS:
        raise CorruptData(f"{files.path}: {CATEGORY_FILE} does not name the 16 published categories and their folders.")
    for split, content in zip(SPLIT_FILES, lists, strict=True):
        try:
            entries = [str(entry).split("/") for entry in json.loads(content)]
        except (ValueError, TypeError) as error:
            raise CorruptData(f"{files.path}: {SPLIT_FILES[split]} does not list shapes ({error}).") from error
        wrong = [entry for entry in entries if len(entry) != 3 or entry[1] not in FOLDERS.values()]
        if wrong or not entries:
            shown = "/".join(wrong[0]) if wrong else "nothing"
            raise CorruptData(f"{files.path}: {SPLIT_FILES[split]} lists {shown}, not shape_data/CATEGORY/SHAPE.")
        names[split] = [f"{category}/{shape}.txt" for _, category, shape in entries]
    (name, times), *_ = Counter(name for listed in names.values() for name in listed).most_common(1)
    if times > 1:
        raise CorruptData(f"{files.path}: the lists in train_test_split name {name} {times} times. Fetch them again.")
    return names


def read_shapes(chunk: ShapeChunk) -> Shapes:
    """Read some shapes, with the points of each in random order."""
    numbers = {folder: number for number, folder in enumerate(FOLDERS.values())}
    first = np.cumsum((0, *PARTS))
    rows, categories = [], []
    for name, content in zip(chunk.names, chunk.files.read(chunk.names), strict=True):
        category = numbers[name.partition("/")[0]]
        values = parse_numbers(content, name)
        widths = {len(line.split()) for line in content.splitlines() if line.strip()}
        if widths != {_COLUMNS} or not np.isfinite(values).all():
            raise CorruptData(f"{name} does not hold seven numbers per point (x y z, normal, part). Fetch it again.")
        table = values.reshape(-1, _COLUMNS)
        parts, start, stop = table[:, 6], first[category], first[category + 1]
        if (wrong := (parts < start) | (parts >= stop) | (parts % 1 != 0)).any():
            shown = f"{parts[wrong][0]:g}; those of its category are {start} to {stop - 1}"
            raise CorruptData(f"{name} has the part {shown}. Fetch it again.")
        table[:, :3] = to_unit_sphere(table[:, :3])
        generator = np.random.RandomState([chunk.seed % (1 << 32), *bytes_of_name(name)])
        rows.append(table[generator.permutation(len(table))])
        categories.append(category)
    every = np.concatenate(rows)
    return Shapes(
        every[:, :3].astype(np.float16),
        every[:, 3:6].astype(np.float16),
        every[:, 6].astype(np.uint8),
        np.array(categories, dtype=np.uint8),
        np.array([len(row) for row in rows]),
    )
