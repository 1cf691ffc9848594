"""Define the operations of layers that an installed package of kernels may replace, in plain torch.

Each function is complete: it supports second derivatives, autocast, compilation and export. `operation` registers it
with `torch.library`, see `graphbench.contracts.kernels`. An edge that refers to a missing node raises an `IndexError`
or a `RuntimeError`, with and without kernels.

Sums in half precision are computed in float32: on GPUs and in compiled programs a bfloat16 sum of equal terms ends at
256 times a term.

Legend: T nodes of all graphs, E edges, C channels, H heads of d channels each. `edge_index` contains sources j and
targets i `[2, E]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from graphbench.contracts.kernels import operation
from graphbench.nn.dense import join_heads, split_heads
from graphbench.nn.size_blocks import pad_blocks, unpad_blocks

#: Added to a sum of gates before dividing by it.
_EPSILON = 1e-6
#: Nodes of a padded graph up to which plain matmuls and softmax are faster on a CPU than torch's fused attention, which
#: has no second derivative.
_SMALL = 128
#: Fused attention on GPUs accepts head widths that are multiples of these, 16 bytes: efficient attention requires
#: them, flash attention pads to 8 by itself, cuDNN's requires 8.
_WIDTH_MULTIPLES = {torch.float32: 4, torch.float16: 8, torch.bfloat16: 8}
#: Columns of embeddings that are summed at a time, more than molecules have.
_COLUMNS = 16


# -- sums over the edges that arrive at nodes -------------------------------------------------------------------------


@operation("graphbench")
def sum_neighbours(x: Tensor, edge_index: Tensor, weight: Tensor | None = None, own: float = 0.0) -> Tensor:
    """Compute `s x_i + sum_(j -> i) w_ij x_j` for every node i.

    Args:
        x: nodes `[T, C]`.
        edge_index: sources and targets `[2, E]`.
        weight: w of each edge `[E]`; None means ones.
        own: s.

    Examples:
        >>> sum_neighbours(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0, 2, 1], [1, 1, 2]]))
        tensor([[0.],
                [5.],
                [2.]])
    """
    sent = x.index_select(0, edge_index[0])
    sent = sent if weight is None else weight.unsqueeze(-1) * sent
    return _add_at_targets(sent, edge_index[1], x, own)


@operation("graphbench")
def sum_rectified(x: Tensor, edge_index: Tensor, edges: Tensor, own: float = 0.0) -> Tensor:
    """Compute `s x_i + sum_(j -> i) relu(x_j + e_ij)` for every node i, with the messages of GINE (Hu et al. 2020).

    Args:
        x: nodes `[T, C]`.
        edge_index: sources and targets `[2, E]`.
        edges: e `[E, C]`.
        own: s.

    Examples:
        >>> x, index = torch.tensor([[1.0], [2.0]]), torch.tensor([[0, 1], [1, 0]])
        >>> sum_rectified(x, index, torch.tensor([[0.5], [-3.0]]))
        tensor([[0.0000],
                [1.5000]])
    """
    # In place, which saves one tensor with a row per edge.
    messages = (x.index_select(0, edge_index[0]) + edges).relu_()
    return _add_at_targets(messages, edge_index[1], x, own)


def _add_at_targets(messages: Tensor, target: Tensor, x: Tensor, own: float) -> Tensor:
    """Return `s x_i` plus the messages `[E, C]` that arrive at node i."""
    index, terms = target.unsqueeze(-1).expand_as(messages), messages.to(_sum_dtype(messages))
    if not own:
        return terms.new_zeros(x.shape).scatter_add_(0, index, terms).to(messages.dtype)
    start = x.to(terms.dtype)
    return (start if own == 1 else own * start).scatter_add(0, index, terms).to(messages.dtype)


def _sum_dtype(terms: Tensor) -> torch.dtype:
    return torch.promote_types(terms.dtype, torch.float32)


def sum_rows(rows: Tensor, table: Tensor) -> Tensor:
    """Sum embeddings: `sum_k table[rows_ik]` for every i `[n, C]`, with row numbers `[n, k]` and a table `[R, C]`.

    Raises:
        IndexError, RuntimeError: a row does not exist.

    Examples:
        >>> sum_rows(torch.tensor([[0, 1], [1, 1]]), torch.tensor([[1.0], [10.0]]))
        tensor([[11.],
                [20.]])
    """
    # Some columns at a time: rows of all of them take gigabytes for word counts, one column for each word.
    dtype = _sum_dtype(table)
    sums = (F.embedding(part, table).sum(1, dtype=dtype) for part in rows.split(_COLUMNS, dim=1))
    return reduce(torch.add, sums).to(table.dtype)


@operation("graphbench")
def gated_messages(
    nodes: Tensor, edge_index: Tensor, edges: Tensor, extra_gates: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the messages of GatedGCN, see `GatedGCNLayer`.

        e^_ij = D x_i + E x_j + C e_ij,               s_ij = sigmoid(e^_ij) r_ij,
        x^_i  = A x_i + (sum_j s_ij * B x_j) / (sum_j s_ij + 1e-6)

    Args:
        nodes: A x, B x, D x and E x, concatenated `[T, 4 C]`.
        edge_index: sources j and targets i `[2, E]`.
        edges: C e `[E, C]`.
        extra_gates: r `[E, 1]`; None means ones.

    Returns:
        x^ `[T, C]` and e^ `[E, C]`.

    Examples:
        >>> nodes, index = torch.tensor([[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]]), torch.tensor([[0], [1]])
        >>> gated_messages(nodes, index, torch.zeros(1, 1))  # node 1 has one neighbour, whatever its gate
        (tensor([[1.0000],
                [5.0000]]), tensor([[0.]]))
    """
    source, target = edge_index[0], edge_index[1]
    at_node, sent, at_target, at_source = nodes.chunk(4, dim=-1)
    # D and E were applied to nodes before gathering: graphs have more edges than nodes.
    raw = at_target.index_select(0, target) + at_source.index_select(0, source) + edges
    gates = torch.sigmoid(raw)
    if extra_gates is not None:
        gates = gates * extra_gates
    # Numerator and denominator are concatenated, so that one scatter sums both.
    messages = torch.cat([gates * sent.index_select(0, source), gates], dim=-1)
    sums = scatter(messages.to(_sum_dtype(messages)), target, 0, nodes.shape[0], reduce="sum")
    total, weight = sums.chunk(2, dim=-1)
    return at_node + (total / (weight + _EPSILON)).to(messages.dtype), raw


# -- attention --------------------------------------------------------------------------------------------------------


@operation("graphbench")
def edge_attention(
    qkv: Tensor, edge_index: Tensor, steer: Tensor | None, num_heads: int, largest: float, with_scores: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute attention along the incoming edges of each node: the formulas and arguments of `attend_along_edges`.

    Returns:
        x' `[T, C]`; s `[E, C]`, without rows unless `with_scores` is set; w `[E, H]`, without gradient.

    Examples:
        >>> qkv = torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 4.0]])
        >>> edge_attention(qkv, torch.tensor([[0], [1]]), None, 1, 5.0, False)[0]
        tensor([[0.],
                [2.]])
    """
    source, target = edge_index[0], edge_index[1]
    q, k, v = (part.unflatten(-1, (num_heads, -1)) for part in qkv.chunk(3, dim=-1))
    # Element-wise, not a dot product: layers compute new edge vectors from these.
    scores = q.index_select(0, target) * k.index_select(0, source) * q.shape[-1] ** -0.5
    scores = scores if steer is None else scores * steer.unflatten(-1, (num_heads, -1))
    logits = scores.sum(-1).clamp(-largest, largest)
    weights = softmax(logits.to(_sum_dtype(logits)), target, num_nodes=qkv.shape[0])
    messages = (weights.unsqueeze(-1) * v.index_select(0, source)).flatten(1)
    mixed = scatter(messages, target, 0, qkv.shape[0], reduce="sum").to(scores.dtype)
    weights = weights.detach().to(scores.dtype)
    # A schema of torch.library has no optional result: a tensor without rows means no scores.
    return mixed, scores.flatten(1) if with_scores else mixed.new_empty(0, mixed.shape[1]), weights


@operation("graphbench")
def packed_attention(
    qkv: Tensor,
    ptr: Tensor,
    order: Tensor | None,
    slots: Tensor | None,
    shapes: Sequence[int],
    padding: Sequence[Tensor | None],
    biases: Sequence[Tensor | None],
    num_heads: int,
    dropout: float,
    packed: bool = False,
) -> Tensor:
    """Compute `sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j`, each sum over the rows of one graph.

    The graphs are padded in blocks of similar size, as `DenseLayout.packing` says; see `attend_within_graphs`.

    Args:
        qkv: queries, keys and values of all heads, concatenated `[T, 3 H d]`.
        ptr: first row of each graph `[B + 1]`.
        order: graphs in the order of the blocks `[B]`; None if all are in one block, in their own order.
        slots: place of each row in the padded blocks, one after the other `[T]`; None if nothing is padded.
        shapes: graphs b and rows n of each block, `b_1, n_1, b_2, n_2, ...`.
        padding: for each block the bias that hides its padding, `[b, 1, 1, n]`; None if nothing is padded.
        biases: for each block the bias added to the logits, with minus infinity at padding, `[b, H or 1, n or 1, n]`;
            None adds only `padding`.
        num_heads: heads H.
        dropout: probability of dropping a weight.
        packed: on a GPU, request a kernel that pads nothing; the plain form always pads.

    Returns:
        `[T, H d]`, heads concatenated.
    """
    mixed = []
    for part, hidden, bias in zip(pad_blocks(qkv, slots, shapes), padding, biases, strict=True):
        q, k, v = split_heads(part, 3, num_heads)
        # A bias of the model already has minus infinity at padding.
        mixed.append(join_heads(attend(q, k, v, hidden if bias is None else bias, dropout)))
    return unpad_blocks(mixed, slots)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """Compute attention with the weights of `attention_weights` and dropout (0 outside training), `[B, H, N, d]`.

    It calls `scaled_dot_product_attention`, which has no second derivative unless its backend `MATH` is selected. On a
    CPU, which has no fused kernel with dropout, the explicit formula is used for small graphs and for dropout. On a
    GPU, heads are padded with zeros to a width that fused kernels accept: for other widths torch falls back to the
    formula, which keeps all weights in memory.

    Examples:
        >>> values = torch.tensor([[[[1.0], [3.0]]]])
        >>> attend(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1), values).flatten()
        tensor([2., 2.])
    """
    if q.device.type == "cpu" and not torch.compiler.is_compiling() and (dropout or k.shape[-2] <= _SMALL):
        weights = attention_weights(q, k, bias)
        return (drop_at_random(weights, dropout) if dropout else weights) @ v
    bias = None if bias is None else bias.to(q.dtype)
    multiple = _width_multiple(q)
    if q.shape[-1] % multiple or v.shape[-1] % multiple:
        return _attend_in_padded_heads(q, k, v, bias, dropout, multiple)
    return F.scaled_dot_product_attention(q, k, v, bias, dropout)


def _width_multiple(q: Tensor) -> int:
    """Return the number that head widths must be a multiple of for fused kernels; 1 on CPUs and for other dtypes."""
    device = q.device.type
    if device == "cpu":
        return 1
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else q.dtype
    return _WIDTH_MULTIPLES.get(dtype, 1)


def _attend_in_padded_heads(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float, multiple: int
) -> Tensor:
    """Compute `attend` in padded heads: zeros do not change logits, scaled by the true width; drop padded columns."""
    width, scale = v.shape[-1], q.shape[-1] ** -0.5
    q, k, v = (F.pad(x, (0, -x.shape[-1] % multiple)) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, bias, dropout, scale=scale)[..., :width]


def drop_at_random(x: Tensor, p: float) -> Tensor:
    """Set each number to zero with probability p and divide the others by `1 - p`: `F.dropout`, but faster on a CPU.

    On a CPU torch's dropout draws 64 bits per number, one by one, which takes four times as long as a float32 between
    0 and 1, with which p is exact to 2^-24. Attention drops `H N^2` numbers per graph, which is most of its time.

    Examples:
        >>> drop_at_random(torch.ones(1000), 0.5).unique()
        tensor([0., 2.])
    """
    mask = torch.rand_like(x, dtype=torch.float32).ge_(p)  # bfloat16 would have only 8 bits
    return x * mask.to(x.dtype).mul_(1 / (1 - p) if p < 1 else 0.0)


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute the weights `softmax_j(q_i . k_j / sqrt(d) + bias_ij)`, `[B, H, N, N]`, from `q` and `k [B, H, N, d]`.

    The bias is `[B, H or 1, N or 1, N]`; minus infinity hides a key. Every row of a real query sums to one.

    Examples:
        >>> attention_weights(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2, 3))
        tensor([[[[0.5000, 0.5000],
                  [0.5000, 0.5000]]]])
    """
    # Scale queries, not logits: they are fewer numbers, and float16 products are less likely to overflow.
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return (logits if bias is None else logits + bias.to(logits.dtype)).softmax(-1)
