"""DIFFormer: diffusion over all pairs of nodes whose rates decrease an energy; its simple and its advanced form.

Wu et al., "DIFFormer: Scalable (Graph) Transformers Induced by Energy Constrained Diffusion", ICLR 2023,
arXiv 2301.09474.

Legend: T nodes of all graphs, B graphs, n nodes of a graph, N of the largest one, H heads, each as wide as the model.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.errors import check_choice, check_range
from graphbench.nn import Categorical, DenseLayout, NodeEncoder, NormName, make_norm
from graphbench_large_graphs.linear import PairWeights, attention_matrices, check_width, linear_attention, unit_norm
from graphbench_large_graphs.propagation import WeightedEdges, symmetric_edges

Form = Literal["simple", "sigmoid"]
#: Weights of the sigmoid form in one chunk: 16 MiB in float32.
_CHUNK_WEIGHTS = 2**22


def sigmoid_attention(q: Tensor, k: Tensor, v: Tensor, layout: DenseLayout, chunk_weights: int | None = None) -> Tensor:
    """Compute `out_i = sum_j s(q_i . k_j) v_j / sum_j s(q_i . k_j)`, s logistic: quadratic time, linear memory.

    Queries are processed in chunks with few weights over all keys; the backward pass recomputes those of two or more.

    Args:
        q: queries `[T, H, d]`.
        k: keys `[T, H, d]`.
        v: values `[T, H, d]`.
        layout: layout of the nodes in padded graphs.
        chunk_weights: maximum number of weights in a chunk, 4 million by default; at least one row.

    Returns:
        Mixed values `[T, H, d]` in the precision of `v`.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 1]))
        >>> values = torch.tensor([[[1.0]], [[3.0]], [[5.0]]])
        >>> sigmoid_attention(torch.zeros(3, 1, 1), values, values, layout).flatten()
        tensor([2., 2., 5.])
    """
    precision = torch.promote_types(v.dtype, torch.float32)
    rows = torch.cat([part.flatten(1).to(precision) for part in (q, k, v)], dim=-1)
    parts = []
    with torch.autocast(v.device.type, enabled=False):
        heads = layout.to_block_heads(rows, 3, q.shape[1])
        for block, (queries, keys, values) in zip(layout.blocks, heads, strict=True):
            real = block.layout.mask[:, None, None, :]
            weights_per_row = real.shape[0] * q.shape[1] * real.shape[-1]  # of one query in every graph and head
            rows_per_chunk = max(1, (chunk_weights or _CHUNK_WEIGHTS) // max(1, weights_per_row))
            pieces = queries.split(rows_per_chunk, dim=2)
            # A single chunk is small enough to keep: recomputing it would save nothing.
            recompute = torch.is_grad_enabled() and len(pieces) > 1
            mixed = [
                checkpoint(_sigmoid_rows, piece, keys, values, real, use_reentrant=False)
                if recompute
                else _sigmoid_rows(piece, keys, values, real)
                for piece in pieces
            ]
            parts.append(torch.cat(mixed, dim=2))
    return layout.from_block_heads(parts).unflatten(-1, (q.shape[1], -1)).to(v.dtype)


def _sigmoid_rows(queries: Tensor, keys: Tensor, values: Tensor, real: Tensor) -> Tensor:
    """Mix values `[B, H, r, d]` for some queries `[B, H, r, d]`; `real [B, 1, 1, N]` is False at padding.

    The softmax of `log s` is `s / sum s`. It also works if every s of a row is below the smallest number of the
    precision, when a quotient of sums would be 0 / 0.
    """
    logarithms = F.logsigmoid(queries @ keys.transpose(-1, -2))
    return logarithms.masked_fill(~real, -torch.inf).softmax(-1) @ values


class DiffusionAttention(Traced):
    """One step of diffusion over all pairs of nodes and along edges, the mean of its heads.

        simple      w_ij = 1 + q_i . k_j, all queries (keys) of a graph together of Frobenius norm 1
        sigmoid     w_ij = s(q_i . k_j), s the logistic function

        x'_i = mean_h(sum_j w_ij v_j / sum_j w_ij + sum_j A_ij v_j),      v = V x, or x itself

    A is the normalised adjacency matrix with self-loops. With a share g the two sums are weighted by 1 - g and g.

    Args:
        dim: width of the nodes and of each head.
        num_heads: heads H.
        form: simple or sigmoid.
        value_map: V is a linear map; False: the identity.
        graph_weight: share g of the edges; None: both sums have weight 1.

    Raises:
        BadInput: `form` is unknown, or `dim` is 1 with the simple form.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(), sizes=[3, 4]).batch([0, 1])
        >>> attention = DiffusionAttention(8, num_heads=2)
        >>> attention(torch.randn(7, 8), batch, DenseLayout.from_batch(batch), None).shape
        torch.Size([7, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 1,
        form: Form = "simple",
        value_map: bool = False,
        graph_weight: float | None = None,
    ) -> None:
        super().__init__()
        check_choice("form", form, ("simple", "sigmoid"))
        if form == "simple":
            check_width(dim)
        self.num_heads = num_heads
        self.form = form
        self.graph_weight = graph_weight
        self.qk_map = nn.Linear(dim, 2 * num_heads * dim)
        self.value_map = nn.Linear(dim, num_heads * dim) if value_map else None

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout, edges: WeightedEdges | None) -> Tensor:
        """Mix nodes `[T, dim]`; without `edges` by attention only."""
        q, k = (part.unflatten(-1, (self.num_heads, -1)) for part in self.qk_map(x).chunk(2, dim=-1))
        # A mean of heads, not a concatenation: each head is as wide as the model, and x itself can be its value.
        v = x[:, None].expand_as(q) if self.value_map is None else self.value_map(x).unflatten(-1, (self.num_heads, -1))
        if self.form == "simple":
            q, k = (unit_norm(part, batch.batch, batch.num_graphs) for part in (q, k))
            out = linear_attention(q, k, v, layout, uniform=1.0).mean(1)
        else:
            out = sigmoid_attention(q, k, v, layout).mean(1)
        # Before edges are added: the trace shows attention only.
        self.trace(lambda: self._record(x, q, k, batch, layout, out))
        if edges is None:
            return out
        along = edges.mix(v.mean(1))  # a sum over neighbours of the mean is the mean of the sums
        return out + along if self.graph_weight is None else torch.lerp(out, along.to(out.dtype), self.graph_weight)

    @torch.no_grad()
    def _record(
        self, x: Tensor, q: Tensor, k: Tensor, batch: GraphBatch, layout: DenseLayout, out: Tensor
    ) -> LayerTrace:
        if self.form == "simple":
            matrices = attention_matrices(q, k, layout, uniform=1.0)
        else:
            # The softmax of log s is s / sum s, as in `_sigmoid_rows`.
            matrices = PairWeights(
                q, k, layout, lambda q, k: F.logsigmoid(torch.einsum("ihm,jhm->hij", q, k)).softmax(-1)
            )
        values = x[:, None].expand(-1, self.num_heads, -1)
        if self.value_map is not None:
            values = F.linear(x, self.value_map.weight).unflatten(-1, (self.num_heads, -1))
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            values=values / self.num_heads,  # the output is the mean of the heads
            attention=matrices,
            num_nodes=batch.ptr.diff(),
            input=x,
        )


class DIFFormer(Architecture):
    """DIFFormer-s and DIFFormer-a (Wu et al., ICLR 2023); defaults are for DIFFormer-s on Cora.

    `x0 = Drop(ReLU(Norm(encode)))`, then `Drop(Norm(a diffusion(x) + (1 - a) x))` per layer, see `DiffusionAttention`.

    Time and memory: `B L (H N d^2 + E d)`, `B L (H (N d + d^2) + E d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes and of each head.
        num_layers: steps of diffusion.
        num_heads: heads, which are averaged.
        form: simple (DIFFormer-s, linear time) or sigmoid (DIFFormer-a, quadratic time in linear memory).
        alpha: share a of the new state.
        dropout: probability of every dropout.
        norm: layer, batch or none.
        use_graph: also diffuse along edges.
        graph_weight: share of the edges; None: both sums have weight 1.
        value_map: compute values with a linear map; the published runs on citation graphs have none.
        positional_encoders: their outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = DIFFormer(tiny_spec(), hidden_dim=16, num_layers=2, form="sigmoid")
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 8,
        num_heads: int = 1,
        form: Form = "simple",
        alpha: float = 0.5,
        dropout: float = 0.2,
        norm: NormName = "layer",
        use_graph: bool = True,
        graph_weight: float | None = None,
        value_map: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("alpha", alpha, above=0, at_most=1)
        if graph_weight is not None:
            check_range("graph_weight", graph_weight, above=0, below=1)
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        self.layers = nn.ModuleList(
            DiffusionAttention(hidden_dim, num_heads, form, value_map, graph_weight) for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(make_norm(norm, hidden_dim) for _ in range(num_layers + 1))
        self.alpha, self.dropout, self.use_graph = alpha, nn.Dropout(dropout), use_graph

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        layout = DenseLayout.from_batch(batch)
        x = self.dropout(self.norms[0](self.node_encoder(batch)).relu())
        edges = symmetric_edges(batch, x.dtype) if self.use_graph else None
        for layer, norm in zip(self.layers, self.norms[1:], strict=True):
            # An explicit Euler step of size a, the paper's tau; the diffusion has neither norm nor dropout.
            x = norm(self.alpha * layer(x, batch, layout, edges) + (1 - self.alpha) * x)
            x = self.dropout(x)
        return Representation(node=x)
