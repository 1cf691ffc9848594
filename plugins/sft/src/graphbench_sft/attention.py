"""Attention of all tokens to a few sampled ones (SFT, section 4).

Legend: T tokens of all graphs, B graphs of a block, N padded tokens, K sampled tokens, H heads, h head width,
dim = H h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data

from graphbench import LayerTrace, Traced
from graphbench.contracts.kernels import runs_numba
from graphbench.errors import BadInput, check_choice, check_divides, check_range
from graphbench.nn import DenseLayout, mixed_values
from graphbench_sft.ops import Operands, mix_by_maxout
from graphbench_sft.relative import Chunk, DistanceRelation, EdgeRelation, PairRelation, RelativeTerms, ScoreMap
from graphbench_sft.sampler import (
    LAYER,
    DifferentiableSampler,
    Evaluation,
    Sample,
    SamplingMode,
    names_of_places,
    scramble,
)
from graphbench_sft.scores import leaky_relu_attention, leaky_relu_mixture, maxout_scores

AttentionName = Literal["maxout_leaky", "maxout_relu", "softmax_dot"]
SamplerName = Literal["without_replacement", "straight_through", "with_replacement", "none"]
Relation = EdgeRelation | PairRelation

#: Scores of a chunk: 4 MB of float32 on a CPU. Smaller chunks fit a faster cache but need more calls.
_CPU_CHUNK = 1 << 20
_DEVICE_CHUNK = 1 << 26
#: Above this number of scores a training step stores none and recomputes each chunk in the backward pass.
_STORED_SCORES = 1 << 26


@dataclass(frozen=True)
class _Piece:
    """Operands of attention in one chunk; `leak`, `mask` and `terms` may be absent."""

    query: Tensor  # [b, H, n, h]
    key: Tensor  # [b, H, K, h]
    value: Tensor  # [b, H, K, h]
    leak: Tensor | None  # [b, H, K]
    mask: Tensor | None  # [b, 1, K]
    terms: ScoreMap | None


@dataclass(frozen=True)
class _Sampled:
    """Keys and values of the samples of a block of graphs; `leak` and `relation` may be absent."""

    sample: Sample
    key: Tensor  # [B, K, dim]
    value: Tensor  # [B, K, dim]
    leak: Tensor | None  # [B, K, H]
    relation: Relation | None


class SampledAttention(Traced):
    """Multi-head attention of every token to the sampled tokens of its graph; O(n k) time and memory.

    `out = W_O concat_h(P V) + b_O`; queries come from all tokens, keys, values and the leak from the sampled ones:

    * maxout_leaky: `P = leaky_relu_attention(A, C)` of `A_ij = sum_c max(Q_ic, K_jc) / sqrt(h)`, `C = x W_C + b_C`,
      one number per head (the operation count of C in the paper's table 7 is that of 16 numbers per token);
    * maxout_relu: the same without the leak;
    * softmax_dot: `P = softmax(A)` of `A = Q K^T / sqrt(h)`, the usual attention, for comparison (figure 6).

    With relative terms A first becomes `A * R_mul + R_add`. Parameters with leak and relative terms of width r:
    `4 (dim^2 + dim) + H (dim + 1) + 2 H (r + 1)`, and `dim + 1` of the sampler.

    On a CPU with kernels maxout scores are never stored (see `ops.mixture`), except with relative terms other than
    edges and distances. Otherwise scores are computed in chunks that stay in the cache, and a training step with more
    than 67 million of them stores none for the backward pass, so it only needs memory for the tokens and one chunk.

    A trace contains the weights over the sampled tokens; its `columns` name them. If the sampler mixes (in training,
    and in evaluation as trained), a column is the sampled token mixed with its partner.

    Attributes: `parts` is the number of successive graphs of the layout that a trace shows as one; `layer` is the
        number of the layer in a model, on which the noise of evaluation depends.

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `dim`.
        num_samples: tokens to sample k.
        attention: see above.
        sampler: without_replacement, straight_through, with_replacement (see `DifferentiableSampler`), or none:
            attention to all tokens.
        relation_dim: width r of the relative features; None for no relative terms.
        score_dropout: probability of dropping a channel of Q and K.
        temperature: temperature of the sampler.
        compiled_scores: let torch.compile fuse the maxout scores, see `maxout_scores`.
        evaluation: as_trained or topk, see `DifferentiableSampler`.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> from torch_geometric.data import Batch, Data
        >>> batch = Batch.from_data_list([Data(x=torch.randn(n, 8)) for n in (5, 3)])
        >>> attention = SampledAttention(dim=8, num_heads=2, num_samples=4)
        >>> attention(batch.x, batch).shape
        torch.Size([8, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_samples: int,
        attention: AttentionName = "maxout_leaky",
        sampler: SamplerName = "without_replacement",
        relation_dim: int | None = None,
        score_dropout: float = 0.0,
        temperature: float = 1.0,
        compiled_scores: bool = False,
        evaluation: Evaluation = "as_trained",
    ) -> None:
        super().__init__()
        for option, count in (("hidden_dim", dim), ("num_heads", num_heads), ("num_samples", num_samples)):
            check_range(option, count, at_least=1, whole=True)
        check_range("score_dropout", score_dropout, at_least=0, below=1)
        check_choice("attention", attention, get_args(AttentionName))
        check_choice("sampler", sampler, get_args(SamplerName))
        check_choice("evaluation", evaluation, get_args(Evaluation))
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.parts, self.layer = 1, 0
        self.num_heads = num_heads
        self.attention = attention
        self.score_dropout = nn.Dropout(score_dropout)
        self.compiled_scores = compiled_scores
        mode: SamplingMode | None = None if sampler == "none" else sampler
        self.sampler = None if mode is None else DifferentiableSampler(dim, num_samples, mode, temperature, evaluation)
        self.query_map = nn.Linear(dim, dim)
        self.key_map = nn.Linear(dim, dim)
        self.value_map = nn.Linear(dim, dim)
        self.leak_map = nn.Linear(dim, num_heads) if attention == "maxout_leaky" else None
        self.out_map = nn.Linear(dim, dim)
        self.relative = None if relation_dim is None else RelativeTerms(relation_dim, num_heads)

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout | Data | Tensor | None = None,
        relations: Sequence[Relation] | None = None,
        visible: Tensor | None = None,
        names: Tensor | None = None,
    ) -> Tensor:
        """Attend within each graph.

        Args:
            x: tokens `[T, dim]`.
            layout: layout of the tokens in padded graphs, or an argument of `DenseLayout.from_batch`: the graphs whose
                nodes they are (PyG's `Batch` or `Data`), or the graph of each token `[T]`; None for a single graph.
            relations: relative information of each of `layout.blocks`; needed with relative terms.
            visible: which tokens may be sampled, bool `[T]`; None: all.
            names: names of the tokens, int64 `[T]`, for evaluation; None: from their place in the graph and its size.

        Raises:
            BadInput: `relations` are missing with relative terms, or given without them.
        """
        if (relations is None) != (self.relative is None):
            raise BadInput("A layer with relation_dim needs relations in forward, and one without accepts none.")
        layout = DenseLayout.of(layout, x)
        names = None if self.training or self.sampler is None else self._layer_names(layout, names)
        # "Attention score dropout" (appendix D.4) drops channels of Q and K; weights are never dropped.
        query = self.score_dropout(self.query_map(x))
        blocks = []
        for number, (block, tokens) in enumerate(zip(layout.blocks, layout.to_blocks(x), strict=True)):
            options = (None if tensor is None else block.take(tensor) for tensor in (visible, names))
            sample = self._sample(block.layout, tokens, *options)
            blocks.append(self._sampled(sample, None if relations is None else relations[number]))
        mixed = self._mix_in_one_step(query, layout, blocks)
        if mixed is None:
            parts = zip(layout.blocks, self._pieces(query, layout, blocks), strict=True)
            mixed = layout.from_blocks([self._mix(pieces, block.layout) for block, pieces in parts])
        out = self.out_map(mixed)
        self.trace(lambda: self._record(x, query, layout, blocks, out))
        return out

    def _layer_names(self, layout: DenseLayout, names: Tensor | None) -> Tensor:
        """Hash names for the noise of this layer `[T]`, so that layers sample independently."""
        if names is None:
            graph_of = torch.repeat_interleave(layout.ptr.diff(), output_size=layout.index.shape[0])
            names = names_of_places(graph_of, layout.ptr)
        return scramble(names + self.layer * LAYER)

    def _sample(self, layout: DenseLayout, tokens: Tensor, visible: Tensor | None, names: Tensor | None) -> Sample:
        mask = None if layout.is_full else layout.mask
        if visible is not None:
            mask = _dense_row(layout, visible)
        if self.sampler is not None:
            return self.sampler(tokens, mask, None if names is None else _dense_row(layout, names))
        index = torch.arange(layout.max_nodes, device=tokens.device).expand(layout.num_graphs, -1)
        return Sample(tokens, index, mask=mask)

    def _sampled(self, sample: Sample, relation: Relation | None) -> _Sampled:
        key = self.score_dropout(self.key_map(sample.tokens))
        # Computed from the mixed sampled tokens, like keys and values.
        leak = None if self.leak_map is None else self.leak_map(sample.tokens)
        return _Sampled(sample, key, self.value_map(sample.tokens), leak, relation)

    def _mix_in_one_step(self, query: Tensor, layout: DenseLayout, blocks: Sequence[_Sampled]) -> Tensor | None:
        """Mix values `[T, dim]` with a kernel that stores no scores; None if there is no such kernel."""
        numbers = [query, *(x for block in blocks for x in (block.key, block.value, block.leak) if x is not None)]
        if self.attention == "softmax_dot" or self.compiled_scores or not _runs_in_one_step(numbers):
            return None
        operands = [self._operands(block, query.dtype) for block in blocks]
        supported = [operand for operand in operands if operand is not None]
        if len(supported) < len(operands):
            return None
        # Edge terms are differences from these (`EdgeRelation.pairs`).
        at_zero = None if self.relative is None else self.relative.at_zero()
        return mix_by_maxout(query, layout, self.num_heads, supported, at_zero)

    def _operands(self, block: _Sampled, dtype: torch.dtype) -> Operands | None:
        """Return the operands of a kernel, or None if kernels do not support the relative terms."""
        leak = None if block.leak is None else F.softplus(block.leak)
        operands = Operands(block.key, block.value, leak, block.sample.mask)
        if self.relative is None:
            return operands
        if isinstance(block.relation, EdgeRelation):
            return operands._replace(pairs=block.relation.pairs(self.relative, block.sample))
        if isinstance(block.relation, DistanceRelation) and block.relation.fits_kernels(dtype):
            return operands._replace(places=block.relation.place_terms(self.relative, block.sample))
        return None

    def _pieces(self, query: Tensor, layout: DenseLayout, blocks: Sequence[_Sampled]) -> list[list[_Piece]]:
        """Split the operands of each block into chunks; queries `[T, dim]`."""
        return [self._cut(*part) for part in zip(layout.to_blocks(query), blocks, strict=True)]

    def _cut(self, query: Tensor, block: _Sampled) -> list[_Piece]:
        """Split the operands of a block of graphs into chunks in the order of padded rows; `query [B, N, dim]`."""
        sample, relation = block.sample, block.relation
        # Contiguous: compiled programs expect different strides for the softplus gradient of a transposed tensor.
        leak = None if block.leak is None else block.leak.transpose(1, 2).contiguous()
        mask = None if sample.mask is None else sample.mask.unsqueeze(1)
        rows = (query, block.key, block.value)
        query, key, value = (tensor.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for tensor in rows)
        graphs, length = _chunk_shape(query, key)
        if graphs == query.shape[0] and length >= query.shape[2]:  # a program would be compiled for one number of parts
            pieces = [_Piece(query, key, value, leak, mask, None)]
            chunks = [Chunk(slice(0, None), slice(0, None))]
        else:
            leaks, masks = (_split(tensor, graphs, query.shape[0]) for tensor in (leak, mask))
            groups = zip(query.split(graphs), key.split(graphs), value.split(graphs), leaks, masks, strict=True)
            pieces = [_Piece(part, k, v, c, m, None) for q, k, v, c, m in groups for part in q.split(length, 2)]
            chunks = [
                Chunk(slice(graph, graph + graphs), slice(row, row + length))
                for graph in range(0, query.shape[0], graphs)
                for row in range(0, max(query.shape[2], 1), length)
            ]
        if relation is None or self.relative is None:
            return pieces
        terms = relation.bind(self.relative, sample, chunks)
        return [replace(piece, terms=term) for piece, term in zip(pieces, terms, strict=True)]

    def _scores(self, piece: _Piece) -> Tensor:
        """Return scores `[b, H, n, K]` of a chunk."""
        if self.attention == "softmax_dot":
            scores = (piece.query * piece.query.shape[-1] ** -0.5) @ piece.key.transpose(-1, -2)
        else:
            scores = maxout_scores(piece.query, piece.key, self.compiled_scores)
        return scores if piece.terms is None else piece.terms(scores)

    def _weights(self, piece: _Piece) -> Tensor:
        """Return attention weights `[b, H, n, K]` of a chunk."""
        scores = self._scores(piece)
        if self.attention != "softmax_dot":
            return leaky_relu_attention(scores, piece.leak, piece.mask)
        if piece.mask is not None:
            # Finite, so that the weights and gradients of a graph without tokens are not NaN.
            scores = scores.masked_fill(~piece.mask.unsqueeze(-2), torch.finfo(scores.dtype).min)
        return scores.softmax(-1)

    def _mix(self, pieces: list[_Piece], layout: DenseLayout) -> Tensor:
        """Return mixed values `[B, N, dim]`."""

        def mix(piece: _Piece) -> Tensor:
            if self.attention == "softmax_dot":
                mixed = self._weights(piece).to(piece.value.dtype) @ piece.value
            else:
                mixed = leaky_relu_mixture(self._scores(piece), piece.value, piece.leak, piece.mask)
            return mixed.transpose(1, 2).flatten(2).flatten(0, 1)

        run: Callable[[_Piece], Tensor] = mix
        num_scores = layout.mask.numel() * self.num_heads * pieces[0].key.shape[2]
        if torch.is_grad_enabled() and num_scores > _STORED_SCORES:
            # `mix` draws no random numbers: dropout of Q and K is applied before, so no generator needs restoring.
            run = partial(checkpoint, mix, use_reentrant=False, preserve_rng_state=False)
        return torch.cat([run(piece) for piece in pieces]).unflatten(0, layout.mask.shape)

    @torch.no_grad()
    def _record(
        self, x: Tensor, query: Tensor, layout: DenseLayout, blocks: Sequence[_Sampled], out: Tensor
    ) -> LayerTrace:
        sizes = layout.ptr.diff()
        traces: dict[int, tuple[Tensor, Tensor]] = {}
        for block, sampled, pieces in zip(layout.blocks, blocks, self._pieces(query, layout, blocks), strict=True):
            sample, graphs = sampled.sample, block.graphs
            rows = torch.cat([self._weights(piece).transpose(1, 2).flatten(0, 1) for piece in pieces])
            matrices = rows.unflatten(0, block.layout.mask.shape).transpose(1, 2)
            for place, graph in enumerate(range(len(sizes)) if graphs is None else graphs.tolist()):
                filled = slice(None) if sample.mask is None else sample.mask[place]
                matrix = matrices[place, :, : int(sizes[graph])]
                traces[graph] = matrix[..., filled], sample.index[place][filled]
        attention = [traces[graph][0] for graph in range(len(sizes))]
        columns = [traces[graph][1] for graph in range(len(sizes))]
        if self.parts > 1:
            attention, columns, sizes = join_parts(attention, columns, sizes, self.parts)
        return LayerTrace(
            tokens=out.detach(),
            batch=torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes),
            values=mixed_values(x, self.value_map.weight, self.out_map.weight, self.num_heads),
            attention=attention,
            columns=columns,
            num_nodes=sizes,
            input=x,
        )


def _runs_in_one_step(numbers: Sequence[Tensor]) -> bool:
    """Return whether a kernel mixes values without storing scores: on a CPU, all in the same precision."""
    if torch.compiler.is_compiling():  # a program would contain the plain form, which stores all comparisons
        return False
    return all(x.dtype is numbers[0].dtype and x.numel() for x in numbers) and runs_numba(*numbers)


def _chunk_shape(query: Tensor, key: Tensor) -> tuple[int, int]:
    """Return the graphs of a chunk and the rows of each; all of them for torch.compile, which unrolls loops."""
    batch, heads, rows, _ = query.shape
    if torch.compiler.is_compiling():
        return batch, rows
    room = _CPU_CHUNK if query.device.type == "cpu" else _DEVICE_CHUNK
    num_rows = max(1, room // max(heads * key.shape[2], 1))
    if num_rows >= rows:
        return min(num_rows // max(rows, 1), batch), max(rows, 1)
    # As few chunks as possible, of equal length: a short last one would need as many calls as the others.
    return 1, -(-rows // -(-rows // num_rows))


def _dense_row(layout: DenseLayout, values: Tensor) -> Tensor:
    """Pad one value per token `[T]` to `[B, N]`."""
    return layout.to_dense(values.unsqueeze(-1)).squeeze(-1)


def _split(tensor: Tensor | None, size: int, total: int) -> Sequence[Tensor | None]:
    """Split into groups of `size` of `total` graphs; `split` makes views, see `EdgeRelation.bind`."""
    return [None] * -(-total // size) if tensor is None else tensor.split(size)


def join_parts(
    matrices: list[Tensor], columns: list[Tensor], sizes: Tensor, parts: int
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Join the matrices of the parts of each graph into one block-diagonal matrix.

    Args:
        matrices: attention of each part, `[H, n_p, k_p]`.
        columns: the token of its part behind each column, `[k_p]`.
        sizes: tokens of each part `[G * parts]`.
        parts: parts per graph.

    Returns:
        Attention `[H, n_g, k_g]` and columns `[k_g]` of each graph, and its tokens `[G]`.
    """
    joined, joined_columns = [], []
    first = (sizes.view(-1, parts).cumsum(1) - sizes.view(-1, parts)).flatten().tolist()
    for start in range(0, len(matrices), parts):
        numbers = range(start, start + parts)
        joined.append(
            torch.stack([torch.block_diag(*heads) for heads in zip(*(matrices[i] for i in numbers), strict=True)])
        )
        joined_columns.append(torch.cat([columns[i] + first[i] for i in numbers]))
    return joined, joined_columns, sizes.view(-1, parts).sum(1)
