"""From what a user names as the source to graphs: files and folders by what they hold, everything else by its name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch_geometric.io import read_tu_data

from graphbench.benchmarks.graphs.raw import RawGraphs, RawPart, Unread
from graphbench.benchmarks.graphs.readers import json_lines, named, networkx_files, saved
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects, raw_key
from graphbench.benchmarks.graphs.readers.table_parts import parts_of_tables
from graphbench.benchmarks.graphs.readers.tables import is_table_folder, read_tables, table_paths
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.tables.frames import SUFFIXES, table_file

_FORMATS = (
    "a file of torch.save (.pt, .pth), JSON lines (.jsonl), GraphML, GEXF, GML, adjacency or edge lists (.graphml, "
    ".gexf, .gml, .adjlist, .edgelist), a folder of such, a folder of tables (graphs, nodes, edges in .csv, "
    ".parquet or .xlsx), or a folder in the raw layout of TUDataset"
)
_JSON_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class Source:
    """Where graphs come from.

    Args:
        origin: what to call it in messages and in the specification.
        key: JSON values that name its content, without parsing it where there are files.
        read: reads all graphs.
        local: whether it needs no network.
        unread: gives the graphs one by one, for files that are longer than memory; None where it cannot.
        parts: gives so many graphs at a time, for tables that are longer than memory; None where it cannot.
    """

    origin: str
    key: Callable[[], dict[str, Any]]
    read: Callable[[], RawGraphs]
    local: bool = True
    unread: Callable[[], Iterator[Unread]] | None = None
    parts: Callable[[int], Iterator[RawPart]] | None = None


def open_source(
    source: Any,
    arguments: Mapping[str, Any],
    directed: bool,
    root: Path,
    checksum: Callable[[Path], str] = file_sha256,
) -> Source:
    """Find out what a source is; nothing is read yet.

    Args:
        source: a path, a name, or graphs themselves.
        arguments: of a data set or a function that is named.
        directed: take edges of lists and tables one way only.
        root: folder of downloaded files.
        checksum: SHA-256 of a file, for the key.

    Raises:
        BadInput: it is a file of an unknown kind, or a name that nothing has; says what there is.
        MissingData: a path leads nowhere.
    """
    if not isinstance(source, str | Path):
        return _in_memory(source, directed)
    path = Path(source)
    if path.is_dir():
        found = _folder(path, directed, checksum)
    elif path.is_file():
        found = _file(path, directed, checksum)
    else:
        named_source = named.find(str(source), arguments, root)
        if named_source is None:
            raise MissingData(
                f"--data.source {source}: there is no such file or folder, and no data set or function of that name. "
                f"A source is {_FORMATS}; a class of torch_geometric.datasets with its arguments (TUDataset:MUTAG); a "
                "set of OGB (ogbg-molbace); or a function that returns graphs (my_package.data:load)."
            )
        return _named(named_source, directed)
    if arguments:
        raise BadInput(f"arguments belong to a named data set or function, not to the path {source}.")
    return found


def _file(path: Path, directed: bool, checksum: Callable[[Path], str]) -> Source:
    of_files = partial(_of_files, origin=path, directed=directed, checksum=checksum)
    suffix = path.suffix.lower()
    if suffix in (*saved.SUFFIXES, *saved.PICKLES):
        return of_files([path], read=lambda: raw_from_objects(saved.load_saved(path), str(path), directed))
    if suffix in _JSON_LINES:
        found = of_files([path], read=lambda: json_lines.read_json_lines(path, directed))
        return replace(found, unread=lambda: json_lines.unread_graphs(path, directed))
    if suffix in networkx_files.READERS:
        read = lambda: networkx_files.read_networkx([path], None, directed, str(path))  # noqa: E731
        return of_files([path], read=read)
    raise BadInput(
        f"--data.source {path}: nothing reads {suffix or 'a file without a suffix'}. A source is {_FORMATS}."
    )


def _folder(path: Path, directed: bool, checksum: Callable[[Path], str]) -> Source:
    of_files = partial(_of_files, origin=path, directed=directed, checksum=checksum)
    if is_table_folder(path):
        found = of_files(table_paths(path).values(), read=lambda: read_tables(path, directed))
        return replace(found, parts=lambda size: parts_of_tables(path, directed, size))
    files = networkx_files.graph_files(path)
    if files:
        targets = table_file(path, networkx_files.TARGETS)
        read = lambda: networkx_files.read_networkx(files, path, directed, str(path))  # noqa: E731
        found = of_files([*files, *([targets] if targets else [])], read=read)
        return replace(found, unread=lambda: networkx_files.unread_graphs(files, directed))
    for folder in (path, path / "raw"):
        if len(lists := sorted(folder.glob("*_A.txt"))) == 1:
            prefix = lists[0].name.removesuffix("_A.txt")
            of_set = sorted(folder.glob(f"{prefix}_*.txt"))
            return of_files(of_set, read=partial(read_tu_folder, folder, prefix))
    held = sorted(file.name for file in path.iterdir())
    tables_hint = ""
    if table_paths(path):
        tables_hint = f" Tables need edges, and nodes or graphs ({', '.join(SUFFIXES)})."
    raise BadInput(
        f"--data.source {path}: this folder holds {', '.join(held[:8]) or 'nothing'}{', ...' if len(held) > 8 else ''}."
        f"{tables_hint} A source is {_FORMATS}."
    )


def read_tu_folder(folder: Path, prefix: str) -> RawGraphs:
    """The raw files of a TUDataset (`DS_A.txt`, `DS_graph_indicator.txt`, ...), by PyG's reader.

    Raises:
        CorruptData: they do not fit each other.
    """
    try:
        data, slices, _ = read_tu_data(str(folder), prefix)
        graphs = saved.separate(data, slices)
    except (ValueError, RuntimeError, LookupError, OSError, AssertionError, TypeError) as error:
        raise CorruptData(f"{folder}/{prefix}_*.txt cannot be read ({type(error).__name__}: {error}).") from error
    return raw_from_objects(graphs, str(folder))


def _of_files(
    files: Iterable[Path],
    origin: Path,
    read: Callable[[], RawGraphs],
    directed: bool,
    checksum: Callable[[Path], str],
) -> Source:
    def key() -> dict[str, Any]:
        return {"kind": "files", "sha256": files_sha256(files, origin.parent, checksum), "directed": directed}

    return Source(str(origin), key, read)


def files_sha256(files: Iterable[Path], base: Path, checksum: Callable[[Path], str] = file_sha256) -> str:
    """One checksum of several files, with their paths below `base`; a file's own for one.

    Raises:
        MissingData: one is not there.
    """
    found = {file.relative_to(base).as_posix(): checksum(file) for file in files}
    if len(found) == 1:
        return next(iter(found.values()))
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


def _in_memory(content: Any, directed: bool) -> Source:
    origin = "the graphs in memory"

    @cache
    def read() -> RawGraphs:
        raw = raw_from_objects(content, origin, directed)
        return raw.copied() if len(raw) == 1 else raw  # one graph shares its arrays with whoever made it

    return Source(origin, lambda: {"kind": "memory", "sha256": raw_key(read())}, read)


def _named(found: named.Named, directed: bool) -> Source:
    @cache
    def read() -> RawGraphs:
        raw = raw_from_objects(found.load(), found.name, directed)
        raw.splits = found.splits() or raw.splits
        raw.hints |= found.hints
        return raw

    def key() -> dict[str, Any]:
        known = found.key()
        return {"kind": found.kind, **known} if known else {"kind": found.kind, "sha256": raw_key(read())}

    return Source(found.name, key, read, local=found.local)
