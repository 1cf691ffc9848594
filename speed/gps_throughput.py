"""Training throughput of our GPS against a stack of PyG's `GPSConv` of the same size.

Both models have the ZINC configuration without positional encodings (GINE beside softmax attention with dropout 0.5)
and see the same batches of random graphs, with as many nodes and edges as molecules, peptides or CLUSTER have. A step
is forward, loss, backward, gradient clipping and AdamW; making the batch is left out. The models take turns step by
step, so that a busy machine slows all.

Both have the fused AdamW, which `graphbench` takes by default and a user of PyG has to ask for; a third contender is
ours with the loop over parameters that PyTorch takes by default on a CPU.

    python speed/gps_throughput.py --steps 60 --threads 1
    python speed/gps_throughput.py --kind peptides --steps 10
    python speed/gps_throughput.py --kind cluster --steps 10 --threads 2
"""

from __future__ import annotations

import argparse
import itertools
import platform
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from timing import in_turns, medians, note
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

from graphbench import BenchmarkSpec, Features, GraphBatch, GraphTable
from graphbench.nn import HeadConfig
from graphbench_baselines import GPS


@dataclass(frozen=True)
class Kind:
    """Sizes of the graphs and of the models."""

    mean_nodes: float
    sd_nodes: float
    max_nodes: int
    ring_share: float
    hidden_dim: int
    num_layers: int
    batch_size: int


KINDS = {
    "zinc": Kind(23.2, 4.5, 38, 0.12, 64, 10, 32),
    "peptides": Kind(151.0, 84.0, 444, 0.02, 96, 4, 32),
    "cluster": Kind(117.2, 25.0, 190, 17.4, 48, 16, 16),  # some 4,300 directed edges, as CLUSTER has
}


class BaselineGPS(nn.Module):
    """The same network out of PyG's own layers."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        dim = kind.hidden_dim
        self.node = nn.Embedding(28, dim)
        self.edge = nn.Embedding(4, dim)
        self.layers = nn.ModuleList(
            GPSConv(dim, GINEConv(_mlp(dim)), heads=4, attn_kwargs={"dropout": 0.5}) for _ in range(kind.num_layers)
        )
        self.head = HeadConfig(3, "halving").mlp(dim, 1)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Predictions `[num_graphs, 1]`."""
        x, edge = self.node(batch.x[:, 0]), self.edge(batch.edge_attr[:, 0])
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.batch, edge_attr=edge)
        return self.head(global_add_pool(x, batch.batch, batch.num_graphs))


class OurGPS(nn.Module):
    """Our architecture and the same head."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        spec = BenchmarkSpec("ZINC", "graph-regression", Features((28,)), Features((4,)), "MAE", False, "L1")
        self.architecture = GPS(spec, kind.hidden_dim, kind.num_layers, num_heads=4, categorical="normal")
        self.head = HeadConfig(3, "halving").mlp(kind.hidden_dim, 1)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Predictions `[num_graphs, 1]`."""
        node = self.architecture(batch).node
        return self.head(global_add_pool(node, batch.batch, batch.num_graphs))


def _mlp(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))


def molecule_like(num_graphs: int, kind: Kind, generator: torch.Generator) -> GraphTable:
    """Random trees of bounded degree with some ring closures, both directions of every bond."""
    sizes = torch.randn(num_graphs, generator=generator) * kind.sd_nodes + kind.mean_nodes
    graphs = []
    for n in sizes.round().clamp(8, kind.max_nodes).int().tolist():
        child = torch.arange(1, n)
        parent = (child - 1 - torch.randint(0, 3, (n - 1,), generator=generator)).clamp(min=0)
        rings = torch.randint(0, n, (2, round(kind.ring_share * n)), generator=generator)
        bonds = torch.cat([torch.stack([child, parent]), rings], dim=1)
        kinds = torch.randint(1, 4, (bonds.shape[1], 1), generator=generator)
        graphs.append(
            {
                "num_nodes": n,
                "edge_index": torch.cat([bonds, bonds.flip(0)], dim=1),
                "x": torch.randint(0, 28, (n, 1), generator=generator),
                "edge_attr": torch.cat([kinds, kinds]),
                "y": torch.randn(1, generator=generator),
            }
        )
    return GraphTable.from_graphs(graphs)


def make_step(model: nn.Module, fused: bool) -> Callable[[GraphBatch], None]:
    """A function that trains on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)

    def step(batch: GraphBatch) -> None:
        optimizer.zero_grad()
        F.l1_loss(model(batch), batch.y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return step


def compare(table: GraphTable, kind: Kind, steps: int, bucketed: bool) -> dict[str, list[float]]:
    """Seconds of every step of our model, of the baseline, and of ours without the fused optimizer."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    contenders = {"ours": (OurGPS, True), "PyG": (BaselineGPS, True), "ours, loop": (OurGPS, False)}
    order = table.num_nodes.argsort() if bucketed else torch.randperm(len(table))
    batches = [table.batch(part).to(device) for part in order.split(kind.batch_size) if len(part) == kind.batch_size]
    calls = {}
    for name, (model, fused) in contenders.items():
        turn = itertools.cycle(batches[(7 * number) % len(batches)] for number in range(len(batches)))
        step = make_step(model(kind).to(device), fused)
        calls[name] = lambda step=step, turn=turn: step(next(turn))
    return in_turns(calls, steps, warm_up=2)


def main() -> None:
    """Print one line per batching."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), default="zinc")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    kind = KINDS[args.kind]
    table = molecule_like(20 * kind.batch_size, kind, torch.Generator().manual_seed(0))
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {args.threads} thread(s)"
    print(f"{args.kind}: batch {kind.batch_size}, {args.steps} steps, {where}, torch {torch.__version__}, ", end="")
    print(f"Python {platform.python_version()}")
    heads = f"{'batches':>10} {'ours ms':>9} {'PyG ms':>9} {'ours graphs/s':>14} {'PyG graphs/s':>13} {'ratio':>6}"
    print(f"{heads} {'loop/fused':>10}")
    for name, bucketed in (("random", False), ("by size", True)):
        seconds = compare(table, kind, args.steps, bucketed)
        against_pyg = note(f"{args.kind}, batches {name}", "ours", "PyG", seconds)
        against_loop = note(f"{args.kind}, batches {name}", "ours", "ours, loop", seconds)
        middle = medians(seconds)
        times = f"{1e3 * middle['ours']:9.1f} {1e3 * middle['PyG']:9.1f}"
        rates = f"{kind.batch_size / middle['ours']:14.0f} {kind.batch_size / middle['PyG']:13.0f}"
        print(f"{name:>10} {times} {rates} {1 / against_pyg:6.2f} {1 / against_loop:10.2f}")


if __name__ == "__main__":
    main()
