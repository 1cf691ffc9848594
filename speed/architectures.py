"""Compare training steps of our models with the same mathematics in plain PyG and torch.

Each model is compared with a copy that has the same weights and computes the same results, as its authors or a user of
PyG would write it:

- GCN: PyG's `GCNConv`, which normalises the edges in every layer;
- GatedGCN: four separate maps, a gather for each operand and two sums over edges, as in GraphGPS;
- GT: three separate maps, PyG's softmax over edges and sum;
- Graphormer: padded graphs through the whole network, logits with the bias, softmax and dropout written out;
- SAT: PyG's `PNAConv`, `to_dense_batch` in every layer, and the same attention;
- SFi-Former: graphs padded to the largest, flows from the composed solver, and GatedGCN as above.

The copies use `torch.optim.AdamW(model.parameters())`, as in PyG's examples; a last contender uses the fused form,
which `graphbench` uses by default. Before timing, both must give the same output. GIN, GAT and GraphSAGE are PyG's own
layers here; GPS is in `gps_throughput.py`, DeepGraph in `deepgraph.py`, SFT in `sft_attention.py`. Batches are those of
`limit.py`.

    python speed/architectures.py
    python speed/architectures.py --configs graphormer/zinc --rounds 15 --threads 2
    python speed/architectures.py --device cuda --batch-size 512
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
from collections.abc import Callable, Sequence
from unittest import mock

import torch
import torch.nn.functional as F
from limit import made, step_of
from timing import in_turns, medians, note
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, PNAConv
from torch_geometric.utils import scatter, softmax, to_dense_batch

from graphbench import BenchmarkModule, GraphBatch, Representation
from graphbench.nn import BatchNorm, DenseLayout, GatedGCNLayer
from graphbench_baselines import GCN, Graphormer
from graphbench_baselines.attention import StructuredAttention
from graphbench_baselines.gt import EdgeAttention
from graphbench_baselines.tower_pna import TowerPNA
from graphbench_sfi_former import SparseFlowAttention, sparse_flow, sparse_flow_attention
from graphbench_sfi_former.enhanced import PaddedGraphs

CONFIGURATIONS = (
    "model/gcn",
    "model/gatedgcn",
    "model/gt",
    "graphormer/zinc",
    "sat/zinc",
    "sfi-former/peptides-func",
)


class PlainGCN(GCN):
    """GCN whose layers get the unmodified edges."""

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        x = self.node_encoder(batch)
        for layer in self.layers:
            x, _ = layer(x, batch.edge_index, None)
        return Representation(node=x)


class PlainGatedGCNLayer(GatedGCNLayer):
    """Layer with separate maps, gathers and sums."""

    def forward(
        self, x: Tensor, edge_index: Tensor, edge: Tensor, distances: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `GatedGCNLayer.forward`, without a distance gate."""
        source, target = edge_index
        weights, biases = self.node_maps.weight.chunk(4), self.node_maps.bias.chunk(4)
        own, sent, at_target, at_source = (F.linear(x, *pair) for pair in zip(weights, biases, strict=True))
        edge_hat = at_target[target] + at_source[source] + self.edge_map(edge)
        gates = torch.sigmoid(edge_hat)
        total = scatter(gates * sent[source], target, 0, len(x), reduce="sum")
        weight = scatter(gates, target, 0, len(x), reduce="sum")
        x_hat = own + total / (weight + 1e-6)
        return self._update(x, x_hat, self.node_norm), self._update(edge, edge_hat, self.edge_norm)


class PlainEdgeAttention(EdgeAttention):
    """Attention with separate maps and gathers."""

    def forward(self, x: Tensor, edge: Tensor | None, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """As `EdgeAttention.forward`, with edge vectors."""
        assert self.edge_map is not None
        assert self.edge_out is not None
        source, target = batch.edge_index
        weights, biases = self.qkv_map.weight.chunk(3), self.qkv_map.bias.chunk(3)
        q, k, v = (
            F.linear(x, *pair).view(len(x), self.num_heads, -1) for pair in zip(weights, biases, strict=True)
        )  # fmt: skip
        scores = q[target] * k[source] / q.shape[-1] ** 0.5
        scores = scores * self.edge_map(edge).view_as(scores)
        attention = softmax(scores.sum(-1).clamp(-5, 5), target, num_nodes=len(x))
        mixed = scatter(attention.unsqueeze(-1) * v[source], target, 0, len(x), reduce="sum").flatten(1)
        node = self.node_out(self.dropout(mixed))
        return node, self.edge_out(self.dropout(scores.flatten(1)))


class PlainAttention(StructuredAttention):
    """Softmax attention written out, over graphs padded to the largest."""

    def padded(self, x: Tensor, structure: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
        """Attend in padded graphs `[G, N, dim]`, with nodes marked by `mask [G, N]`; bias `[G, H, N, N]`."""
        maps = (*self.qk_map(structure).chunk(2, -1), self.v_map(x))
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in maps)
        logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        logits = logits if bias is None else logits + bias
        weights = logits.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
        mixed = F.dropout(weights, self.dropout, self.training) @ v
        out: Tensor = self.out_map(mixed.transpose(1, 2).flatten(2))
        return out

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout,
        biases: Sequence[Tensor | None] | None = None,
        structure: Tensor | None = None,
    ) -> Tensor:
        """As `StructuredAttention.forward`, without biases."""
        dense, mask = to_dense_batch(x, layout.graph_of)
        around = dense if structure is None else to_dense_batch(structure, layout.graph_of)[0]
        return self.padded(dense, around, mask)[mask]


class PlainPNA(TowerPNA):
    """PyG's own layer."""

    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge: Tensor | None, arriving: Tensor
    ) -> Tensor:
        """As `TowerPNA.forward`."""
        new: Tensor = PNAConv.forward(self, x, edge_index, edge)
        return new


class PlainGraphormer(Graphormer):
    """Pre-norm layers on padded graphs: the graph token, then the nodes."""

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]` and graph tokens `[num_graphs, hidden_dim]`."""
        nodes, there = to_dense_batch(self.embedding(batch), batch.batch)
        token = self.graph_token.weight.expand(len(nodes), 1, -1)
        x = self.input_dropout(torch.cat([token, nodes], 1))
        mask = F.pad(there, (1, 0), value=True)
        slots = torch.arange(mask.numel(), device=mask.device).view_as(mask)[:, 1:][there]
        bias = self.bias(batch, slots, mask.shape[1])
        for layer in self.layers:
            normed = layer.attention_norm(x)
            mixed = layer.attention.padded(normed, normed, mask, bias)
            x = x + layer.dropout(mixed)
            x = x + layer.ffn(layer.ffn_norm(x))
        x = self.final(x)
        return Representation(node=x[:, 1:][there], graph=x[:, 0])


class PlainSparseFlowAttention(SparseFlowAttention):
    """Flow composed of softmaxes, the reference solver and dropout, each with its matrix in memory."""

    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Return Z V `[B, H, N, dim]`."""
        query, key, value, friction_query, friction_key = graphs.maps
        dropout = self.dropout.p if self.training else 0.0
        weight, mask = self.weight_of_friction(graphs), self._mask(graphs)
        operands = (query, key, friction_query, friction_key, value, weight, self.alpha, mask)
        return sparse_flow_attention(*operands, dropout=dropout, solver=sparse_flow)


PLAIN: dict[type[nn.Module], type[nn.Module]] = {
    BatchNorm: nn.BatchNorm1d,
    GCN: PlainGCN,
    GatedGCNLayer: PlainGatedGCNLayer,
    EdgeAttention: PlainEdgeAttention,
    StructuredAttention: PlainAttention,
    TowerPNA: PlainPNA,
    Graphormer: PlainGraphormer,
    SparseFlowAttention: PlainSparseFlowAttention,
}


def plain(model: BenchmarkModule) -> BenchmarkModule:
    """Return a copy with the same weights and plain layers."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, GCNConv):
            module.normalize, module.add_self_loops = True, True
        if type(module) in PLAIN:
            module.__class__ = PLAIN[type(module)]
    return copied


def padded(step: Callable[[], None]) -> Callable[[], None]:
    """Return the step without our blocks of graphs of similar size: all are padded to the largest."""

    def run() -> None:
        with mock.patch("graphbench.nn.dense.cut_by_size", return_value=None):
            step()

    return run


@torch.no_grad()
def check_equal(model: BenchmarkModule, other: BenchmarkModule, batch: GraphBatch) -> None:
    """Check that both give the same scores without dropout.

    Raises:
        AssertionError: they do not.
    """
    with mock.patch("graphbench.nn.dense.cut_by_size", return_value=None):
        found = other.eval()(batch)
    torch.testing.assert_close(found, model.eval()(batch), atol=1e-4, rtol=1e-4)
    model.train(), other.train()


def main() -> None:
    """Print one line per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=CONFIGURATIONS, help="installed configurations")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="graphs per batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sys.argv = sys.argv[:1]  # LightningCLI warns about options that it was not given
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    columns = ("ours ms", "plain ms", "+ fused", "ratio", "+ fused")
    print(f"{'configuration':<24}{'parameters':>11}" + "".join(f"{column:>9}" for column in columns))
    for configuration in options.configs:
        torch.manual_seed(0)
        model, batch = made(configuration, options.batch_size, options.device)
        other = plain(model)
        check_equal(model, other, batch)
        fused = copy.deepcopy(other)
        calls = {
            "ours": step_of(model, batch),
            "plain PyG and torch": padded(step_of(other, batch, fused=None)),
            "plain, fused AdamW": padded(step_of(fused, batch)),
        }
        seconds = in_turns(calls, options.rounds, warm_up=2)
        names = tuple(calls)
        ratios = [note(configuration, names[0], other_name, seconds) for other_name in names[1:]]
        count, middle = sum(parameter.numel() for parameter in model.parameters()), medians(seconds)
        times = "".join(f"{1e3 * middle[name]:9.1f}" for name in names)
        print(f"{configuration:<24}{count:11,}{times}{ratios[0]:9.2f}{ratios[1]:9.2f}", flush=True)


if __name__ == "__main__":
    main()
