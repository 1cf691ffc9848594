"""Speed and memory of the data path: padding, batches per second, warm start, a data set larger than memory.

    python speed/data_path.py            # padding, batches per second, warm start of 12,000 molecules
    python speed/data_path.py --large    # 123,286 graphs with 59 million nodes, in a temporary folder (4.4 GB)

Molecules are real (SMILES of the ZINC validation split) if that file is available, otherwise synthetic ones of similar
size; the table says which. Contenders alternate, so a busy machine slows all. Baselines are PyG's `DataLoader` over
graphs in memory and, if installed, the data sets of `speed/data_peers.py`, which read from a folder as ours can.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from data_peers import BATCH_SIZE, written_by_peers
from rich.console import Console
from rich.table import Table
from timing import medians, note
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import EDGE_INDEX, pointer
from graphbench.data.encode import encode, with_encoding
from graphbench.data.loader import GraphLoader
from graphbench.data.sampler import SizeBucketSampler, useful_share
from graphbench.data.store import Store
from graphbench.data.tables import content_key, read_table, write_table
from graphbench.encodings import RWSE, LapPE

SMILES = Path(__file__).resolve().parents[2] / "shared" / "data" / "zinc" / "val.smi"
LARGE_GRAPHS, LARGE_NODES, LARGE_DEGREE = 123_286, 478.6, 5.65
GIB = 1 << 30


def show(title: str, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print one table."""
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=120).print(table)


def molecules(count: int) -> tuple[str, list[dict[str, Any]]]:
    """Return graphs of real molecules, or random trees with extra edges of the same sizes, and which of the two."""
    if not SMILES.is_file():
        rng = np.random.default_rng(0)
        sizes = np.clip(rng.normal(23.1, 4.5, count).round(), 6, 38).astype(int)
        return "synthetic molecules", [_graph(n, [(int(rng.integers(i)), i) for i in range(1, n)], rng) for n in sizes]
    from rdkit import Chem

    rng, graphs = np.random.default_rng(0), []
    for line in SMILES.read_text().split()[:count]:
        molecule = Chem.MolFromSmiles(line)
        bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
        graphs.append(_graph(molecule.GetNumAtoms(), bonds, rng))
    return "ZINC molecules", graphs


def _graph(n: int, bonds: list[tuple[int, int]], rng: np.random.Generator) -> dict[str, Any]:
    ends = torch.tensor(bonds, dtype=torch.int64).reshape(-1, 2)
    return {
        "num_nodes": int(n),
        "edge_index": torch.cat([ends, ends.flip(1)]).t().contiguous(),
        "x": torch.from_numpy(rng.integers(0, 28, (int(n), 1))),
        "edge_attr": torch.from_numpy(rng.integers(1, 4, (2 * len(bonds), 1))),
        "y": torch.tensor([float(rng.normal())]),
    }


def padding(zinc_sizes: Tensor, source: str) -> None:
    """Print the useful share of padded attention work, with and without buckets."""
    rng = np.random.default_rng(0)
    spread = np.clip(rng.gamma((151 / 84) ** 2, 84**2 / 151, 15_535).round(), 8, 444)
    kinds = ((source, zinc_sizes), ("peptide-like (gamma)", torch.from_numpy(spread).to(torch.int64)))
    rows = []
    for name, sizes in kinds:
        for batch_size in (32, 128):
            plain, bucketed = (
                useful_share(sizes, SizeBucketSampler(sizes, batch_size, shuffle=True, bucketing=bucketing))
                for bucketing in (False, True)
            )
            rows.append([name, len(sizes), batch_size, f"{plain:.1%}", f"{bucketed:.1%}", f"{bucketed / plain:.2f}"])
    show("Useful share of attention work", ["sizes", "graphs", "batch", "shuffled", "bucketed", "ratio"], rows)


def throughput(graphs: list[dict[str, Any]], source: str, rounds: int = 7) -> None:
    """Print batches of 32 per second: `GraphLoader` and its peers, alternating, with and without workers."""
    generator = torch.Generator().manual_seed(0)
    for graph in graphs:
        graph["pe"] = torch.randn(graph["num_nodes"], 28, generator=generator)
    table = GraphTable.from_graphs(graphs, {"pe": Column("node")})
    data = [Data(**graph) for graph in graphs]
    rows, peers = [], ["PyG"]
    with tempfile.TemporaryDirectory() as folder:
        makers = written_by_peers(graphs, Path(folder))
        peers += makers
        for workers in (0, 1, 2):
            sampler = SizeBucketSampler(table.num_nodes, BATCH_SIZE, shuffle=True)
            options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
            loaders: dict[str, Iterable[Data]] = {
                "GraphLoader": GraphLoader(table, sampler, workers),
                "PyG": DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, **options),
            }
            loaders |= {name: make(workers) for name, make in makers.items()}
            seconds = epochs_in_turns(loaders, sampler, rounds)
            case = f"a batch of {BATCH_SIZE}, {workers} workers"
            ratios = [f"{1 / note(case, 'GraphLoader', peer, seconds):.1f}" for peer in peers]
            rows.append([workers, *(f"{1 / middle:,.0f}" for middle in medians(seconds).values()), *ratios, rounds])
    header = ["workers", "GraphLoader", *peers, *(f"{peer} / ours" for peer in peers), "rounds"]
    title = f"Batches of {BATCH_SIZE} a second, {len(graphs):,} {source} with 28 encoding columns; ratios of seconds"
    show(title, header, rows)


def epochs_in_turns(
    loaders: Mapping[str, Iterable[Data]], sampler: SizeBucketSampler, rounds: int
) -> dict[str, list[float]]:
    """Return seconds per batch of all loaders' alternating epochs, after one that starts workers and warms caches.

    The first epoch also checks that all loaders yield the same graphs.
    """
    contents = {name: contents_of(loader) for name, loader in loaders.items()}
    assert len(set(contents.values())) == 1, contents
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(1, rounds + 1):
        sampler.set_epoch(turn)
        for name, loader in loaders.items():
            started = time.perf_counter()
            count = sum(1 for _ in loader)
            seconds[name].append((time.perf_counter() - started) / count)
    return seconds


def contents_of(loader: Iterable[Data]) -> tuple[int, ...]:
    """Return order-independent numbers of an epoch's graphs: of nodes, of edges, and sums of features."""
    total = torch.zeros(5, dtype=torch.int64)
    for batch in loader:
        features = (batch.x.sum(), batch.edge_attr.sum(), (1e4 * batch.pe.double()).round().sum())
        total += torch.tensor([batch.num_nodes, batch.num_edges, *map(int, features)])
    return tuple(total.tolist())


def warm_start(graphs: list[dict[str, Any]], source: str) -> None:
    """Print the seconds to fill an empty store with LapPE and RWSE, and to open it in a fresh process."""
    table = GraphTable.from_graphs([{k: v for k, v in graph.items() if k != "pe"} for graph in graphs])
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        open_encoded(folder, table)
        cold = time.perf_counter() - started
        warm = [in_new_process(open_encoded, folder)[0] for _ in range(5)]
    header = ["cold, s", "warm, s (median)", "warm, s (worst)"]
    row = [f"{cold:.2f}", f"{statistics.median(warm):.3f}", f"{max(warm):.3f}"]
    show(f"Start with LapPE and RWSE, {len(graphs):,} {source}, beyond imports", header, [row])


def open_encoded(folder: str, table: GraphTable | None = None) -> None:
    """Open (or build from `table`) a data set with both encodings, and create a batch."""
    store = Store(folder)

    def build(writer: Any) -> None:
        assert table is not None
        write_table(writer, "train", table)

    entry = store.open_or_build({"kind": "table"}, build, "molecules")
    raw = joined = read_table(entry, "train")
    for encoding in (LapPE(8), RWSE(20)):
        encoded = encode(raw, encoding, store, content_key(entry, "train"), "molecules")
        joined = with_encoding(joined, encoding, encoded)
    joined.batch(range(32))


def large() -> None:
    """Write and read a data set of the size of COCO-SP, each in a separate process, and print their peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        phases: list[tuple[str, Callable[..., None], tuple[Any, ...]]] = [
            ("write, streamed", write_large, (folder,)),
            ("open", read_large, (folder, 0, False)),
            ("one shuffled epoch", read_large, (folder, 0, True)),
            ("one shuffled epoch, 2 workers", read_large, (folder, 2, True)),
        ]
        rows = []
        for name, phase, arguments in phases:
            seconds, peak, worker = in_new_process(phase, *arguments)
            rows.append([name, f"{seconds:.1f}", f"{peak / GIB:.2f}", f"{worker / GIB:.2f}" if worker else ""])
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.npy"))
    title = (
        f"{LARGE_GRAPHS:,} graphs, {LARGE_GRAPHS * LARGE_NODES / 1e6:.0f} million nodes, {size / GIB:.2f} GiB on disk"
    )
    show(title, ["phase", "seconds", "peak RSS, GiB", "largest worker, GiB"], rows)


def large_chunks(graphs: int = 2_000) -> Iterator[GraphTable]:
    """Yield the data set in parts; values repeat, which affects neither files nor memory."""
    rng = np.random.default_rng(0)
    nodes = torch.from_numpy(rng.normal(LARGE_NODES, 12, graphs).round().astype(np.int64))
    edges = (nodes * LARGE_DEGREE).long()
    width = nodes.repeat_interleave(edges)[:, None]
    columns = {
        "edge_index": (torch.rand(int(edges.sum()), 2) * width).to(torch.int16),
        "edge_dense": torch.rand(int(edges.sum()), 2).half(),
        "x_dense": torch.randn(int(nodes.sum()), 14).half(),
        "y": torch.randint(0, 81, (int(nodes.sum()),), dtype=torch.uint8),
    }
    layout = {"edge_index": EDGE_INDEX, "edge_dense": Column("edge"), "x_dense": Column("node"), "y": Column("node")}
    chunk = GraphTable(columns, layout, {"node": pointer(nodes), "edge": pointer(edges)})
    for start in range(0, LARGE_GRAPHS, graphs):
        yield chunk.slice(0, min(graphs, LARGE_GRAPHS - start))


def write_large(folder: str) -> None:
    """Stream the data set into a store."""
    Store(folder).open_or_build({"kind": "large"}, lambda writer: write_table(writer, "train", large_chunks()), "set")


def read_large(folder: str, num_workers: int, iterate: bool) -> None:
    """Open the data set, and visit every graph."""

    def build(writer: Any) -> None:
        raise AssertionError("the data set must exist")

    table = read_table(Store(folder).open_or_build({"kind": "large"}, build, "set"), "train")
    loader = GraphLoader(table, SizeBucketSampler(table.num_nodes, 32, shuffle=True), num_workers)
    if iterate:
        seen = sum(batch.num_graphs for batch in loader)
        assert seen == LARGE_GRAPHS, seen
    loader.close()


def in_new_process(function: Callable[..., None], *arguments: Any) -> tuple[float, int, int]:
    """Return seconds (without imports) and peak resident bytes of a call in a new process, and its largest child's."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, function, *arguments).result()


def _measured(function: Callable[..., None], *arguments: Any) -> tuple[float, int, int]:
    started = time.perf_counter()
    function(*arguments)
    seconds = time.perf_counter() - started
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return seconds, own * 1024, children * 1024


def main() -> None:
    """Print the tables requested on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--large", action="store_true", help="measure a data set as large as COCO-SP instead (minutes)")
    if parser.parse_args().large:
        large()
        return
    source, graphs = molecules(12_000)
    padding(torch.tensor([graph["num_nodes"] for graph in graphs]), source)
    throughput(graphs[:4_000], source)
    warm_start(graphs, source)


if __name__ == "__main__":
    main()
