"""TSP: find the edges of a shortest tour among edges to near points; solved here, downloaded, or read from text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.block_models import specs
from graphbench.benchmarks.block_models.tours import shortest_tour
from graphbench.benchmarks.gnn_benchmark_files import Graph, address, fetch, read_splits
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.spec import with_sizes
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.package_files import remembered_sha256
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import BadInput, CorruptData, MissingData, check_choice

Source = Literal["generated", "pyg", "text"]
#: Number of nearest points to which edges lead from each point; all others if there are fewer.
NEIGHBOURS = 25
#: Facts about the published graphs; the specification has those of the generated ones.
_PUBLISHED: dict[str, Any] = {
    "split_sizes": (10_000, 1_000, 1_000), "mean_nodes": 275.4, "max_nodes": 500, "mean_edges": 6885.0,
    "disk_mb": None, "licence": "MIT",
}  # fmt: skip
_CHUNK = 5  # graphs per job: a few seconds; another number would change the graphs
_TEXT_CHUNK = 100  # graphs of a text file per table
#: Text files of the authors: `x1 y1 x2 y2 ... output i1 i2 ... in i1`, one instance per line, with points numbered from
#: 1 and the first one of the tour repeated at its end.
_TEXT_FILES = ("TSP_{}.txt", "tsp50-500_{}.txt")
_WORD = "output"


class TSP(GraphBenchmark):
    """The edges of the shortest tour through points of the unit square.

    Points are uniform. Edges lead from each point to its 25 nearest others, with their distance as feature. The class
    of an edge is whether it is in the tour, in either direction. The score is F1 of the edges of the tour, over all
    edges of a split ("Benchmarking Graph Neural Networks", Dwivedi et al., JMLR 2023, which averages it over batches).

    Published instances have 50 to 500 points. Those generated here have 50 to 100, with tours that are proven to be
    shortest; `num_nodes` and `sizes` select others, but proofs take much longer for several hundred points. The loss is
    unweighted, as in the released code; `--model.class_weights balanced` gives the rare edges of the tour more weight.

    Args:
        source: `generated`: sampled and solved here, equal for the same `graph_seed`. `pyg`: the published graphs,
            downloaded from the address in PyG. `text`: the authors' files of points and tours, `TSP_train.txt` (or
            `tsp50-500_train.txt`), `..._val.txt` and `..._test.txt`, or others in this format, in the data's `TSP/raw`.
        graph_seed: seed of the generated graphs.
        sizes: graphs in train, validation and test for a smaller (or larger) generated set.
        num_nodes: minimum and maximum number of points of a generated graph, all numbers equally likely.
        options: see `GraphBenchmark`.
    """

    spec = specs.TSP

    def __init__(
        self,
        source: Source = "generated",
        graph_seed: int = 0,
        sizes: tuple[int, int, int] | None = None,
        num_nodes: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("source", source, get_args(Source))
        if source != "generated" and (graph_seed or sizes or num_nodes):
            raise BadInput(
                f"source={source} has its own graphs: graph_seed, sizes and num_nodes belong to source=generated."
            )
        self.source, self.graph_seed = source, graph_seed
        self.num_nodes = num_nodes or (50, 100)
        if len(self.num_nodes) != 2 or not 4 <= self.num_nodes[0] <= self.num_nodes[1]:
            raise BadInput(f"num_nodes must be two ascending numbers of at least 4, got {list(self.num_nodes)}.")
        fewest, most = self.num_nodes
        self.spec = with_sizes(type(self).spec, sizes)
        if source != "generated":
            names = {"pyg": "TSP_v2.zip, by the address in PyG", "text": "the authors' files of points and tours"}
            facts = _PUBLISHED if source == "pyg" else dict.fromkeys(_PUBLISHED) | {"licence": _PUBLISHED["licence"]}
            self.spec = replace(self.spec, **facts, source=names[source], offline=source == "text")
        elif num_nodes:
            mean = (fewest + most) / 2
            edges = sum(n * min(NEIGHBOURS, n - 1) for n in range(fewest, most + 1)) / (most - fewest + 1)
            self.spec = replace(self.spec, mean_nodes=mean, max_nodes=most, mean_edges=edges, disk_mb=None)

    def source_key(self) -> dict[str, Any]:
        """Return address or checksums of the published files, or seed and sizes of the generated graphs."""
        if self.source == "pyg":
            return {"source": "pyg", "address": address("TSP")}
        if self.source == "text":
            files = [text_file(Path(self.root, "TSP", "raw"), split) for split in SPLITS]
            return {"source": "text", "files": [remembered_sha256(file, store=self.store.root) for file in files]}
        sizes = list(self.spec.split_sizes or ())
        return {"source": "generated", "graph_seed": self.graph_seed, "sizes": sizes, "num_nodes": [*self.num_nodes]}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Sample and solve the graphs on all cores, or convert published ones.

        Raises:
            MissingData: a published file is missing or could not be fetched; says how to get it.
            CorruptData: a published file is damaged; names the line.
        """
        folder = Path(self.root, "TSP")
        if self.source == "text":
            return {split: _from_text(text_file(folder / "raw", split)) for split in SPLITS}
        if self.source == "pyg":
            path = fetch("TSP", folder, "Or use graphs that are solved here, without a network: source=generated.")
            return read_splits(path, _from_published, most_nodes=int(_PUBLISHED["max_nodes"]))
        return self.sampled(self._sample)

    def _sample(self, split: int, size: int) -> Iterator[GraphTable]:
        jobs = [
            Chunk((self.graph_seed, split + 1, start // _CHUNK), min(_CHUNK, size - start), self.num_nodes)
            for start in range(0, size, _CHUNK)
        ]
        description = f"Solving TSP {SPLITS[split]}"
        for solved in map_in_processes(solve_chunk, jobs, len(jobs), description, unit=f"chunks of {_CHUNK} graphs"):
            yield graphs_of(solved)


@dataclass(frozen=True)
class Chunk:
    """Graphs that one process samples and solves: `size` graphs, with `num_nodes` as minimum and maximum of points."""

    seed: tuple[int, ...]
    size: int
    num_nodes: tuple[int, int]


def solve_chunk(chunk: Chunk) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return points `[n, 2]` and the order of a shortest tour `[n]` of each graph.

    Examples:
        >>> [(points, tour)] = solve_chunk(Chunk((0,), size=1, num_nodes=(6, 6)))
        >>> points.shape, sorted(tour.tolist())
        ((6, 2), [0, 1, 2, 3, 4, 5])
    """
    random = np.random.default_rng(chunk.seed)
    counts = random.integers(chunk.num_nodes[0], chunk.num_nodes[1], size=chunk.size, endpoint=True)
    instances = [random.random((count, 2)) for count in counts.tolist()]
    return [(points, shortest_tour(points)) for points in instances]


def graphs_of(instances: Sequence[tuple[np.ndarray, np.ndarray]]) -> GraphTable:
    """Return graphs for points `[n, 2]` and closed tours `[n]`: edges to near points, their distances and classes."""
    ends, lengths, classes = zip(*(near_edges(points, tour) for points, tour in instances), strict=True)
    points = [points for points, _ in instances]
    columns: dict[str, tuple[np.ndarray, str]] = {
        "x_dense": (np.concatenate(points).astype(np.float32), NODE),
        "edge_index": (np.concatenate(ends).astype(np.int16), EDGE),
        "edge_dense": (np.concatenate(lengths).astype(np.float32)[:, None], EDGE),
        "y": (np.concatenate(classes).astype(np.uint8)[:, None], EDGE),
    }
    return make_table(columns, [len(part) for part in points], [len(part) for part in ends])


def near_edges(points: np.ndarray, tour: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edges from each point to its nearest others, in ascending order, their lengths, and those of the tour.

    Args:
        points: `[n, 2]`.
        tour: order of the points along the tour `[n]`.

    Returns:
        Ends `[edges, 2]`, lengths `[edges]`, and classes 0 and 1 `[edges]`.

    Examples:
        >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> ends, lengths, classes = near_edges(points, np.array([0, 1, 2, 3]))
        >>> ends[classes == 0].tolist()  # the diagonals
        [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    n = len(points)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    near = np.sort(np.argsort(others, axis=1, kind="stable")[:, : min(NEIGHBOURS, n - 1)], axis=1)
    ends = np.stack([np.repeat(np.arange(n), near.shape[1]), near.reshape(-1)], axis=1)
    place = np.argsort(tour)
    steps = np.abs(place[ends[:, 0]] - place[ends[:, 1]])
    return ends, distances[ends[:, 0], ends[:, 1]], ((steps == 1) | (steps == n - 1)).astype(np.int64)


def _from_text(file: Path) -> Iterator[GraphTable]:
    instances = read_tours(file, fewest=NEIGHBOURS + 1)
    while chunk := list(islice(instances, _TEXT_CHUNK)):
        yield graphs_of(chunk)


def _from_published(graphs: Sequence[Graph]) -> dict[str, tuple[Tensor, str]]:
    """Convert coordinates `[nodes, 2]`, distances and classes `[edges, 1]`; refuse other shapes and classes."""
    x, distance, y = (torch.cat([graph[name] for graph in graphs]) for name in ("x", "edge_attr", "y"))
    if x.dim() != 2 or x.shape[1] != 2:
        raise ValueError(f"x has shape {list(x.shape)} instead of two coordinates per node")
    for name, values in (("edge_attr", distance), ("y", y)):
        if values.numel() != len(values):
            raise ValueError(f"{name} has shape {list(values.shape)} instead of one value for each edge")
    if not bool(((y == 0) | (y == 1)).all()):
        raise ValueError(f"y holds {int(y.min())} to {int(y.max())}")
    return {
        "x_dense": (x.float(), NODE),
        "edge_dense": (distance.reshape(-1, 1).float(), EDGE),
        "y": (y.reshape(-1, 1).to(torch.uint8), EDGE),
    }


def text_file(folder: Path, split: str) -> Path:
    """Return the file of a split."""
    for name in _TEXT_FILES:
        if (path := folder / name.format(split)).is_file():
            return path
    names = " or ".join(name.format(split) for name in _TEXT_FILES)
    raise MissingData(
        f"TSP, source=text: {names} is not in {folder}. Put the files of the authors' archive TSP there (see "
        "their repository benchmarking-gnns), or use source=pyg or source=generated."
    )


def read_tours(file: Path, fewest: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield points `[n, 2]` and the order of the tour `[n]`, from 0, of every line."""
    with file.open(encoding="ascii", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield _parse_instance(line.split(), fewest)
                except ValueError as error:
                    raise CorruptData(f"{file}, line {number}: {error}.") from error


def _parse_instance(words: list[str], fewest: int) -> tuple[np.ndarray, np.ndarray]:
    if words.count(_WORD) != 1:
        raise ValueError(f"expected the word {_WORD!r} once, between points and tour")
    middle = words.index(_WORD)
    points = np.array(words[:middle], dtype=np.float64)
    tour = np.array(words[middle + 1 :], dtype=np.int64) - 1
    if len(points) % 2 or len(points) < 2 * fewest:
        raise ValueError(f"{len(points)} coordinates before {_WORD!r} are not two for each of {fewest} or more points")
    points = points.reshape(-1, 2)
    if not np.isfinite(points).all():
        raise ValueError("a coordinate is not finite")
    if len(tour) != len(points) + 1 or tour[0] != tour[-1] or set(tour.tolist()) != set(range(len(points))):
        raise ValueError(f"the tour does not visit each of {len(points)} points once and end where it began")
    return points, tour[:-1]
