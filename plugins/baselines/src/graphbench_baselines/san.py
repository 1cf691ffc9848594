"""SAN: attention along edges and, with separate maps and a small weight, between all other pairs of nodes.

Its positions, learned from Laplacian eigenpairs, are `TransformerLapPE`.

Kreuzer et al., "Rethinking Graph Transformers with Spectral Attention", NeurIPS 2021, arXiv 2106.03893.

Legend: N nodes, E edges, H heads, d head width, dim = H d. Node i attends to node j along edge j -> i. An added pair
consists of two nodes of a graph without an edge between them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.encodings import Normalization
from graphbench.errors import BadInput, check_divides, check_range
from graphbench.nn import (
    Categorical,
    DenseLayout,
    EdgeEncoder,
    FeedForward,
    LapPEEncoder,
    NodeEncoder,
    NormName,
    make_norm,
    mixed_values,
)
from graphbench_baselines.gt import matrices_of_edges

#: Logits are clamped to this absolute value, as in the authors' code.
_LARGEST_LOGIT = 5.0
#: Added to the denominator in the authors' code; weights here are `exp(-_LARGEST_LOGIT)` times theirs.
_EPSILON = 1e-6 * 2.718281828459045**-_LARGEST_LOGIT
#: Width between the two maps of its feed-forward networks; the authors use PyTorch's default.
_FFN_DIM = 2048
#: Signs of eigenvectors in training, see `LapPEEncoder`.
Sign = Literal["flip_graph", "flip_batch", "absolute", "none"]


class AddedPairs(NamedTuple):
    """The pairs that attention adds to the edges in a forward pass; all layers share them.

    Args:
        layout: layout of the nodes in padded graphs.
        masks: for each of `layout.blocks` the added pairs (i, j) `[b, 1, n, n]`, bool.
    """

    layout: DenseLayout
    masks: tuple[Tensor, ...]

    @classmethod
    def of(cls, batch: GraphBatch) -> AddedPairs:
        """List the pairs of a batch; no node pairs with itself."""
        layout = DenseLayout.from_batch(batch)
        masks = []
        for block in layout.blocks:
            count, size = block.layout.mask.shape
            mask = block.layout.mask[:, None, :].repeat(1, size, 1)
            mask &= ~torch.eye(size, dtype=torch.bool, device=mask.device)
            # Entry (i, j) of graph b is number (b n + i) n + j, with b n + i the slot of i and j that of j modulo n.
            slot = block.layout.index
            if block.rows is not None:  # some graphs of the batch: nodes of the others have no slot
                slot = torch.full_like(layout.index, -1).index_copy(0, block.rows, slot)
            source, target = slot[batch.edge_index[0]], slot[batch.edge_index[1]]
            if block.rows is not None:  # only on a CPU, where a boolean index needs no sync
                source, target = source[target >= 0], target[target >= 0]
            mask = mask.view(-1).index_fill(0, target * size + source % max(size, 1), False)
            masks.append(mask.view(count, 1, size, size))
        return cls(layout, tuple(masks))


class SANAttention(Traced):
    """Attention along edges, modulated by their vectors, and over added pairs, which share one learned vector f.

        s_ij = sum_d (Q x_i) * (K x_j) * (E e_ij) / sqrt(d)               along edges
        t_ij = sum_d (Q' x_i) * (K' x_j) * (E' f) / sqrt(d)               over added pairs
        w_ij = exp(clamp(s_ij, -5, 5)) / (1 + gamma)   or   gamma exp(clamp(t_ij, -5, 5)) / (1 + gamma)
        x'_i = O Drop(sum_j w_ij V x_j / (sum_j w_ij + 1e-6))

    per head up to O, and without biases except that of O. One sum normalises both kinds of pairs, as in the authors'
    code. `5 dim^2 + dim` parameters, `8 dim^2 + dim` with added pairs.

    Args:
        dim: width of nodes and edges.
        num_heads: heads; must divide `dim`.
        gamma: weight of added pairs; None for attention along edges only.
        dropout: probability of Drop.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int, gamma: float | None, dropout: float = 0.0) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads, self.gamma, self.dropout = num_heads, gamma, nn.Dropout(dropout)
        self.qkv_map = nn.Linear(dim, 3 * dim, bias=False)  # Q, K, V of the equations, in one product
        self.edge_map = nn.Linear(dim, dim, bias=False)  # E
        self.added_qk_map = nn.Linear(dim, 2 * dim, bias=False) if gamma is not None else None  # Q' and K'
        self.added_edge_map = nn.Linear(dim, dim, bias=False) if gamma is not None else None  # E'
        self.out_map = nn.Linear(dim, dim)  # O

    def forward(
        self, x: Tensor, edge: Tensor, batch: GraphBatch, row: Tensor | None, pairs: AddedPairs | None
    ) -> Tensor:
        """Return mixed nodes `[N, dim]`, without residual.

        Args:
            x: nodes `[N, dim]`.
            edge: edges `[E, dim]`.
            batch: the graphs.
            row: f `[dim]`, with added pairs.
            pairs: the added pairs.
        """
        source, target = batch.edge_index[0], batch.edge_index[1]
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in self.qkv_map(x).chunk(3, dim=-1))
        steer = self.edge_map(edge).unflatten(-1, (self.num_heads, -1)) * q.shape[-1] ** -0.5
        along = _weights((q.index_select(0, target) * k.index_select(0, source) * steer).sum(-1))  # [E, H]
        # Numerator and denominator of the softmax in one sum over edges.
        messages = torch.cat([along.unsqueeze(-1) * v.index_select(0, source), along.unsqueeze(-1)], dim=-1)
        sums = scatter(messages, target, 0, x.shape[0], reduce="sum")  # [N, H, d + 1]: mixed values, sum of weights
        added: list[Tensor] = []
        if pairs is not None and row is not None and self.gamma is not None:
            added = self._added_weights(x, row, pairs)
            sums = (sums + self.gamma * self._mix(v.flatten(1), added, pairs)) / (1.0 + self.gamma)
        total = sums[..., -1:] + _EPSILON
        mixed = (sums[..., :-1] / total).flatten(1).to(x.dtype)
        out = self.out_map(self.dropout(mixed))
        self.trace(lambda: self._record(x, along, added, total, batch, pairs, out))
        return out

    def _added_weights(self, x: Tensor, row: Tensor, pairs: AddedPairs) -> list[Tensor]:
        """Return weights of added pairs, zero elsewhere, for each block `[b, H, n, n]`; without gamma."""
        assert self.added_qk_map is not None
        assert self.added_edge_map is not None
        q, k = self.added_qk_map(x).chunk(2, dim=-1)
        # E' f is the same for all pairs, so multiply the queries by it; scores are then one matrix product.
        q = q * self.added_edge_map(row) * (q.shape[-1] // self.num_heads) ** -0.5
        qk, weights = torch.cat([q, k], dim=-1), []
        heads = pairs.layout.to_block_heads(qk, 2, self.num_heads)
        for (query, key), mask in zip(heads, pairs.masks, strict=True):
            weights.append(_weights(query @ key.transpose(-1, -2)) * mask)
        return weights

    def _mix(self, v: Tensor, weights: list[Tensor], pairs: AddedPairs) -> Tensor:
        """Return sums of weighted values `[N, dim]` over added pairs, and of weights: `[N, H, d + 1]`."""
        parts = []
        for (value,), weight in zip(pairs.layout.to_block_heads(v, 1, self.num_heads), weights, strict=True):
            mixed = (weight.to(value.dtype) @ value).to(weight.dtype)
            parts.append(torch.cat([mixed, weight.sum(-1, keepdim=True)], dim=-1))
        return pairs.layout.from_block_heads(parts).unflatten(-1, (self.num_heads, -1))

    @torch.no_grad()
    def _record(
        self,
        x: Tensor,
        along: Tensor,
        added: list[Tensor],
        total: Tensor,
        batch: GraphBatch,
        pairs: AddedPairs | None,
        out: Tensor,
    ) -> LayerTrace:
        sizes = batch.ptr.diff()
        gamma = self.gamma or 0.0
        # `forward` divided `total` by 1 + gamma, so also divide numerators by it.
        matrices = matrices_of_edges(along.detach() / (1.0 + gamma), batch)
        if pairs is not None:
            others = pairs.layout.matrices_of_graphs(added)
            matrices = [edges + gamma / (1.0 + gamma) * other for edges, other in zip(matrices, others, strict=True)]
        totals = total.detach().squeeze(-1).split(sizes.tolist())
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            values=mixed_values(x, self.qkv_map.weight.chunk(3)[2], self.out_map.weight, self.num_heads),
            attention=[matrix / part.t()[:, :, None] for matrix, part in zip(matrices, totals, strict=True)],
            num_nodes=sizes,
            input=x,
        )


class SANLayer(nn.Module):
    """Attention, then a feed-forward network, each with residual and a norm after it.

        y = Norm(x + attention(x, e))        x' = Norm(y + W2 Drop(ReLU(W1 y + b1)) + b2)

    Parameters with batch norm: `9 dim^2 + 8 dim`, with added pairs `12 dim^2 + 8 dim`. Edge vectors do not change.

    Args:
        dim: width of nodes and edges.
        num_heads: heads; must divide `dim`.
        gamma: weight of added pairs, or None.
        dropout: probability of both dropouts.
        norm: batch, layer or none.
    """

    def __init__(self, dim: int, num_heads: int, gamma: float | None, dropout: float, norm: NormName) -> None:
        super().__init__()
        self.attention = SANAttention(dim, num_heads, gamma, dropout)
        self.attention_norm, self.norm = make_norm(norm, dim), make_norm(norm, dim)
        self.feed_forward = FeedForward(dim, 2 * dim, activation_dropout=dropout)

    def forward(
        self, x: Tensor, edge: Tensor, batch: GraphBatch, row: Tensor | None, pairs: AddedPairs | None
    ) -> Tensor:
        """Return nodes `[N, dim]`."""
        x = self.attention_norm(x + self.attention(x, edge, batch, row, pairs))
        return self.norm(x + self.feed_forward(x))


class SAN(Architecture):
    """SAN (Kreuzer et al., NeurIPS 2021); defaults are its full ZINC model of 508,577 parameters, without positions.

    The published models learn their positions, see `TransformerLapPE`, and concatenate them to the node features.

    Time and memory: `B L ((N + E) d^2 + N^2 (d + H))`, `B L ((N + E) d + H N^2)`. Without `full` there is no N^2.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        full: also attend over pairs without an edge; False is the authors' sparse model.
        gamma: weight of these pairs relative to edges; 0 would remove their influence.
        dropout: probability of every dropout of the layers.
        norm: batch, layer or none.
        positional_encoders: outputs are concatenated to the node features, which get the remaining width.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SAN(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 6,
        num_heads: int = 8,
        full: bool = True,
        gamma: float = 1e-5,
        dropout: float = 0.0,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "normal",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("gamma", gamma, above=0)
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical)
        self.added_row = nn.Parameter(torch.randn(hidden_dim)) if full else None  # f
        self.layers = nn.ModuleList(
            SANLayer(hidden_dim, num_heads, gamma if full else None, dropout, norm) for _ in range(num_layers)
        )

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`; edge vectors do not change and are not returned."""
        x, edge = self.node_encoder(batch), self.edge_encoder(batch)
        pairs = AddedPairs.of(batch) if self.added_row is not None else None
        for layer in self.layers:
            x = layer(x, edge, batch, self.added_row, pairs)
        return Representation(node=x)


def _weights(logits: Tensor) -> Tensor:
    """Compute `exp(clamp(logits, -5, 5) - 5)`, in at least float32: sums of many weights exceed half precision."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (logits.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT) - _LARGEST_LOGIT).exp()


class TransformerLapPE(PositionalEncoder):
    """The sum over eigenvectors k of `Transformer([W (v_ik, lambda_k) + b]_k)_k`, the learned positions of SAN.

    Each node i is a sequence, with a token for each of the K smallest eigenvalues of the Laplacian: the
    eigenvalue and the node's entry of the eigenvector. The layers are PyTorch's post-norm `TransformerEncoderLayer`
    with a feed-forward width of 2048. In a graph with fewer than K nodes, tokens without an eigenvector are neither
    attended to nor summed. A layer of width p has `4 p^2 + 9 p + 4096 p + 2048` parameters, W and b have 3 p.

    Args:
        num_eigenvectors: K.
        dim: width p of the tokens and of the result.
        num_layers: layers.
        num_heads: heads; must divide `dim`.
        dropout: dropout of the layers; the authors use PyTorch's default.
        sign: signs of eigenvectors in training, see `LapPEEncoder`.
        normalization: Laplacian, see `LapPE`.
        unit_rows: scale the K entries of each node to length 1, as SAN's own code does; GraphGPS does not.

    Raises:
        BadInput: `num_heads` does not divide `dim`, or another option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> from graphbench_baselines import SAN
        >>> encoder = TransformerLapPE(num_eigenvectors=4, dim=8, num_layers=1)
        >>> encoder(tiny_batch(SAN(tiny_spec(), positional_encoders=[encoder]))).shape  # 4 graphs of a few nodes
        torch.Size([23, 8])
    """

    by_node = True

    def __init__(
        self,
        num_eigenvectors: int = 30,
        dim: int = 16,
        num_layers: int = 3,
        num_heads: int = 4,
        dropout: float = 0.1,
        sign: Sign = "flip_batch",
        normalization: Normalization = "symmetric",
        unit_rows: bool = False,
    ) -> None:
        super().__init__()
        check_range("TransformerLapPE: num_layers", num_layers, at_least=1, whole=True)
        check_range("TransformerLapPE: dropout", dropout, at_least=0, below=1)
        if num_heads < 1 or dim % num_heads:
            raise BadInput(f"TransformerLapPE: num_heads must divide dim, but num_heads={num_heads} and dim={dim}.")
        self.dim, self.unit_rows = dim, unit_rows
        self.entries = LapPEEncoder(
            num_eigenvectors, num_eigenvectors, model="raw", sign=sign, normalization=normalization
        )
        self.encodings = self.entries.encodings
        self.token_map = nn.Linear(2, dim)
        layer = nn.TransformerEncoderLayer(dim, num_heads, _FFN_DIM, dropout, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return features of every node `[num_nodes, dim]`."""
        vectors: Tensor = self.entries(batch)
        if self.unit_rows:
            vectors = F.normalize(vectors, dim=-1)
        values = batch.lap_pe_values.to(vectors.dtype)[batch.batch]
        tokens = self.token_map(torch.stack([vectors, values], dim=-1))  # [num_nodes, K, dim]
        # A graph of n nodes has n eigenvectors; the first always exists, so no sequence is all padding.
        column = torch.arange(vectors.shape[1], device=vectors.device)
        padding = column >= batch.ptr.diff()[batch.batch][:, None]
        encoded = self.transformer(tokens, src_key_padding_mask=padding)
        return encoded.masked_fill(padding[:, :, None], 0.0).sum(1)
