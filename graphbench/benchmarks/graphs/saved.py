"""Files that torch saved: lists of PyG's `Data`, and what PyG's in-memory data sets keep on disk."""

from __future__ import annotations

import contextlib
import pickle
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.serialization import add_safe_globals, clear_safe_globals, get_safe_globals
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset  # registers Data and others as safe to load
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import AttrType, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage
from torch_geometric.transforms.rooted_subgraph import RootedSubgraphData

from graphbench.data.files.foreign import foreign, load_tensors
from graphbench.errors import BadInput

SUFFIXES = (".pt", ".pth")
PICKLES = (".pkl", ".pickle")
#: What a saved `Data` consists of beside tensors; PyG registers the other half itself. Each was looked at: none does
#: more than keep what it is given. `AttrType` is an Enum, `RootedSubgraphData` says how its indices add up in batches.
PARTS_OF_DATA = [
    BaseStorage,
    GlobalStorage,
    NodeStorage,
    EdgeStorage,
    DataEdgeAttr,
    DataTensorAttr,
    AttrType,
    RootedSubgraphData,
]
#: Where a storage of PyG remembers, for `is_node_attr()`, which of its attributes are of nodes; it is found anew.
_CACHE = "_cached_attr"
_WAY_OUT = (
    "Reading it would run code of the file. Save plain graphs where you made it: "
    "torch.save([Data(x=..., edge_index=..., y=...), ...], 'graphs.pt'); or write a function that returns the graphs, "
    "which runs your code by your choice, and give its name: --data.source my_package.data:load"
)


def load_saved(path: Path) -> Any:
    """Graphs out of a file of `torch.save`; nothing in it is run.

    A list of `Data` or of mappings of tensors, one graph, lists by split, or the file of an `InMemoryDataset`
    (`data, slices` and what PyG keeps beside them).

    Raises:
        BadInput: it is a pickle, or holds other objects than tensors and graphs; says what to do instead.
        CorruptData: it is damaged.
    """
    if path.suffix.lower() in PICKLES:
        raise BadInput(f"{path} is a pickle. {_WAY_OUT}")
    with foreign(path), _safe_parts():
        try:
            content = load_tensors(path, mmap=zipfile.is_zipfile(path))
        except pickle.UnpicklingError as error:
            named = re.search(r"GLOBAL (\S+)", str(error))
            held = named[1] if named else "it is a pickle"
            raise BadInput(f"{path} holds more than tensors and graphs ({held}). {_WAY_OUT}") from error
    _forget_caches(content)
    return _unpacked(content, path)


def _plain_dict(factory: Any = None) -> dict[Any, Any]:
    """A dict for a defaultdict, which torch's restricted reader makes but refuses to fill."""
    return {}


def _rebuilt_batch(cls: Any, base: Any) -> Any:
    """An empty `Batch` of `Data`, as PyG rebuilds it: its class is made when it is asked for.

    Raises:
        pickle.UnpicklingError: it is one of other objects.
    """
    if cls is not Batch or base is not Data:
        raise pickle.UnpicklingError("a Batch of other objects than Data")
    return Batch(_base_cls=Data)


class _BatchGetter:
    """Stands for PyG's `DynamicInheritanceGetter`, whose objects are called."""

    def __new__(cls) -> Any:
        return _rebuilt_batch


@contextlib.contextmanager
def _safe_parts() -> Iterator[None]:
    """PyG's graphs are safe to load meanwhile, with the caches that PyG fills and saves along."""
    before = get_safe_globals()
    clear_safe_globals()
    add_safe_globals([known for known in before if known is not defaultdict])
    add_safe_globals(
        [
            *PARTS_OF_DATA,
            (_plain_dict, "collections.defaultdict"),
            (_BatchGetter, "torch_geometric.data.batch.DynamicInheritanceGetter"),
            _rebuilt_batch,
            Batch,
            type(Batch(_base_cls=Data)),
        ]
    )
    try:
        yield
    finally:
        clear_safe_globals()
        add_safe_globals(before)


def _forget_caches(content: Any) -> None:
    """Take caches out of graphs: PyG reads them as defaultdicts, which they are no longer."""
    if isinstance(content, Data | HeteroData):
        for store in content.stores:
            store.__dict__.pop(_CACHE, None)
    elif isinstance(content, Mapping):
        for part in content.values():
            _forget_caches(part)
    elif isinstance(content, list | tuple):
        for part in content:
            _forget_caches(part)


def _unpacked(content: Any, path: Path) -> Any:
    """Single graphs out of the joined form of an `InMemoryDataset`."""
    joined = isinstance(content, tuple) and len(content) >= 2 and isinstance(content[0], Data | dict)
    if not joined or not (content[1] is None or _are_slices(content[1])):
        return content
    data = content[0] if isinstance(content[0], Data) else Data.from_dict(content[0])
    if content[1] is None:
        return data
    with foreign(path, is_not="has slices that do not fit its tensors"):
        return separate(data, content[1])


def separate(data: Data, slices: Any) -> list[Data]:
    """The graphs of an `InMemoryDataset` out of its joined tensors."""
    dataset = _Joined(data, slices)
    return [dataset.get(number) for number in range(len(dataset))]


def _are_slices(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(v, torch.Tensor | list) for v in value.values())


class _Joined(InMemoryDataset):
    """A data set out of its joined tensors, without a folder."""

    def __init__(self, data: Data, slices: Any) -> None:
        super().__init__()
        self.data, self.slices = data, slices
