"""Load files of `torch.save` and pickles of published data sets without running code that they may contain."""

from __future__ import annotations

import contextlib
import logging
import pickle
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any
from unittest import mock

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch.serialization import add_safe_globals, clear_safe_globals, get_safe_globals
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset  # registers Data and others as safe to load
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import AttrType, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage
from torch_geometric.transforms.rooted_subgraph import RootedSubgraphData

from graphbench.data.files.foreign import foreign, load_pickle, load_tensors
from graphbench.data.package_files import LARGE
from graphbench.errors import BadInput

logger = logging.getLogger(__name__)

SUFFIXES = (".pt", ".pth")
PICKLES = (".pkl", ".pickle")
#: Classes in a saved `Data` that PyG does not register as safe. Each was reviewed: none does more than hold values.
PARTS_OF_DATA = [
    BaseStorage, GlobalStorage, NodeStorage, EdgeStorage, DataEdgeAttr, DataTensorAttr, AttrType, RootedSubgraphData,
]  # fmt: skip
#: NumPy's arrays of numbers, which some published lists of `Data` contain instead of tensors.
_ARRAYS: list[Any] = [
    np.ndarray, np.dtype, *{type(np.dtype(code)) for code in np.typecodes["AllInteger"] + "?efd"},
    *((np.empty(0).__reduce_ex__(2)[0], f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
]  # fmt: skip
#: Attribute in which a storage caches the results of `is_node_attr()`.
_CACHE = "_cached_attr"
_WAY_OUT = (
    "Reading it would run code of the file. Save plain graphs where you made it: "
    "torch.save([Data(x=..., edge_index=..., y=...), ...], 'graphs.pt'); or write a function that returns the graphs, "
    "which runs your code by your choice, and give its name: --data.source my_package.data:load"
)
_BUILTINS = ("__builtin__", "builtins")  # in Python 2 and 3
#: Arrays, sparse matrices and containers in published raw files, under their old and new names.
_PLAIN: dict[tuple[str, str], Any] = {
    **dict.fromkeys(
        (
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
            *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
            *((module, name) for module in _BUILTINS for name in ("list", "dict", "set", "int", "bytes", "object")),
            *((module, "_reconstructor") for module in ("copy_reg", "copyreg")),
            ("collections", "defaultdict"),
            ("collections", "OrderedDict"),
            ("_codecs", "encode"),
        )
    ),
    # the old module of csr_matrix will be removed
    **{(f"scipy.sparse.{module}", "csr_matrix"): csr_matrix for module in ("csr", "_csr")},
}


def load_saved(path: Path) -> Any:
    """Load graphs from a file of `torch.save` without running code that it may contain.

    The file contains a list of `Data` or of mappings of tensors, one graph, lists by split, or an `InMemoryDataset`
    (`data, slices` and more).

    Raises:
        BadInput: it is a pickle, or contains objects other than tensors and graphs; names alternatives.
        CorruptData: it is damaged.
    """
    if path.suffix.lower() in PICKLES:
        raise BadInput(f"{path} is a pickle. {_WAY_OUT}")
    with foreign(path), _safe_parts():
        is_zip = zipfile.is_zipfile(path)
        if is_zip and path.stat().st_size > LARGE:
            # A list of many graphs takes minutes, in which torch says nothing.
            with zipfile.ZipFile(path) as archive:
                count = sum("/data/" in name for name in archive.namelist())
            logger.info("%s: loading %s tensors", path, f"{count:,}")
        try:
            content = load_tensors(path, mmap=is_zip)
        except pickle.UnpicklingError as error:
            named = re.search(r"GLOBAL (\S+)", str(error))
            held = named[1] if named else "it is a pickle"
            raise BadInput(f"{path} holds more than tensors and graphs ({held}). {_WAY_OUT}") from error
    _remove_caches(content)
    return _unpacked(content, path)


def _plain_dict(factory: Any = None) -> dict[Any, Any]:
    """Replace a defaultdict, which torch's restricted reader creates but refuses to fill."""
    return {}


def _rebuilt_batch(cls: Any, base: Any) -> Any:
    """Return an empty `Batch` of `Data`, as PyG rebuilds it; refuse one of other objects."""
    if cls is not Batch or base is not Data:
        raise pickle.UnpicklingError("a Batch of other objects than Data")
    return Batch(_base_cls=Data)


def _enum_member(cls: Any, name: Any) -> Any:
    """Replace `getattr`, with which Python 3.11.0 to 3.11.3 save members of an `Enum`; only for `AttrType`."""
    if cls is not AttrType:
        raise pickle.UnpicklingError("an attribute of an object")
    return AttrType[name]


class _BatchGetter:
    """Replace PyG's `DynamicInheritanceGetter`, whose objects are called."""

    def __new__(cls) -> Any:
        return _rebuilt_batch


@contextlib.contextmanager
def _safe_parts() -> Iterator[None]:
    """Allow PyG's graphs, and the caches saved with them, within the block."""
    before = get_safe_globals()
    clear_safe_globals()  # torch can add names, but can only remove all of them at once
    add_safe_globals([entry for entry in before if entry is not defaultdict])
    add_safe_globals(
        [
            *PARTS_OF_DATA,
            *_ARRAYS,
            (_plain_dict, "collections.defaultdict"),
            (_BatchGetter, "torch_geometric.data.batch.DynamicInheritanceGetter"),
            (_enum_member, "builtins.getattr"),
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


def _remove_caches(content: Any) -> None:
    """Remove caches, which PyG expects to be defaultdicts."""
    if isinstance(content, Data | HeteroData):
        for store in content.stores:
            store.__dict__.pop(_CACHE, None)
    elif isinstance(content, Mapping):
        for part in content.values():
            _remove_caches(part)
    elif isinstance(content, list | tuple):
        for part in content:
            _remove_caches(part)


def _unpacked(content: Any, path: Path) -> Any:
    """Return the single graphs of an `InMemoryDataset`; return other content unchanged."""
    if not (isinstance(content, tuple) and len(content) >= 2 and isinstance(content[0], Data | dict)):
        return content
    data, slices = content[:2]
    is_joined = isinstance(slices, dict) and bool(slices)
    is_joined = is_joined and all(isinstance(value, torch.Tensor | list) for value in slices.values())
    if not (slices is None or is_joined):  # graphs in a tuple
        return content
    data = data if isinstance(data, Data) else Data.from_dict(data)
    if slices is None:
        return data
    with foreign(path, is_not="has slices that do not fit its tensors"):
        return separate(data, slices)


def separate(data: Data, slices: Any) -> list[Data]:
    """Return the graphs of an `InMemoryDataset` from its joined tensors.

    Raises:
        ValueError: the slices end before a tensor does, so rows would be lost.
    """
    for name, bounds in (slices or {}).items():
        value = data[name]
        if isinstance(value, torch.Tensor) and value.dim():
            rows = value.shape[data.__cat_dim__(name, value) or 0]
            if int(bounds[-1]) != rows:
                raise ValueError(f"{name} has {rows} rows and its slices end at {int(bounds[-1])}")
    dataset = _Joined(data, slices)
    return [dataset.get(number) for number in range(len(dataset))]


class _Joined(InMemoryDataset):
    """Represent joined tensors as a data set without a folder."""

    def __init__(self, data: Data, slices: Any) -> None:
        super().__init__()
        self.data, self.slices = data, slices


def load_plain(file: IO[bytes], **options: Any) -> Any:
    """Load a pickle of arrays, sparse matrices and containers of them.

    Raises:
        pickle.UnpicklingError: the file holds anything else.

    Examples:
        >>> import io
        >>> load_plain(io.BytesIO(pickle.dumps({"nodes": [1, 2]})))
        {'nodes': [1, 2]}
    """
    return load_pickle(file, _PLAIN, **options)


def plain_pickles() -> AbstractContextManager[object]:
    """Restrict `pickle.load` to plain values within the block."""
    return mock.patch.object(pickle, "load", load_plain)
