"""Compare the training throughput of our GPS with a stack of PyG's `GPSConv` and with GraphGPS's published layer.

All models have the ZINC configuration without positional encodings (GINE and softmax attention with dropout 0.5), the
same number of parameters, and the same batches of random graphs, with as many nodes and edges as molecules, peptides or
CLUSTER. A step is forward, loss, backward, gradient clipping and AdamW, without the creation of the batch. The models
alternate step by step, so a busy machine slows all equally.

All use the fused AdamW, which is `graphbench`'s default and which a user of PyG has to request; a last contender is
ours with the loop over parameters that PyTorch uses by default on a CPU.

    python speed/gps_throughput.py --steps 60 --threads 1
    python speed/gps_throughput.py --kind peptides --steps 10
    python speed/gps_throughput.py --kind cluster --steps 10 --threads 2
    python speed/gps_throughput.py --device cuda --precision bf16 --compile
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
from torch_geometric.utils import to_dense_batch

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
    "cluster": Kind(117.2, 25.0, 190, 17.4, 48, 16, 16),  # about 4,300 directed edges, as in CLUSTER
}


#: Contenders whose milliseconds are shown, ours first.
RIVALS = ("ours", "PyG", "GraphGPS")


class BaselineGPS(nn.Module):
    """The same network, built from PyG's layers."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        dim = kind.hidden_dim
        self.node = nn.Embedding(28, dim)
        self.edge = nn.Embedding(4, dim)
        self.layers = nn.ModuleList(self.layer(dim) for _ in range(kind.num_layers))
        self.head = HeadConfig(3, "halving").mlp(dim, 1)

    def layer(self, dim: int) -> nn.Module:
        """Return one GPS layer."""
        return GPSConv(dim, GINEConv(_mlp(dim)), heads=4, attn_kwargs={"dropout": 0.5})

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return predictions `[num_graphs, 1]`."""
        x, edge = self.node(batch.x[:, 0]), self.edge(batch.edge_attr[:, 0])
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.batch, edge_attr=edge)
        return self.head(global_add_pool(x, batch.batch, batch.num_graphs))


class PublishedLayer(nn.Module):
    """GraphGPS's layer (`graphgps/layer/gps_layer.py`), in its configuration with GINE and a transformer.

    Each branch reads the same nodes, adds them to its output after dropout, and normalises; the sum of the branches
    goes through a feed-forward network. Attention pads the graphs to the largest again in every layer.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, attention_dropout: float = 0.5) -> None:
        super().__init__()
        self.local = GINEConv(_mlp(dim))
        self.attention = nn.MultiheadAttention(dim, num_heads, attention_dropout, batch_first=True)
        self.local_norm, self.attention_norm, self.norm = (nn.BatchNorm1d(dim) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor) -> Tensor:
        """Return nodes `[num_nodes, dim]`, with the same shape; called like PyG's `GPSConv`."""
        local = self.local_norm(x + self.dropout(self.local(x, edge_index, edge_attr)))
        padded, mask = to_dense_batch(x, batch)
        mixed, _ = self.attention(padded, padded, padded, key_padding_mask=~mask, need_weights=False)
        found = self.attention_norm(x + self.dropout(mixed[mask]))
        joined = local + found
        out: Tensor = self.norm(joined + self.feed_forward(joined))
        return out


class PublishedGPS(BaselineGPS):
    """The same network, built from GraphGPS's layers."""

    def layer(self, dim: int) -> nn.Module:
        """Return one GPS layer."""
        return PublishedLayer(dim, num_heads=4)


class OurGPS(nn.Module):
    """Our architecture, with these options, and the same head."""

    def __init__(self, kind: Kind, **options: str) -> None:
        super().__init__()
        spec = BenchmarkSpec("ZINC", "graph-regression", Features((28,)), Features((4,)), "MAE", False, "L1")
        self.architecture = GPS(spec, kind.hidden_dim, kind.num_layers, num_heads=4, categorical="normal", **options)
        self.head = HeadConfig(3, "halving").mlp(kind.hidden_dim, 1)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return predictions `[num_graphs, 1]`."""
        node = self.architecture(batch).node
        return self.head(global_add_pool(node, batch.batch, batch.num_graphs))


def _mlp(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))


def molecule_like(num_graphs: int, kind: Kind, generator: torch.Generator) -> GraphTable:
    """Return random trees of bounded degree with some ring closures, with both directions of every bond."""
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


@dataclass(frozen=True)
class Way:
    """Settings with which all contenders train: device, precision, compiled or not."""

    device: str = "cpu"
    precision: str = "32"
    compile: bool = False


def make_step(model: nn.Module, fused: bool, way: Way = Way()) -> Callable[[GraphBatch], None]:
    """Return a function that trains on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    if way.compile:
        model.compile(dynamic=True)

    def step(batch: GraphBatch) -> None:
        optimizer.zero_grad()
        with torch.autocast(way.device, torch.bfloat16, enabled=way.precision == "bf16"):
            loss = F.l1_loss(model(batch), batch.y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if way.device == "cuda":
            torch.cuda.synchronize()

    return step


def compare(table: GraphTable, kind: Kind, steps: int, bucketed: bool, way: Way = Way()) -> dict[str, list[float]]:
    """Return the seconds of every step of our model, both peers, and ours without the fused optimizer."""
    device = way.device
    torch.manual_seed(0)
    contenders: dict[str, tuple[Callable[[Kind], nn.Module], bool]] = {
        "ours": (OurGPS, True),
        "PyG": (BaselineGPS, True),
        "GraphGPS": (PublishedGPS, True),
        "ours, loop": (OurGPS, False),
    }
    order = table.num_nodes.argsort() if bucketed else torch.randperm(len(table))
    batches = [table.batch(part).to(device) for part in order.split(kind.batch_size) if len(part) == kind.batch_size]
    calls, sizes = {}, {}
    for name, (make, fused) in contenders.items():
        turn = itertools.cycle(batches[(7 * number) % len(batches)] for number in range(len(batches)))
        model = make(kind).to(device)
        sizes[name] = sum(parameter.numel() for parameter in model.parameters())
        step = make_step(model, fused, way)
        calls[name] = lambda step=step, turn=turn: step(next(turn))
    assert len(set(sizes.values())) == 1, f"Models of different sizes: {sizes}"
    return in_turns(calls, steps, warm_up=2)


def main() -> None:
    """Print one line per batching."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), default="zinc")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("32", "bf16"), default="32")
    parser.add_argument("--compile", action="store_true", help="compile every contender, for graphs of any size")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    kind = KINDS[args.kind]
    table = molecule_like(20 * kind.batch_size, kind, torch.Generator().manual_seed(0))
    way = Way(args.device, args.precision, args.compile)
    where = torch.cuda.get_device_name() if way.device == "cuda" else f"CPU, {args.threads} thread(s)"
    ways = f"precision {way.precision}{', compiled' if way.compile else ''}"
    print(
        f"{args.kind}: batch {kind.batch_size}, {args.steps} steps, {where}, {ways}, torch {torch.__version__}, ",
        end="",
    )
    print(f"Python {platform.python_version()}")
    columns = (*(f"{name} ms" for name in RIVALS), "graphs/s", "PyG/ours", "GraphGPS/ours", "loop/fused")
    print(f"{'batches':>10}" + "".join(f"{column:>14}" for column in columns))
    for name, bucketed in (("random", False), ("by size", True)):
        seconds = compare(table, kind, args.steps, bucketed, way)
        ratios = [note(f"{args.kind}, batches {name}", "ours", other, seconds) for other in (*RIVALS[1:], "ours, loop")]
        middle = medians(seconds)
        times = "".join(f"{1e3 * middle[rival]:14.1f}" for rival in RIVALS)
        rest = "".join(f"{1 / ratio:14.2f}" for ratio in ratios)
        print(f"{name:>10}{times}{kind.batch_size / middle['ours']:14.0f}{rest}")


if __name__ == "__main__":
    main()
