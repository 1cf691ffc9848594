"""Compare the speed of substructure search and DeepGraph's sampling with networkx and a training step.

    python speed/substructures.py [--smiles FILE] [--graphs 12000] [--processes 2] [--rounds 5]

One run prints: the time for all geometric substructures of the molecules, in one process and in several; the number of
matches of each pattern; the rate of networkx's VF2 isomorphism search on a sample, alternating with ours; and the time
to choose and order the substructures of a batch as a share of a step of a plain transformer of DeepGraph's width.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import networkx as nx
import torch
from rdkit import Chem, RDConfig, rdBase
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from graphbench.contracts import Encoded, GraphBatch, GraphTable
from graphbench.encodings.substructures import Kind, Substructures

CONSOLE = Console()
ZINC = Path(__file__).resolve().parents[2] / "shared" / "data" / "zinc" / "val.smi"
NCI = Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi"
GEOMETRIC = Substructures(hops=())
SHAPES = {Kind.CYCLE: nx.cycle_graph, Kind.PATH: nx.path_graph, Kind.STAR: nx.star_graph}


def read_molecules(path: Path, limit: int) -> GraphTable:
    """Read molecules of a SMILES file as graphs of their heavy atoms."""
    rdBase.DisableLog("rdApp.*")

    def graphs() -> Iterator[dict[str, Any]]:
        for line in path.read_text().splitlines()[:limit]:
            molecule = Chem.MolFromSmiles(line.split()[0])
            if molecule is not None:
                bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
                edges = torch.tensor(bonds, dtype=torch.int64).reshape(-1, 2).t()
                yield {"num_nodes": molecule.GetNumAtoms(), "edge_index": torch.cat((edges, edges.flip(0)), 1)}

    return GraphTable.from_graphs(graphs())


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def encode_chunk(chunk: GraphTable) -> Encoded:
    """Encode a chunk in one process."""
    torch.set_num_threads(1)
    return GEOMETRIC.compute(chunk)


def networkx_counts(graphs: GraphTable) -> list[int]:
    """Count matches of each geometric pattern with VF2, every node set once."""
    counts = [0] * len(GEOMETRIC.vocabulary)
    for index in range(len(graphs)):
        batch = graphs.batch([index])
        graph = nx.Graph(batch.edge_index.t().tolist())
        for place, pattern in enumerate(GEOMETRIC.vocabulary):
            matcher = nx.isomorphism.GraphMatcher(graph, SHAPES[pattern.kind](pattern.size))
            counts[place] += len({frozenset(match) for match in matcher.subgraph_isomorphisms_iter()})
    return counts


def compare_search(graphs: GraphTable, processes: int, rounds: int) -> None:
    """Print rates of our search and networkx, alternating, and check that both find the same number of matches."""
    sample = graphs.slice(0, 10)
    chunks = [graphs.slice(start, min(start + 1000, len(graphs))) for start in range(0, len(graphs), 1000)]
    times: dict[str, list[float]] = {"one process": [], f"{processes} processes": [], "networkx VF2": []}
    # Fresh interpreters: a process that is forked while torch's threads run may hang.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(encode_chunk, [sample] * processes))
        for _ in track(range(rounds), "Searching", console=CONSOLE):
            times["one process"].append(timed(lambda: [encode_chunk(chunk) for chunk in chunks]))
            times[f"{processes} processes"].append(timed(lambda: list(pool.map(encode_chunk, chunks))))
            times["networkx VF2"].append(timed(lambda: networkx_counts(sample)))
    table = Table("geometric vocabulary", "graphs", "median s", "min s", "graphs/s")
    for name, seconds in times.items():
        number = len(sample) if "networkx" in name else len(graphs)
        middle = median(seconds)
        table.add_row(name, str(number), f"{middle:.2f}", f"{min(seconds):.2f}", f"{number / middle:,.0f}")
    CONSOLE.print(table)
    ours = torch.bincount(GEOMETRIC.compute(sample).columns["substructure_type"], minlength=len(GEOMETRIC.vocabulary))
    CONSOLE.print(f"Same numbers of matches as networkx on the sample: {ours.tolist() == networkx_counts(sample)}")


def count_matches(graphs: GraphTable) -> GraphTable:
    """Print matches per graph of the full vocabulary; return the table with the encoding."""
    encoding = Substructures(distinct_neighbourhoods=False)
    encoded = encoding.compute(graphs)
    counts = torch.bincount(encoded.columns["substructure_type"], minlength=len(encoding.vocabulary)) / len(graphs)
    kinds = torch.zeros(len(Kind)).index_add_(0, encoding.kind_of_type, counts)
    parts = ", ".join(f"{pattern.name} {count:.2f}" for pattern, count in zip(encoding.vocabulary, counts, strict=True))
    total = ", ".join(f"{kinds[kind]:.1f} of kind {kind.name.lower()}" for kind in Kind if kinds[kind])
    members = len(encoded.columns["member_node"]) / len(graphs)
    CONSOLE.print(f"A graph of {graphs.num_nodes.float().mean():.1f} nodes has {counts.sum():.1f} matches: {total}")
    CONSOLE.print(f"({parts}), with {members:.0f} members in all.")
    return graphs.with_columns(encoded.columns, encoding.layout, encoded.ptr)


def prepare_tokens(batch: GraphBatch, seed: int, coverage: int) -> tuple[float, float]:
    """Return the seconds to choose the substructures of a batch, and to order and encode them."""
    from graphbench_deepgraph import sampler, tokens
    from graphbench_deepgraph import substructure_encoder as encoder

    kind = Substructures().kind_of_type[batch.substructure_type]
    seeds = sampler.sample_seeds(batch.num_graphs, sampler.training_generator(seed, 0, 0))
    start = time.perf_counter()
    ptr = batch.substructure_ptr
    choose = sampler.CoverageSampler(coverage=coverage)
    chosen = choose(batch.member_node, batch.member_substructure, kind, ptr, batch.ptr, seeds)
    middle = time.perf_counter()
    members = tokens.pad_members(batch.member_node, batch.substructure_size, chosen, 17)
    adjacency = encoder.induced_adjacency(members, batch.edge_index, batch.batch, batch.ptr, batch.max_nodes)
    graph = batch.substructure_batch[chosen]
    order_seeds = tokens.ordering_seeds(seeds, graph, chosen - ptr[graph])
    order = encoder.dfs_order(adjacency, batch.substructure_size[chosen], order_seeds)
    encoder.encode_adjacency(adjacency, order)
    return middle - start, time.perf_counter() - middle


def compare_sampling(graphs: GraphTable, rounds: int) -> None:
    """Time the preparation of a batch's tokens, alternating with a training step of plain transformer layers."""
    torch.set_num_threads(1)
    table = Table("batch", "coverage", "layers", "sampling ms", "ordering ms", "step ms", "sampling / step")
    for size, layers, coverage in ((16, 12, 6), (32, 12, 6), (32, 12, 3), (16, 48, 6)):
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(80, 8, 80, batch_first=True), layers)
        tokens = torch.randn(size, 50, 80)
        records = []
        for number in range(rounds):
            batch = graphs.batch(range(number * size, (number + 1) * size))
            sampling, ordering = prepare_tokens(batch, number, coverage)
            records.append((sampling, ordering, timed(lambda: model(tokens).sum().backward())))  # noqa: B023
        sampling, ordering, step = (median(column) * 1e3 for column in zip(*records, strict=True))
        cells = (f"{sampling:.1f}", f"{ordering:.1f}", f"{step:.0f}", f"{sampling / step:.1%}")
        table.add_row(str(size), str(coverage), str(layers), *cells)
    CONSOLE.print(table)
    CONSOLE.print("A step is forward and backward of a plain transformer of DeepGraph's width (80) on 50 tokens.")


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smiles", type=Path, default=ZINC if ZINC.exists() else NCI, help="one SMILES per line")
    parser.add_argument("--graphs", type=int, default=12000, help="lines to read")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="repeats of each measurement")
    arguments = parser.parse_args()
    graphs = read_molecules(arguments.smiles, arguments.graphs)
    CONSOLE.print(f"{len(graphs):,} molecules of {arguments.smiles.name}; torch {torch.__version__}")
    compare_search(graphs, arguments.processes, arguments.rounds)
    compare_sampling(count_matches(graphs), 3 * arguments.rounds)


if __name__ == "__main__":
    main()
