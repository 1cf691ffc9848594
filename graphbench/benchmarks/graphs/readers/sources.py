"""Open a source given by the user: files and folders by their content, everything else by its name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.io import read_tu_data

from graphbench.benchmarks.graphs.raw import RawGraphs, RawPart, concatenate, parts_of_raw
from graphbench.benchmarks.graphs.readers import array_folder, json_lines, named, networkx_files, saved
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects, raw_key
from graphbench.benchmarks.graphs.readers.table_parts import parts_of_tables
from graphbench.benchmarks.graphs.readers.tables import is_table_folder, read_tables, table_paths
from graphbench.contracts import SPLITS
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.tables.frames import SUFFIXES, table_file

_FORMATS = (
    "a file of torch.save (.pt, .pth), JSON lines (.jsonl), GraphML, GEXF, GML, adjacency or edge lists (.graphml, "
    ".gexf, .gml, .adjlist, .edgelist), a folder of such, a folder of tables (graphs, nodes, edges in .csv, "
    ".parquet or .xlsx), a folder of arrays of one graph (edge_index.npy, x.npy, y.npy), or a folder in the raw layout "
    "of TUDataset"
)
_JSON_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class Source:
    """A source of graphs.

    Args:
        origin: name in messages and in the specification.
        key: JSON values that identify its content; files are not parsed for them.
        read: reads all graphs.
        local: whether it needs no network.
        stream: yields parts of a given size, for files larger than memory; None if all graphs must be read at once.
    """

    origin: str
    key: Callable[[], dict[str, Any]]
    read: Callable[[], RawGraphs]
    local: bool = True
    stream: Callable[[int], Iterator[RawPart]] | None = None

    def parts(self, size: int) -> Iterator[RawPart]:
        """Yield the graphs in parts of `size`, without reading all of them if possible."""
        return parts_of_raw(self.read(), size) if self.stream is None else self.stream(size)


def open_source(
    source: Any, arguments: Mapping[str, Any], directed: bool, root: Path, checksum: Callable[[Path], str] = file_sha256
) -> Source:
    """Find the reader for a source; nothing is read yet.

    A source is a path, a name with its `arguments`, or the graphs themselves. With `directed`, edges of lists and
    tables lead one way only; `root` is the folder for downloads, and `checksum` computes the SHA-256 of a file for the
    key.

    Raises:
        BadInput: it is a file in an unknown format, or an unknown name; lists the formats.
        MissingData: there is no such path.
    """
    if not isinstance(source, str | Path):
        return _in_memory(source, directed)
    path = Path(source)
    if path.is_dir():
        opened = _folder(path, directed, checksum)
    elif path.is_file():
        opened = _file(path, directed, checksum)
    else:
        named_set = named.find(str(source), arguments, root)
        if named_set is None:
            raise MissingData(
                f"--data.source {source}: there is no such file or folder, and no data set or function of that name. "
                f"A source is {_FORMATS}; a class of torch_geometric.datasets with its arguments (TUDataset:MUTAG); a "
                "set of OGB (ogbg-molbace); or a function that returns graphs (my_package.data:load)."
            )
        return _named(named_set, directed)
    if arguments:
        raise BadInput(f"arguments belong to a named data set or function, not to the path {source}.")
    return opened


def _file(path: Path, directed: bool, checksum: Callable[[Path], str]) -> Source:
    of_files = partial(_of_files, origin=path, directed=directed, checksum=checksum)
    suffix = path.suffix.lower()
    if suffix in (*saved.SUFFIXES, *saved.PICKLES):
        return of_files([path], read=lambda: raw_from_objects(saved.load_saved(path), str(path), directed))
    if suffix in _JSON_LINES:
        opened = of_files([path], read=lambda: json_lines.read_json_lines(path, directed))
        return replace(opened, stream=partial(json_lines.parts_of_lines, path, directed))
    if suffix in networkx_files.READERS:
        return of_files([path], read=lambda: networkx_files.read_networkx([path], None, directed, str(path)))
    raise BadInput(
        f"--data.source {path}: nothing reads {suffix or 'a file without a suffix'}. A source is {_FORMATS}."
    )


def _folder(path: Path, directed: bool, checksum: Callable[[Path], str]) -> Source:
    of_files = partial(_of_files, origin=path, directed=directed, checksum=checksum)
    if is_table_folder(path):
        opened = of_files(table_paths(path).values(), read=lambda: read_tables(path, directed))
        return replace(opened, stream=partial(parts_of_tables, path, directed))
    if array_folder.is_array_folder(path):
        return of_files(array_folder.array_paths(path), read=partial(array_folder.read_arrays, path))
    files = networkx_files.graph_files(path)
    if files:
        targets = table_file(path, networkx_files.TARGETS)
        read = lambda: networkx_files.read_networkx(files, path, directed, str(path))  # noqa: E731
        opened = of_files([*files, *([targets] if targets else [])], read=read)
        return replace(opened, stream=partial(networkx_files.parts_of_files, files, directed))
    for folder in (path, path / "raw"):
        if len(lists := sorted(folder.glob("*_A.txt"))) == 1:
            prefix = lists[0].name.removesuffix("_A.txt")
            return of_files(sorted(folder.glob(f"{prefix}_*.txt")), read=partial(read_tu_folder, folder, prefix))
    held = sorted(file.name for file in path.iterdir())
    tables_hint = f" Tables need edges, and nodes or graphs ({', '.join(SUFFIXES)})." if table_paths(path) else ""
    raise BadInput(
        f"--data.source {path}: this folder holds {', '.join(held[:8]) or 'nothing'}{', ...' if len(held) > 8 else ''}."
        f"{tables_hint} A source is {_FORMATS}."
    )


def read_tu_folder(folder: Path, prefix: str) -> RawGraphs:
    """Read the raw files of a TUDataset (`DS_A.txt`, `DS_graph_indicator.txt`, ...) with PyG's reader."""
    try:
        data, slices, _ = read_tu_data(str(folder), prefix)
        graphs = saved.separate(data, slices)
    except (ValueError, RuntimeError, LookupError, OSError, AssertionError, TypeError) as error:
        raise CorruptData(f"{folder}/{prefix}_*.txt cannot be read ({type(error).__name__}: {error}).") from error
    return raw_from_objects(graphs, str(folder))


def _of_files(
    files: Iterable[Path], origin: Path, read: Callable[[], RawGraphs], directed: bool, checksum: Callable[[Path], str]
) -> Source:
    def key() -> dict[str, Any]:
        return {"kind": "files", "sha256": files_sha256(files, origin.parent, checksum), "directed": directed}

    return Source(str(origin), key, read)


def files_sha256(files: Iterable[Path], base: Path, checksum: Callable[[Path], str] = file_sha256) -> str:
    """Return one checksum for several files with their paths below `base`; for a single file, its checksum."""
    checksums = {file.relative_to(base).as_posix(): checksum(file) for file in files}
    if len(checksums) == 1:
        return next(iter(checksums.values()))
    return hashlib.sha256(repr(sorted(checksums.items())).encode()).hexdigest()


def _in_memory(content: Any, directed: bool) -> Source:
    origin = "the graphs in memory"

    @cache
    def read() -> RawGraphs:
        raw = raw_from_objects(content, origin, directed)
        return raw.copy() if len(raw) == 1 else raw  # a single graph would share its arrays with the caller

    return Source(origin, lambda: {"kind": "memory", "sha256": raw_key(read())}, read)


def _named(named_set: named.Named, directed: bool) -> Source:
    @cache
    def read() -> RawGraphs:
        raw = raw_from_objects(named_set.load(), named_set.name, directed)
        raw.splits = named_set.splits() or raw.splits
        raw.hints |= named_set.hints
        return raw

    def key() -> dict[str, Any]:
        return {"kind": named_set.kind, **(named_set.key() or {"sha256": raw_key(read())})}

    return Source(named_set.name, key, read, local=named_set.local)


def source_by_split(sources: Mapping[str, Source]) -> Source:
    """Join the sources of "train", and of "val" or "test" or both, into one source that gives the split."""
    ordered: dict[str, Source] = {name: sources[name] for name in SPLITS if name in sources}
    return replace(
        sources["train"],
        key=lambda: {"files": {name: source.key() for name, source in ordered.items()}},
        read=partial(_read_by_split, ordered),
        local=all(source.local for source in ordered.values()),
        stream=None,
    )


def _read_by_split(sources: Mapping[str, Source]) -> RawGraphs:
    parts = {name: source.read() for name, source in sources.items()}
    for name, part in parts.items():
        if part.splits is not None:
            raise BadInput(f"{part.origin} has its own split, but it is the {name} part; remove one of them.")
        for other in parts.values():
            if lacking := other.pairs.keys() - part.pairs.keys():
                raise BadInput(f"{part.origin} has no {lacking.pop()}s, but {other.origin} has.")
    joined = concatenate(list(parts.values()), parts["train"].origin)
    # Repeated names are prefixed with the name of their file, since predictions are joined by name.
    joined.names = []
    for part in parts.values():
        repeated = not set(joined.names).isdisjoint(part.names)
        joined.names += [f"{Path(part.origin).name}:{name}" for name in part.names] if repeated else part.names
    ends = np.cumsum([0, *map(len, parts.values())])
    joined.splits = {name: np.arange(ends[number], ends[number + 1]) for number, name in enumerate(parts)}
    joined.hints["split"] = ", ".join(f"{name} from {Path(part.origin).name}" for name, part in parts.items())
    return joined
