"""Data sets of the Open Graph Benchmark, MolHIV and MolPCBA, and readers of OGB's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from torch.serialization import safe_globals

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.tables import subset, with_targets, with_text
from graphbench.benchmarks.molecules.chemistry.vocabulary import OGB_ATOMS, OGB_BONDS
from graphbench.benchmarks.tables import make_table, published_sets, read_columns
from graphbench.contracts import GraphTable
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.archives import open_gzip
from graphbench.data.download import fetch_members
from graphbench.data.files.foreign import FETCH_AGAIN, foreign, load_tensors
from graphbench.errors import CorruptData

#: Maps a file to its path inside the archive's folder.
_FILES = {
    **{f"{name}.csv.gz": f"raw/{name}.csv.gz" for name in ("edge", "edge-feat", "node-feat", "graph-label")},
    **{f"num-{name}-list.csv.gz": f"raw/num-{name}-list.csv.gz" for name in ("node", "edge")},
    **{f"{name}.csv.gz": f"split/scaffold/{name}.csv.gz" for name in ("train", "valid", "test")},
    "mol.csv.gz": "mapping/mol.csv.gz",
}
_SPLITS = {"train": "train", "val": "valid", "test": "test"}
#: Globals in a pickled NumPy array of integers, under NumPy's old and new names.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ARRAY_PARTS: list[Any] = [
    (_RECONSTRUCT, "numpy.core.multiarray._reconstruct"),
    (_RECONSTRUCT, "numpy._core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    type(np.dtype(np.int64)),
    type(np.dtype(np.int32)),
]


class OGBMolecules(MoleculeBenchmark):
    """Base of OGB's molecular data sets: their published graphs, labels and scaffold split, from one archive.

    Every bond becomes two directed edges. Labels are 0, 1, or NaN for molecules that were not tested. The scores are
    those of `ogb.graphproppred.Evaluator` (means over tasks that have both labels, ignoring unknown ones).
    """

    #: Name in OGB.
    published_name: ClassVar[str]

    def source_key(self) -> dict[str, Any]:
        """Return the address of the published archive."""
        return {"address": self._about("url")}

    def _about(self, what: str) -> str:
        return str(published_sets("graphproppred").loc[what, self.published_name])

    def read(self) -> Mapping[str, GraphTable]:
        """Fetch and convert the archive."""
        folder, inner = Path(self.root, self.spec.name), self._about("download_name")
        members = {name: f"{inner}/{path}" for name, path in _FILES.items()}
        advice = "NCI and AMPPeptides need no download."
        paths = fetch_members(self._about("url"), folder, members, what=self.published_name, advice=advice)
        table = read_graphs(paths, self.spec.num_targets)
        splits = {name: read_numbers(paths[f"{file}.csv.gz"], 1, np.int64)[:, 0] for name, file in _SPLITS.items()}
        if not np.array_equal(np.sort(np.concatenate(list(splits.values()))), np.arange(len(table))):
            raise CorruptData(
                f"{folder}: the splits do not hold every molecule once. Delete the files to fetch them again."
            )
        return {name: subset(table, rows) for name, rows in splits.items()}


class MolHIV(OGBMolecules):
    """ogbg-molhiv: 41,127 molecules of MoleculeNet, and whether they inhibit the replication of HIV."""

    published_name: ClassVar[str] = "ogbg-molhiv"
    spec = specs.MOL_HIV


class MolPCBA(OGBMolecules):
    """ogbg-molpcba: 437,929 molecules of MoleculeNet and their activity in 128 assays, most of them unknown."""

    published_name: ClassVar[str] = "ogbg-molpcba"
    spec = specs.MOL_PCBA


def read_graphs(paths: Mapping[str, Path], num_targets: int) -> GraphTable:
    """Read all graphs of a data set with labels, SMILES and OGB's names of the molecules."""
    nodes, edges = (read_numbers(paths[f"num-{n}-list.csv.gz"], 1, np.int64)[:, 0] for n in ("node", "edge"))
    x = read_numbers(paths["node-feat.csv.gz"], len(OGB_ATOMS.vocabularies), np.uint8)
    bonds = read_numbers(paths["edge.csv.gz"], 2, np.int32)
    bond_types = read_numbers(paths["edge-feat.csv.gz"], len(OGB_BONDS.vocabularies), np.uint8)
    labels = read_numbers(paths["graph-label.csv.gz"], num_targets, np.float32)
    molecules = read_table_file(paths["mol.csv.gz"], {"smiles": str, "mol_id": str})
    rows = (len(x), len(bonds), len(bond_types), len(edges), len(labels), len(molecules))
    expected = (nodes.sum(), edges.sum(), edges.sum(), len(nodes), len(nodes), len(nodes))
    if min(nodes.min(), edges.min()) < 0:
        raise CorruptData(f"{paths['edge.csv.gz'].parent}: a molecule has fewer than 0 atoms or bonds. {FETCH_AGAIN}")
    if rows != expected:
        raise CorruptData(
            f"{paths['edge.csv.gz'].parent}: the files have {rows} rows of atoms, bonds, bond features and molecules, "
            f"but should have {tuple(int(n) for n in expected)}. Delete them to fetch them again."
        )
    both_ways = np.stack([bonds, bonds[:, ::-1]], axis=1).reshape(-1, 2)
    columns = {"x": (x, NODE), "edge_index": (both_ways, EDGE), "edge_attr": (bond_types.repeat(2, axis=0), EDGE)}
    table = with_targets(make_table(columns, nodes, 2 * edges), labels)
    texts = {"smiles": molecules["smiles"], "id": molecules["mol_id"]}
    return with_text(table, {name: column.tolist() for name, column in texts.items()})


def read_numbers(path: Path, num_columns: int, dtype: type[np.generic]) -> np.ndarray:
    """Read a compressed CSV file of numbers without a header, `[rows, num_columns]`; only real ones may be empty."""
    with foreign(path, FETCH_AGAIN):
        with open_gzip(path) as file:
            table = pd.read_csv(file, header=None).to_numpy()
        with np.errstate(invalid="ignore"):
            values = table.astype(dtype)
        same = values == table  # a cast to a narrow dtype would silently wrap around, and make empty cells 0
    empty = (table != table) & np.issubdtype(dtype, np.floating)
    if values.shape[1] != num_columns or not (same | empty).all():
        raise CorruptData(
            f"{path} should hold {num_columns} columns of {np.dtype(dtype).name}, but holds other numbers."
        )
    return values


def read_table_file(path: Path, columns: Mapping[str, type]) -> pd.DataFrame:
    """Read some columns of a compressed CSV file with a header."""
    with foreign(path, FETCH_AGAIN), open_gzip(path) as file:
        return read_columns(file, columns)


def load_split_dict(path: Path, names: Sequence[str], num_rows: int) -> dict[str, np.ndarray]:
    """Load distinct row numbers of splits from a saved dict of arrays, without running code from the file."""
    with foreign(path, FETCH_AGAIN, "holds no splits"):
        with safe_globals(_ARRAY_PARTS):
            content = load_tensors(path)
        splits = {name: np.asarray(content[name]).astype(np.int64, casting="safe") for name in names}
    rows = np.concatenate(list(splits.values()))
    if len(rows) == 0 or rows.min() < 0 or rows.max() >= num_rows or len(np.unique(rows)) != len(rows):
        raise CorruptData(
            f"{path}: splits must hold distinct rows from 0 to {num_rows - 1:,}. Delete it to fetch it again."
        )
    return splits
