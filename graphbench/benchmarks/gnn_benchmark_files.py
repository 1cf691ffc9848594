"""The GNN benchmark as PyG publishes it: an archive a dataset, fetched from where PyG fetches it.

PyG's own downloader is not used because it leaves certificates unchecked, waits for ever and unpacks whatever an
archive holds. An archive holds one file, `NAME.pt`: train, validation and test as lists of dictionaries of tensors.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts import GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, NODE, Column, pointer
from graphbench.data.progress import progress, track
from graphbench.data.splits import NAMES
from graphbench.errors import CorruptData, MissingData

Graph = Mapping[str, Any]
#: Turns graphs of the file into columns; must hold "edge_index" and one column that has a row a node.
Convert = Callable[[Sequence[Graph]], dict[str, tuple[Tensor, str]]]

_TIMEOUT = 30.0  # seconds without an answer
_BLOCK = 1 << 20
_CHUNK = 1000  # graphs a table
_MOST_NODES = 256  # node numbers are stored in one byte
#: What zipfile raises on archives that are cut short, altered, or no archives.
_BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
#: What torch raises on files that are cut short, altered, or hold anything but tensors.
_BAD_TENSORS = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, OSError)


def address(name: str) -> str:
    """Where PyG fetches a dataset of the GNN benchmark."""
    from torch_geometric.datasets import GNNBenchmarkDataset

    return GNNBenchmarkDataset.urls[name]


def fetch(name: str, folder: Path, otherwise: str) -> Path:
    """The file with the graphs, `folder/raw/NAME_v2.pt` as in PyG's own folder.

    Taken from `folder/raw/NAME_v2.zip` where somebody put that, else downloaded.

    Args:
        name: of the dataset.
        folder: of the dataset.
        otherwise: what to do without a network, for the message.

    Raises:
        MissingData: it could not be fetched; says what, from where, and where to put it.
        CorruptData: the archive is damaged or is not this dataset's.
    """
    url, raw = address(name), folder / "raw"
    archive = raw / url.rpartition("/")[2]
    target = archive.with_suffix(".pt")
    if target.is_file():
        return target
    if archive.is_file():
        extract(archive, target.name, target)
        return target
    raw.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        fetched = Path(temporary, archive.name)
        try:
            _download(url, fetched, f"Downloading {name}")
        except (OSError, HTTPException) as error:
            raise MissingData(
                f"{name} could not be downloaded ({type(error).__name__}: {error}). Put this file into {raw}:\n"
                f"  {archive.name} from {url} (or {target.name}, which it holds)\n{otherwise}"
            ) from error
        extract(fetched, target.name, target)
    return target


def _download(url: str, path: Path, description: str) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, path.open("wb") as file:
        length = answer.headers.get("Content-Length")
        with progress(description, None if length is None else int(length), "bytes") as advance:
            while block := answer.read(_BLOCK):
                file.write(block)
                advance(len(block))
        if length is not None and file.tell() != int(length):
            raise HTTPException(f"the connection ended after {file.tell():,} of {int(length):,} bytes")


def extract(archive: Path, member: str, target: Path) -> None:
    """Unpack one member of a zip archive; `target` appears whole or not at all.

    Raises:
        CorruptData: the archive is damaged, lacks the member, or has names that lead out of a folder.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        with zipfile.ZipFile(archive) as members:
            names = members.namelist()
            outside = [name for name in names if _leads_out(name)]
            if outside:
                raise CorruptData(
                    f"{archive.name} holds {outside[0]!r}, which leads out of its folder: nothing was unpacked. "
                    "Fetch the archive again from its publisher."
                )
            if member not in names:
                raise CorruptData(f"{archive.name} holds no {member}, but {', '.join(names[:5]) or 'nothing'}.")
            with members.open(member) as packed, part.open("wb") as file:
                shutil.copyfileobj(packed, file, _BLOCK)
        part.replace(target)
    except _BAD_ARCHIVE as error:
        raise CorruptData(
            f"{archive.name} is no whole zip archive ({type(error).__name__}: {error}). Delete it and fetch it again."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _leads_out(name: str) -> bool:
    """Whether a path inside an archive is absolute or climbs, as any system reads it."""
    windows = PureWindowsPath(name)
    return bool(windows.drive or windows.root) or ".." in windows.parts or PurePosixPath(name).is_absolute()


def read_splits(path: Path, convert: Convert) -> dict[str, Iterator[GraphTable]]:
    """The graphs of each split as tables, read without running code of the file.

    Args:
        path: what `fetch` found.
        convert: name -> (column, axis) of some graphs, in the dtypes to store.

    Raises:
        CorruptData: the file is damaged or holds something else; also while the tables are taken.
    """
    try:
        splits = torch.load(path, map_location="cpu", weights_only=True)
    except _BAD_TENSORS as error:
        raise CorruptData(f"{path} was not read: {error}\nDelete it to fetch it again.") from error
    if not isinstance(splits, list | tuple) or len(splits) != len(NAMES):
        raise CorruptData(f"{path}: expected train, validation and test graphs, got {type(splits).__name__}.")
    return {name: _tables(path, name, graphs, convert) for name, graphs in zip(NAMES, splits, strict=True)}


def _tables(path: Path, split: str, graphs: Sequence[Graph], convert: Convert) -> Iterator[GraphTable]:
    starts = range(0, len(graphs), _CHUNK)
    for start in track(starts, f"Reading {path.name}, {split}", unit=f"chunks of {_CHUNK} graphs"):
        part = graphs[start : start + _CHUNK]
        try:
            columns = convert(part)
            nodes = torch.tensor([len(graph["x"]) for graph in part])
            edges = [graph["edge_index"].t() for graph in part]
            if int(nodes.max()) > _MOST_NODES:
                raise ValueError(f"a graph has {int(nodes.max())} nodes")
            ends = torch.cat(edges)
            if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < _MOST_NODES:
                raise ValueError("edge_index leads to nodes that do not exist")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise CorruptData(
                f"{path}: {split} graphs {start} to {start + len(part) - 1} are not what the GNN benchmark holds "
                f"({type(error).__name__}: {error})."
            ) from error
        yield GraphTable(
            {"edge_index": ends.to(torch.uint8)} | {name: column for name, (column, _) in columns.items()},
            {"edge_index": EDGE_INDEX} | {name: Column(axis) for name, (_, axis) in columns.items()},
            {NODE: pointer(nodes), EDGE: pointer(torch.tensor([len(part) for part in edges]))},
        )
