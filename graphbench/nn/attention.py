"""Softmax attention among the nodes of each graph, over all pairs or along given edges.

Legend: T nodes of all graphs, B graphs, N padded nodes, H heads, d head width, dim = H d.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts import LayerTrace, Traced
from graphbench.contracts.kernels import runs_triton
from graphbench.errors import BadInput, check_range
from graphbench.nn.dense import DenseLayout
from graphbench.nn.ops import attention_weights, edge_attention, packed_attention


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which attention over `x` computes: that of autocast if it is on, else that of `x`.

    Examples:
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     compute_dtype(torch.zeros(1))
        torch.bfloat16
    """
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class MultiHeadAttention(Traced):
    """Multi-head attention (Vaswani et al. 2017, section 3.2) within every graph of a batch.

    `out_i = W^O concat_h(sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j) + b^O`, each sum over the nodes of one
    graph. Parameters as in `torch.nn.MultiheadAttention`: `3 dim^2 + 3 dim` in, `dim^2 + dim` out, same initial
    values. Only real nodes are projected, and on a CPU graphs of similar size are padded together.

    While a recorder is attached, the output still comes from the fused kernel and the matrices are computed separately,
    so recording never changes a run. The trace's `tokens` are this layer's output, `input` is its input.

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an attention weight.
        packed: on a GPU, pad nothing; see `attend_within_graphs`.

    Raises:
        BadInput: `num_heads` does not divide `dim`, or `dropout` is not a probability below 1.

    Examples:
        >>> attention = MultiHeadAttention(8, num_heads=2)
        >>> attention(torch.randn(5, 8), torch.tensor([0, 0, 0, 1, 1])).shape
        torch.Size([5, 8])
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, packed: bool = False) -> None:
        super().__init__()
        check_range("num_heads", num_heads, at_least=1, whole=True)
        if dim % num_heads:
            raise BadInput(f"num_heads must divide the width, but got num_heads={num_heads} and width {dim}.")
        check_range("dropout of attention weights", dropout, at_least=0, below=1)
        self.num_heads = num_heads
        self.dropout = dropout
        self.packed = packed
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights as `torch.nn.MultiheadAttention` does."""
        # On the packed matrix, as in torch: its fan-out of 3 dim gives a smaller bound than three separate maps.
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        # nn.Linear's default initialisation, which torch's module uses for the output map.
        self.out_proj.reset_parameters()
        nn.init.zeros_(self.out_proj.bias)

    def pair_bytes(self, num_nodes: int) -> int:
        """Return the bytes of a graph's float32 weights, if they are kept: fused kernels without dropout keep none."""
        return 4 * self.num_heads * num_nodes**2

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout | Data | Tensor | None = None,
        bias: Tensor | tuple[Tensor | None, ...] | None = None,
    ) -> Tensor:
        """Attend within each graph, nodes `[T, dim]`.

        Args:
            x: nodes.
            layout: their positions in padded graphs, or an argument of `DenseLayout.from_batch`; None for a single
                graph. Build it once if several layers share it.
            bias: added to the logits, `[B, H, N, N]` or `[B, 1, N, N]`, rows are queries, padding is ignored; or
                `layout.block_biases(bias)`, which layers with the same bias share.
        """
        layout = DenseLayout.of(layout, x)
        qkv = self.in_proj(x)
        biases = bias if bias is None or isinstance(bias, tuple) else layout.block_biases(bias)
        dropout = self.dropout if self.training else 0.0
        heads = attend_within_graphs(qkv, layout, self.num_heads, biases, dropout, self.packed)
        out = self.out_proj(self.gate(heads, x))
        self.trace(lambda: self._record(x, qkv, layout, biases, out))
        return out

    def gate(self, heads: Tensor, x: Tensor) -> Tensor:
        """Return the input of the output map: the concatenated heads `[T, dim]`, which a subclass may gate by `x`."""
        return heads

    @torch.no_grad()
    def _record(
        self, x: Tensor, qkv: Tensor, layout: DenseLayout, biases: tuple[Tensor | None, ...] | None, out: Tensor
    ) -> LayerTrace:
        biases = layout.block_biases() if biases is None else biases
        heads = layout.to_block_heads(qkv, 3, self.num_heads)
        # The fused kernel returns no weights, so they are computed again for the recorder; without dropout, so that
        # rows also sum to one in training.
        weights = [attention_weights(q, k, bias) for (q, k, _), bias in zip(heads, biases, strict=True)]
        w_value = self.in_proj.weight.chunk(3)[2]  # rows of q, k and v, one after the other
        return LayerTrace(
            tokens=out.detach(),
            batch=layout.graph_of,
            values=mixed_values(x, w_value, self.out_proj.weight, self.num_heads),
            attention=layout.matrices_of_graphs(weights),
            num_nodes=layout.ptr.diff(),
            input=x,
        )


def mixed_values(x: Tensor, w_value: Tensor, w_out: Tensor, num_heads: int) -> Tensor:
    """Return `x W^V W^O` of every head without bias, `[T, H, dim]`: the `values` of a `LayerTrace`.

    Inputs are tokens `[T, in_dim]` and the weights of the value map `[H d, in_dim]` and the output map `[dim, H d]`.

    Examples:
        >>> mixed_values(torch.randn(5, 8), torch.randn(8, 8), torch.randn(8, 8), num_heads=2).shape
        torch.Size([5, 2, 8])
    """
    values = F.linear(x, w_value).unflatten(-1, (num_heads, -1))
    return torch.einsum("thd,ohd->tho", values, w_out.unflatten(1, (num_heads, -1)).to(values.dtype))


def attend_within_graphs(
    qkv: Tensor,
    layout: DenseLayout,
    num_heads: int,
    biases: Sequence[Tensor | None] | None = None,
    dropout: float = 0.0,
    packed: bool = False,
) -> Tensor:
    """Compute `sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j`, each sum over the rows of one graph.

    Args:
        qkv: queries, keys and values of all heads, concatenated `[T, 3 H d]`.
        layout: positions of the rows in padded graphs.
        num_heads: heads H.
        biases: added to the logits of each of `layout.blocks`, as returned by `layout.block_biases`; None adds nothing.
        dropout: probability of dropping a weight; 0 outside training.
        packed: on a GPU, use a Triton kernel that pads nothing, in float32, bfloat16 or float16 and for
            heads up to a width of 128; other inputs, and programs of torch.compile, are padded as without it. On a
            CPU nothing changes.

    Returns:
        `[T, H d]`, heads concatenated.

    Warns:
        UserWarning: `packed` is set, and no Triton kernel runs on this GPU.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 1]))
        >>> qkv = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0], [0.0, 0.0, 5.0]])  # equal keys: means of the values
        >>> attend_within_graphs(qkv, layout, num_heads=1)
        tensor([[2.],
                [2.],
                [5.]])
    """
    layout.check_rows(qkv)
    packing = layout.packing
    # A bias that only hides padding comes from the layout: kernels that pad nothing need not read it.
    shown = [None] * layout.num_blocks if biases is None else biases
    block_biases = [None if bias is hidden else bias for bias, hidden in zip(shown, packing.padding, strict=True)]
    if packed and type(qkv) is Tensor and not torch.compiler.is_compiling():
        _check_card(qkv.device)
    return packed_attention(qkv, *packing, block_biases, num_heads, dropout, packed)


def _check_card(device: torch.device) -> None:
    """Warn if packed attention was requested on a GPU on which no kernel for it runs."""
    if device.type == "cuda" and not runs_triton(device):
        warnings.warn(
            f"Packed attention needs graphbench-kernels and Triton, which do not run on {device}; padding instead.",
            stacklevel=3,
        )


def attend_along_edges(
    qkv: Tensor,
    edge_index: Tensor,
    steer: Tensor | None,
    num_heads: int,
    largest: float = 5.0,
    with_scores: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Sum the values of each node's neighbours, weighted by attention along edges.

        s_ij = (Q x_i) * (K x_j) * (E e_ij) / sqrt(d)                         element-wise
        w_ij = softmax_j(clamp(sum_d s_ij, -largest, largest))                per head
        x'_i = sum_j w_ij V x_j

    (Dwivedi & Bresson 2020, arXiv 2012.09699, equations 8 to 11; the clamp is from the authors' code.) A node without
    incoming edges gets zeros.

    Args:
        qkv: Q x, K x and V x, concatenated `[T, 3 C]`.
        edge_index: sources j and targets i `[2, E]`.
        steer: E e `[E, C]`; None means ones.
        num_heads: H; divides C.
        largest: absolute value to which logits are clamped; above 0 and at most 50, since kernels compute their
            exponentials without subtracting the maximum.
        with_scores: return s, for layers that compute new edge vectors from it.

    Returns:
        x' `[T, C]`; s `[E, C]` or None; w `[E, H]`, without gradient.

    Raises:
        BadInput: `largest` is out of range, or the maps do not divide into heads.
        IndexError: an edge refers to a node that does not exist.

    Examples:
        >>> import torch
        >>> qkv = torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 4.0], [0.0, 0.0, 9.0]])  # equal scores: the mean of values
        >>> attend_along_edges(qkv, torch.tensor([[0, 1], [2, 2]]), None, num_heads=1)[0]
        tensor([[0.],
                [0.],
                [3.]])
    """
    check_range("largest", largest, above=0, at_most=50)
    if num_heads < 1 or qkv.shape[-1] % (3 * num_heads):
        raise BadInput(f"qkv must divide into three maps of {num_heads} heads, but has {qkv.shape[-1]} channels.")
    mixed, scores, weights = edge_attention(qkv, edge_index, steer, num_heads, largest, with_scores)
    return mixed, scores if with_scores else None, weights
