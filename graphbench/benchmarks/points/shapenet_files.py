"""ShapeNetPart's text files: one file per shape, one point per line."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from graphbench.benchmarks.points.files import Files, bytes_of_name
from graphbench.benchmarks.points.off import parse_numbers
from graphbench.benchmarks.points.surfaces import to_unit_sphere
from graphbench.contracts.spec import SPLITS
from graphbench.errors import CorruptData

#: Category -> folder of its shapes, in the order of the published part numbers.
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
#: Parts of each category; part numbers count through, category after category.
PARTS = (4, 2, 2, 4, 4, 3, 3, 2, 4, 2, 6, 2, 3, 3, 3, 3)
CATEGORY_FILE = "synsetoffset2category.txt"
SPLIT_FILES = {split: f"train_test_split/shuffled_{split}_file_list.json" for split in SPLITS}
_COLUMNS = 7  # x y z, normal, part


@dataclass(frozen=True)
class ShapeChunk:
    """A job: the shapes of some files.

    Args:
        files: where they lie.
        names: of the files.
        seed: decides about the order of points, with the name of the file.
    """

    files: Files
    names: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Shapes:
    """S shapes, their points one after the other.

    Args:
        points: centred and of radius 1, float16 `[sum(sizes), 3]`.
        normals: float16 `[sum(sizes), 3]`.
        parts: of each point, uint8 `[sum(sizes)]`.
        categories: of each shape, uint8 `[S]`.
        sizes: points of each shape, int64 `[S]`.
    """

    points: np.ndarray
    normals: np.ndarray
    parts: np.ndarray
    categories: np.ndarray
    sizes: np.ndarray


def shape_lists(files: Files) -> dict[str, list[str]]:
    """Split -> names of its files.

    Raises:
        MissingData: a list is absent.
        CorruptData: a list or the table of categories is damaged, or is not the published one.
    """
    found: dict[str, list[str]] = {}
    categories, *lists = files.read([CATEGORY_FILE, *SPLIT_FILES.values()])
    table = dict(line.split()[:2] for line in categories.decode(errors="replace").splitlines() if len(line.split()) > 1)
    if table != FOLDERS:
        raise CorruptData(f"{files.path}: {CATEGORY_FILE} does not name the 16 published categories and their folders.")
    for split, content in zip(SPLIT_FILES, lists, strict=True):
        try:
            entries = [str(entry).split("/") for entry in json.loads(content)]
        except (ValueError, TypeError) as error:
            raise CorruptData(f"{files.path}: {SPLIT_FILES[split]} is no list of shapes ({error}).") from error
        wrong = [entry for entry in entries if len(entry) != 3 or entry[1] not in FOLDERS.values()]
        if wrong or not entries:
            shown = "/".join(wrong[0]) if wrong else "nothing"
            raise CorruptData(f"{files.path}: {SPLIT_FILES[split]} lists {shown}, not shape_data/CATEGORY/SHAPE.")
        found[split] = [f"{category}/{shape}.txt" for _, category, shape in entries]
    return found


def read_shapes(chunk: ShapeChunk) -> Shapes:
    """Points of some shapes, those of each in random order.

    Raises:
        MissingData, CorruptData: a file is absent or damaged.
    """
    numbers = {folder: number for number, folder in enumerate(FOLDERS.values())}
    first = np.cumsum((0, *PARTS))
    rows, categories = [], []
    for name, content in zip(chunk.names, chunk.files.read(chunk.names), strict=True):
        category = numbers[name.partition("/")[0]]
        values = parse_numbers(content, name)
        if not len(values) or len(values) % _COLUMNS or not np.isfinite(values).all():
            raise CorruptData(f"{name} does not hold seven numbers per point (x y z, normal, part). Fetch it again.")
        table = values.reshape(-1, _COLUMNS)
        if ((table[:, 6] < first[category]) | (table[:, 6] >= first[category + 1]) | (table[:, 6] % 1 != 0)).any():
            raise CorruptData(f"{name} has a part that its category lacks: {np.unique(table[:, 6]).tolist()}.")
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
