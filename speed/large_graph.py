"""Compare one large graph of ogbn-arxiv's size with PyG's plain loop: time and peak memory of preparing and an epoch.

The graph is generated: power-law degrees, connected, every edge in both directions, 128 features and 40 classes as in
ogbn-arxiv, labels that depend on the features of neighbours. Both sides use the same network: a linear map, three
layers of GCN (or GraphSAGE for neighbours) with batch norm, ReLU and dropout, a linear map.

Ours is a `Graphs` benchmark trained by Lightning with its metrics; PyG is the loop of its examples, which computes the
accuracy of the training nodes. They alternate epoch by epoch within one process; the ratio is the median over rounds.
Peak memory and the time of preparing are measured in separate processes, which also alternate. Preparing is everything
before the first batch, for a new file (PyG's is an `InMemoryDataset` that reads the same file, stores it in its own
format and opens that) and for one that was prepared before.

    python speed/large_graph.py                        # full batch, random parts, neighbours if PyG can sample them
    python speed/large_graph.py --modes full --rounds 9 --hidden-dim 256
    python speed/large_graph.py --quick                # a tenth of the nodes and edges
    python speed/large_graph.py --modes encodings      # LapPE, and RWSE of 4 steps, at that size
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
import torch_geometric.typing as installed
from timing import medians, note, provenance
from torch import Tensor, nn
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import NeighborLoader, RandomNodeLoader
from torch_geometric.nn import GCNConv, SAGEConv

import graphbench
from graphbench.benchmarks import Graphs
from graphbench.benchmarks.graphs.readers.saved import PARTS_OF_DATA
from graphbench.cli.console import peak_memory_mb
from graphbench.encodings import RWSE, LapPE

FEATURES, CLASSES, SHARES = 128, 40, (0.54, 0.18, 0.28)
LAYERS, DROPOUT, NEIGHBORS, SEEDS, PARTS = 3, 0.5, [15, 10, 5], 1024, 10
MODES = ("prepare", "full", "random", "neighbors", "encodings")


def power_law_graph(num_nodes: int, num_edges: int, seed: int = 0, exponent: float = 2.6) -> Data:
    """Generate a connected graph with power-law degrees (Chung and Lu 2002 over a random recursive tree).

    Args:
        num_nodes: N.
        num_edges: undirected edges; each occurs in both directions, and none twice.
        seed: seed of everything.
        exponent: exponent of the degrees.
    """
    rng = np.random.default_rng(seed)
    weight = np.cumsum((np.arange(num_nodes) + 10.0) ** (-1 / (exponent - 1)))
    child = np.arange(1, num_nodes)
    pairs = np.stack([(rng.random(num_nodes - 1) ** 2 * child).astype(np.int64), child])
    while pairs.shape[1] < num_edges:
        more = np.searchsorted(weight, rng.random((2, num_edges + num_edges // 4 - pairs.shape[1])) * weight[-1])
        pairs = np.concatenate([pairs, more], 1)
        pairs = np.sort(pairs[:, pairs[0] != pairs[1]], axis=0)
        first = np.sort(np.unique(pairs[0] * num_nodes + pairs[1], return_index=True)[1])
        pairs = pairs[:, first][:, :num_edges]
    edges = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], 1))
    x = torch.from_numpy(rng.standard_normal((num_nodes, FEATURES), dtype=np.float32))
    mean = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]]) / edges[1].bincount(minlength=num_nodes)[:, None]
    y = (x + mean)[:, :CLASSES].argmax(1)
    order = rng.permutation(num_nodes)
    ends = np.cumsum([round(share * num_nodes) for share in SHARES[:2]])
    masks = {}
    for name, rows in zip(("train_mask", "val_mask", "test_mask"), np.split(order, ends), strict=True):
        masks[name] = torch.zeros(num_nodes, dtype=torch.bool)
        masks[name][rows] = True
    return Data(x=x, edge_index=edges, y=y, **masks)


class PlainDataset(InMemoryDataset):
    """The graph as a PyG data set."""

    def __init__(self, source: str, root: str) -> None:
        self.source = source
        super().__init__(root)
        with torch.serialization.safe_globals(PARTS_OF_DATA):
            self.load(self.processed_paths[0])

    @property
    def processed_file_names(self) -> list[str]:
        """Return the output files of `process`."""
        return ["data.pt"]

    def process(self) -> None:
        """Read the source and store it."""
        with torch.serialization.safe_globals(PARTS_OF_DATA):
            self.save([torch.load(self.source, weights_only=True)], self.processed_paths[0])


class PlainNetwork(nn.Module):
    """The network of `graphbench_baselines.GCN` or `GraphSAGE`, built from PyG's layers."""

    def __init__(self, conv: Callable[[int, int], nn.Module], dim: int) -> None:
        super().__init__()
        self.drops_first = conv is SAGEConv
        self.first, self.last = nn.Linear(FEATURES, dim), nn.Linear(dim, CLASSES)
        self.convs = nn.ModuleList(conv(dim, dim) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(LAYERS))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits `[num_nodes, CLASSES]`."""
        x = self.first(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            if self.drops_first:
                x = norm(F.relu(conv(F.dropout(x, DROPOUT, self.training), edge_index)))
            else:
                x = F.dropout(F.relu(norm(conv(x, edge_index))), DROPOUT, self.training)
        return self.last(x)


def plain_batches(mode: str, data: Data) -> Callable[[], Iterator[tuple[Data, Tensor]]]:
    """Return batches of PyG's loaders, each with the rows that enter the loss."""
    if mode == "full":
        return lambda: iter([(data, data.train_mask)])
    if mode == "random":
        parts = RandomNodeLoader(data, num_parts=PARTS, shuffle=True)
        return lambda: ((part, part.train_mask) for part in parts)
    around = NeighborLoader(data, num_neighbors=NEIGHBORS, input_nodes=data.train_mask, batch_size=SEEDS, shuffle=True)
    return lambda: ((part, torch.arange(part.num_nodes) < part.batch_size) for part in around)


def plain_epoch(mode: str, data: Data, dim: int) -> Callable[[], None]:
    """Return an epoch as in PyG's examples."""
    model = PlainNetwork(SAGEConv if mode == "neighbors" else GCNConv, dim)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batches = plain_batches(mode, data)

    def epoch() -> None:
        model.train()
        correct = total = 0
        for batch, rows in batches():
            optimizer.zero_grad()
            output = model(batch.x, batch.edge_index)[rows]
            F.cross_entropy(output, batch.y[rows]).backward()
            optimizer.step()
            correct += int((output.argmax(1) == batch.y[rows]).sum())
            total += len(output)

    return epoch


def our_parts(mode: str, source: str, folder: str, dim: int) -> tuple[pl.LightningModule, pl.LightningDataModule]:
    """Return our module and data for a mode."""
    options: dict[str, Any] = {"full": {}, "random": {"num_parts": PARTS}}.get(
        mode, {"num_neighbors": NEIGHBORS, "batch_size": SEEDS}
    )
    data = Graphs(source, store=folder, sampler=mode, **options)
    name = "GraphSAGE" if mode == "neighbors" else "GCN"
    model: dict[str, Any] = {"hidden_dim": dim, "num_layers": LAYERS, "dropout": DROPOUT, "residual": False}
    model |= {"aggregation": "mean", "unit_length": False} if mode == "neighbors" else {}
    head = graphbench.nn.HeadConfig(num_layers=1)
    return graphbench.build(name, data, model_options=model, head=head)


class Turns(pl.Callback):
    """Callback that times our epochs, and after each one an epoch of the other contender."""

    def __init__(self, other: Callable[[], None] | None, warm_up: int) -> None:
        self.other, self.warm_up = other, warm_up
        self.seconds: dict[str, list[float]] = {"ours": [], "PyG": []}
        self.start = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self.start = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop it, and let the other run."""
        ours = time.perf_counter() - self.start
        other = 0.0
        if self.other is not None:
            start = time.perf_counter()
            self.other()
            other = time.perf_counter() - start
        if trainer.current_epoch >= self.warm_up:
            self.seconds["ours"].append(ours)
            self.seconds["PyG"].append(other)


def train(module: pl.LightningModule, data: pl.LightningDataModule, epochs: int, turns: Turns, folder: str) -> None:
    """Run our training, without validation."""
    pl.Trainer(
        max_epochs=epochs, limit_val_batches=0, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[turns], accelerator="cpu", devices=1, default_root_dir=folder,
    ).fit(module, datamodule=data)  # fmt: skip


def alone(contender: str, mode: str, source: str, folder: str, dim: int) -> dict[str, float]:
    """Return seconds of preparing the data, or one epoch, in a process that does nothing else, and its peak memory."""
    start = time.perf_counter()
    if contender == "ours" and mode == "prepare":
        data = Graphs(source, store=folder)
        data.prepare_data()
        data.setup()
    elif contender == "ours":
        train(*our_parts(mode, source, folder, dim), 1, Turns(None, 0), folder)
    elif mode == "prepare":
        PlainDataset(source, folder)[0]
    else:
        with torch.serialization.safe_globals(PARTS_OF_DATA):
            graph = torch.load(source, weights_only=True)
        plain_epoch(mode, graph, dim)()
    took = {"prepare s": time.perf_counter() - start} if mode == "prepare" else {}
    return took | {"peak GiB": peak_memory_mb(torch.device("cpu")) * 1e6 / 2**30}


def encodings_alone(source: str) -> dict[str, float]:
    """Return seconds of encodings of the whole graph."""
    with torch.serialization.safe_globals(PARTS_OF_DATA):
        graph = torch.load(source, weights_only=True)
    table = graphbench.GraphTable.from_graphs([{"num_nodes": graph.num_nodes, "edge_index": graph.edge_index}])
    found = {}
    for name, encoding in (("LapPE(8) s", LapPE(8, "symmetric")), ("RWSE(4) s", RWSE(4))):
        start = time.perf_counter()
        encoding.compute(table)
        found[name] = time.perf_counter() - start
    return found | {"peak GiB": peak_memory_mb(torch.device("cpu")) * 1e6 / 2**30}


def in_process(words: list[str]) -> dict[str, float]:
    """Return the measurements of a separate process."""
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(mode: str, source: str, folder: str, options: argparse.Namespace) -> str:
    """Return one line: median seconds of alternating epochs, and their ratio."""
    with torch.serialization.safe_globals(PARTS_OF_DATA):
        graph = torch.load(source, weights_only=True)
    module, data = our_parts(mode, source, folder, options.hidden_dim)
    turns = Turns(plain_epoch(mode, graph, options.hidden_dim), warm_up=1)
    train(module, data, options.rounds + 1, turns, folder)
    ratio = note(f"epoch, {mode}", "ours", "PyG", turns.seconds)
    middle = medians(turns.seconds)
    return f"{mode:>10} {middle['ours']:9.2f} {middle['PyG']:9.2f} {ratio:7.2f}"


def main() -> None:
    """Generate, measure each mode, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["prepare", "full", "random", "neighbors"])
    parser.add_argument("--nodes", type=int, default=170_000)
    parser.add_argument("--edges", type=int, default=1_200_000)
    parser.add_argument("--hidden-dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a tenth of the graph")
    parser.add_argument("--alone", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        contender, mode, source, folder = options.alone
        dim = options.hidden_dim
        found = encodings_alone(source) if mode == "encodings" else alone(contender, mode, source, folder, dim)
        print(json.dumps(found))
        return
    if options.quick:
        options.nodes, options.edges = options.nodes // 10, options.edges // 10
    print(", ".join(f"{key} {value}" for key, value in provenance(options.threads).items() if value))
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder) / "graph.pt")
        graph = power_law_graph(options.nodes, options.edges)
        degree = graph.edge_index[0].bincount()
        torch.save(graph, source)
        print(f"{options.nodes:,} nodes, {options.edges:,} edges both ways, degrees {degree.min()} to {degree.max()}")
        del graph
        measure(source, folder, options)


def measure(source: str, folder: str, options: argparse.Namespace) -> None:
    """Measure all available modes."""
    same = ["--hidden-dim", str(options.hidden_dim), "--threads", str(options.threads)]
    if "encodings" in options.modes:
        print("encodings:", _told(in_process(["--alone", "ours", "encodings", source, folder, *same])))
    if "prepare" in options.modes:
        measure_preparing(source, folder, options.rounds, same)
    print(f"{'epoch':>10} {'ours s':>9} {'PyG s':>9} {'ratio':>7}   peak GiB ours, PyG")
    for mode in (mode for mode in options.modes if mode in ("full", "random", "neighbors")):
        if mode == "neighbors" and not (installed.WITH_PYG_LIB or installed.WITH_TORCH_SPARSE):
            print(f"{mode:>10} left out: PyG samples neighbours by pyg-lib or torch-sparse, and neither is installed")
            continue
        line = compare(mode, source, f"{folder}/first/ours", options)
        peaks = [
            in_process(["--alone", who, mode, source, f"{folder}/first/ours", *same])["peak GiB"]
            for who in ("ours", "PyG")
        ]
        print(f"{line}   {peaks[0]:.2f}, {peaks[1]:.2f}", flush=True)


def measure_preparing(source: str, folder: str, rounds: int, same: list[str]) -> None:
    """Measure preparing, for the first time and again; the epochs reuse our store of the last round."""
    seconds: dict[str, dict[str, list[float]]] = {told: {"ours": [], "PyG": []} for told in ("first", "again")}
    peaks: dict[str, dict[str, float]] = {told: {} for told in seconds}
    for number in range(rounds):
        for contender in ("ours", "PyG") if number % 2 else ("PyG", "ours"):  # the first one gets colder memory
            place = f"{folder}/{'first' if number == rounds - 1 else number}/{contender}"
            for told, times in seconds.items():
                found = in_process(["--alone", contender, "prepare", source, place, *same])
                times[contender].append(found["prepare s"])
                peaks[told][contender] = found["peak GiB"]
        if number < rounds - 1:
            shutil.rmtree(f"{folder}/{number}")
    for told, times in seconds.items():
        ratio, middle = note(f"prepare, {told}", "ours", "PyG", times), medians(times)
        memory = f"{peaks[told]['ours']:.2f}, {peaks[told]['PyG']:.2f}"
        print(
            f"prepare, {told}: ours {middle['ours']:.3f} s, PyG {middle['PyG']:.3f} s, ratio {ratio:.2f}, GiB {memory}"
        )


def _told(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items())


if __name__ == "__main__":
    main()
