"""Compare batches of one graph of ogbn-products' size from memory maps with PyG's loaders: time and peak memory.

The graph is generated: 2,449,029 nodes, 61,859,140 edges in both directions, 100 features and 47 classes as in
ogbn-products, degrees that follow a power law up to about 17,500 (Chung and Lu 2002), nodes in random order. It is a
folder of arrays. Ours is a `Graphs` benchmark that reads the folder and keeps features, edges and their index in its
store, memory-mapped; PyG reads the same arrays into a `Data`. No model is trained: a batch is the output of a loader,
with features and classes.

The mode `layers` is different: an untrained GraphSAGE of three layers of 256, between a linear map and a head of two,
represents all nodes and scores those of the test part. Ours is `trainer.test` with `eval_sampler=layers`; PyG's
`GraphSAGE` between the same maps runs on the whole graph in memory, with a sparse matrix, since its `inference` needs
pyg-lib or torch-sparse. In this mode one batch is an evaluation.

Each contender and mode runs in a separate process, and they alternate. Prints seconds until the first batch, median
seconds of later batches, and the peak memory of the process, which includes pages of memory maps while they are in use.

    python speed/huge_graph.py                         # neighbours (if PyG can sample them) and random parts
    python speed/huge_graph.py --modes clusters        # by METIS, which takes minutes; PyG uses the same clusters
    python speed/huge_graph.py --modes layers          # evaluation, layer by layer
    python speed/huge_graph.py --divide 100            # a hundredth of the nodes and edges
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
import torch_geometric.typing as installed
from pytorch_lightning import Trainer
from timing import provenance
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData, ClusterLoader, NeighborLoader, RandomNodeLoader
from torch_geometric.nn import GraphSAGE

from graphbench import build
from graphbench.benchmarks import Graphs
from graphbench.cli.console import peak_memory_mb

NODES, EDGES, FEATURES, CLASSES = 2_449_029, 61_859_140, 100, 47
SHARES = (196_615 / NODES, 39_323 / NODES)  # of training and validation
EXPONENT, OFFSET = 2.6, 44  # of the degrees; the offset bounds the largest
NEIGHBORS, SEEDS, PARTS, JOINED = [15, 10, 5], 1024, 100, 15  # clusters of a batch
MODES = ("neighbors", "random", "clusters", "layers")
HIDDEN, LAYERS = 256, 3  # of the model of `layers`
#: Wall time, or processor time of the process, which other programs disturb less.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_BLOCK = 1 << 22


def write_graph(folder: Path, num_nodes: int, num_edges: int, seed: int = 0) -> int:
    """Generate the graph in blocks; return its largest degree.

    Ends of an edge are drawn with probabilities proportional to `(i + OFFSET) ** (-1 / (EXPONENT - 1))` for the i-th
    node of a random order. A few edges occur twice, as in multigraphs.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(num_nodes).astype(np.int32)
    power = 1 - 1 / (EXPONENT - 1)
    low, high = OFFSET**power, (num_nodes + OFFSET) ** power

    def draw(count: int) -> np.ndarray:
        rank = (low + rng.random((2, count)) * (high - low)) ** (1 / power) - OFFSET
        return order[np.minimum(rank.astype(np.int64), num_nodes - 1)]

    edges = np.lib.format.open_memmap(folder / "edge_index.npy", "w+", np.int32, (2, 2 * num_edges))
    degree = np.zeros(num_nodes, dtype=np.int64)
    for start in range(0, num_edges, _BLOCK):
        stop = min(start + _BLOCK, num_edges)
        ends = draw(stop - start)
        ends[1] = np.where(ends[0] == ends[1], (ends[1] + 1) % num_nodes, ends[1])  # no loops
        edges[:, start:stop], edges[:, num_edges + start : num_edges + stop] = ends, ends[::-1]
        degree += np.bincount(ends.reshape(-1), minlength=num_nodes)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_nodes, FEATURES))
    for start in range(0, num_nodes, _BLOCK // 16):
        stop = min(start + _BLOCK // 16, num_nodes)
        x[start:stop] = rng.standard_normal((stop - start, FEATURES), dtype=np.float32)
    np.save(folder / "y.npy", x[:, :CLASSES].argmax(1))
    shares = np.cumsum([round(share * num_nodes) for share in SHARES])
    rows = np.split(rng.permutation(num_nodes), shares)
    for name, chosen in zip(("train_mask", "val_mask", "test_mask"), rows, strict=True):
        mask = np.zeros(num_nodes, dtype=bool)
        mask[chosen] = True
        np.save(folder / f"{name}.npy", mask)
    return int(degree.max())


def our_loader(mode: str, folder: str, store: str, clusters: int) -> Iterable[Data]:
    """Return training batches of our benchmark."""
    options = {
        "neighbors": {"num_neighbors": NEIGHBORS, "batch_size": SEEDS},
        "random": {"num_parts": PARTS},
        "clusters": {"num_parts": clusters, "batch_size": JOINED},
    }[mode]
    data = Graphs(folder, store=store, sampler=mode, **options)
    data.prepare_data()
    data.setup()
    return data.train_dataloader()


class GivenClusters(ClusterData):
    """PyG's clusters with those that METIS has found for us, so that both use the same."""

    cluster: torch.Tensor

    def _metis(self, rowptr: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
        return self.cluster


def our_clusters(store: str) -> torch.Tensor:
    """Return the number of the cluster of each node, from our store."""
    (found,) = Path(store).glob("clusters-*")
    nodes, ptr = np.load(found / "nodes.npy"), np.load(found / "ptr.npy")
    cluster = np.empty(len(nodes), dtype=np.int64)
    cluster[nodes] = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    return torch.from_numpy(cluster)


def plain_loader(mode: str, folder: str, store: str, clusters: int) -> Iterable[Data]:
    """Return training batches of PyG's loaders, for a graph in memory."""
    values = {path.stem: torch.from_numpy(np.load(path)) for path in Path(folder).glob("*.npy")}
    data = Data(**values | {"edge_index": values.pop("edge_index").to(torch.int64)})
    if mode == "neighbors":
        return NeighborLoader(data, NEIGHBORS, input_nodes=data.train_mask, batch_size=SEEDS, shuffle=True)
    if mode == "random":
        return RandomNodeLoader(data, num_parts=PARTS, shuffle=True)
    GivenClusters.cluster = our_clusters(store)
    return ClusterLoader(GivenClusters(data, clusters, log=False), batch_size=JOINED, shuffle=True)


def our_evaluation(folder: str, store: str, layers: int) -> Callable[[], object]:
    """Return a function that tests a model, layer by layer."""
    data = Graphs(folder, store=store, eval_sampler="layers")
    options = {"hidden_dim": HIDDEN, "num_layers": layers, "aggregation": "mean"}
    module, data = build("GraphSAGE", data, model_options=options)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(accelerator="cpu", devices=1, logger=False, **quiet)
    data.trainer = trainer
    data.prepare_data()
    return lambda: trainer.test(module, data, verbose=False)


def plain_evaluation(folder: str, layers: int) -> Callable[[], object]:
    """Return a function that runs PyG's model on the whole graph, in memory."""
    x, y, mask = (torch.from_numpy(np.load(f"{folder}/{name}.npy")) for name in ("x", "y", "test_mask"))
    source, target = np.load(f"{folder}/edge_index.npy")
    shape = (len(x), len(x))
    sparse = scipy.sparse.coo_array((np.ones(len(source), dtype=np.float32), (target, source)), shape).tocsr()
    parts = (torch.from_numpy(part) for part in (sparse.indptr, sparse.indices, sparse.data))
    adjacency = torch.sparse_csr_tensor(*parts, size=shape)
    encoder = nn.Linear(FEATURES, HIDDEN)
    model = GraphSAGE(HIDDEN, HIDDEN, layers, aggr="mean").eval()
    head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))

    @torch.inference_mode()
    def run() -> float:
        scores = head(model(encoder(x), adjacency)[mask])
        return float((scores.argmax(1) == y[mask]).float().mean())

    return run


def measure_evaluation(
    contender: str, folder: str, store: str, clock: Callable[[], float], layers: int = LAYERS
) -> dict[str, float]:
    """Measure an evaluation of all test nodes."""
    start = clock()
    run = our_evaluation(folder, store, layers) if contender == "ours" else plain_evaluation(folder, layers)
    opened = clock() - start
    start = clock()
    run()
    edges = np.load(f"{folder}/edge_index.npy", mmap_mode="r").shape[1]
    peak = peak_memory_mb(torch.device("cpu")) * 1e6 / 2**30
    return {"first": opened, "batch": clock() - start, "count": 1, "edges": edges, "peak": peak}


def measure(
    contender: str,
    mode: str,
    folder: str,
    store: str,
    batches: int,
    clusters: int = 1500,
    clock: Callable[[], float] = time.perf_counter,
    layers: int = LAYERS,
) -> dict[str, float]:
    """Measure a contender in a process that does nothing else."""
    if mode == "layers":
        return measure_evaluation(contender, folder, store, clock, layers)
    start = clock()
    loader = (our_loader if contender == "ours" else plain_loader)(mode, folder, store, clusters)
    running = iter(loader)
    first = next(running)
    seconds = {"first": clock() - start}
    times, edges = [], [first.edge_index.shape[1]]
    for _ in range(batches):
        start = clock()
        try:
            edges.append(next(running).edge_index.shape[1])
        except StopIteration:
            break
        times.append(clock() - start)
    peak = peak_memory_mb(torch.device("cpu")) * 1e6 / 2**30
    found = {"batch": statistics.median(times), "count": len(loader), "edges": statistics.mean(edges), "peak": peak}
    return seconds | found


def in_process(words: list[str]) -> dict[str, float]:
    """Return the measurements of a separate process."""
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Generate, measure each mode, and print a line for each contender."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["neighbors", "random"])
    parser.add_argument("--batches", type=int, default=20, help="timed batches of each process (default: 20)")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each contender (default: 2)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="use cpu if the machine is busy")
    parser.add_argument("--divide", type=int, default=1, help="divisor of the numbers of nodes and edges")
    parser.add_argument("--clusters", type=int, default=1500)
    parser.add_argument(
        "--layers", type=int, default=LAYERS, help=f"layers of the model of the mode layers (default: {LAYERS})"
    )
    parser.add_argument("--folder", help="keep the graph and the store in this folder, and reuse them")
    parser.add_argument("--alone", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        clock = CLOCKS[options.clock]
        print(json.dumps(measure(*options.alone, options.batches, options.clusters, clock, options.layers)))
        return
    print(", ".join(f"{key} {value}" for key, value in provenance(options.threads).items() if value))
    with tempfile.TemporaryDirectory() as temporary:
        compare(Path(options.folder or temporary), options)


def compare(place: Path, options: argparse.Namespace) -> None:
    """Measure all available modes, each contender in turn."""
    scale = options.divide
    folder, store = place / "graph", place / "store"
    if not (folder / "test_mask.npy").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        largest = write_graph(folder, NODES // scale, EDGES // scale)
        took = time.perf_counter() - start
        print(f"{NODES // scale:,} nodes, {EDGES // scale:,} edges both ways, degrees up to {largest:,}: {took:.0f} s")
    print(
        f"{'mode':>10} {'contender':>10} {'first, s':>9} {'batch, s':>9} {'epoch, s':>9} {'edges':>12} {'peak, GiB':>9}"
    )
    for mode in options.modes:
        both = mode != "neighbors" or installed.WITH_PYG_LIB or installed.WITH_TORCH_SPARSE
        if not both:
            print(f"{mode:>10} {'PyG':>10} left out: it samples by pyg-lib or torch-sparse, and neither is installed")
        for number in range(options.rounds):
            for contender in ("ours", "PyG") if both else ("ours",):
                words = ["--alone", contender, mode, str(folder), str(store)]
                words += [
                    "--threads",
                    str(options.threads),
                    "--batches",
                    str(options.batches),
                    "--clock",
                    options.clock,
                    "--layers",
                    str(options.layers),
                ]
                found = in_process(words)
                name = f"{contender}{'' if number or contender == 'PyG' else ', new'}"  # the first one builds the store
                print(
                    f"{mode:>10} {name:>10} {found['first']:10.1f} {found['batch']:10.3f} "
                    f"{found['batch'] * found['count']:10.1f} {found['edges']:10,.0f} {found['peak']:10.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
