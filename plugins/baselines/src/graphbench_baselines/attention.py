"""Attention of Graphormer and SAT with biased logits or structural queries and keys, and extensions for depth.

DeepGraph (Zhao et al., ICLR 2023, section 6.5) deepens both with gate fusion of all layers, re-attention and activation
checkpointing.

Legend: T tokens of all graphs, B graphs of a block, N padded tokens, H heads, d head width, dim = H d.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphbench import LayerTrace, Traced
from graphbench.errors import BadInput, check_choice, check_divides
from graphbench.nn import BatchNorm, DenseLayout, attend_within_graphs, attention_weights, mixed_values

#: How attention stores graphs of different sizes on a GPU.
Padding = Literal["padded", "packed"]


class StructuredAttention(Traced):
    """`out_i = W^O concat_h(sum_j softmax_j(q_i . k_j / sqrt(d) + bias_ij) v_j) + b^O`.

    Queries and keys are maps of `structure` if given, values always of the tokens. `4 dim^2` parameters and `4 dim`
    biases, or `dim` biases with `bias=False`. Without re-attention the fused kernel is used.

    A trace contains the values `x W^V W^O`. It has no matrices with re-attention, whose weights may be negative and do
    not sum to one.

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an attention weight.
        bias: use biases in the maps to queries, keys and values.
        re_attention: let heads exchange their weights, see `ReAttention`.
        extra_tokens: tokens of every graph that are not nodes, after the nodes; for traces.
        attention: padded or packed; packed: on a GPU by a kernel without padding, see `attend_within_graphs`.

    Raises:
        BadInput: `num_heads` does not divide `dim`, or re-attention is used with packed attention.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        re_attention: bool = False,
        extra_tokens: int = 0,
        attention: Padding = "padded",
    ) -> None:
        super().__init__()
        check_choice("attention", attention, get_args(Padding))
        if re_attention and attention == "packed":
            raise BadInput("re_attention needs all weights, which attention=packed never stores: set attention=padded.")
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads, self.dropout, self.extra_tokens = num_heads, dropout, extra_tokens
        self.packed = attention == "packed"
        # Two products, since queries and keys may read different rows than values (SAT's structure).
        self.qk_map = nn.Linear(dim, 2 * dim, bias=bias)  # W^Q and W^K
        self.v_map = nn.Linear(dim, dim, bias=bias)  # W^V
        self.out_map = nn.Linear(dim, dim)  # W^O
        self.re_attention = ReAttention(num_heads, dim // num_heads) if re_attention else None

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout,
        biases: Sequence[Tensor | None] | None = None,
        structure: Tensor | None = None,
    ) -> Tensor:
        """Attend within each graph.

        Args:
            x: tokens `[T, dim]`.
            layout: layout of the tokens in padded graphs.
            biases: `layout.block_biases(bias)`; None for no bias.
            structure: input of queries and keys `[T, dim]`; by default the tokens.
        """
        qkv = torch.cat([self.qk_map(x if structure is None else structure), self.v_map(x)], dim=-1)
        if self.re_attention is None:
            dropout = self.dropout if self.training else 0.0
            mixed = attend_within_graphs(qkv, layout, self.num_heads, biases, dropout, self.packed)
        else:
            blocks = layout.to_block_heads(qkv, 3, self.num_heads)
            mixed = layout.from_block_heads(self._re_attend(self.re_attention, blocks, layout, biases))
        out: Tensor = self.out_map(mixed)
        self.trace(lambda: self._record(x, qkv, layout, biases, out))
        return out

    def _re_attend(
        self,
        exchange: ReAttention,
        blocks: Sequence[tuple[Tensor, ...]],
        layout: DenseLayout,
        biases: Sequence[Tensor | None] | None,
    ) -> list[Tensor]:
        """Return the mixed values `[B, H, N, d]` of each block with re-attention."""
        biases = layout.block_biases() if biases is None else biases
        weights = [attention_weights(q, k, bias) for (q, k, _), bias in zip(blocks, biases, strict=True)]
        # Before the exchange, as in DeepViT's code: other heads may refill an entry that one head drops.
        weights = [F.dropout(weight, self.dropout, self.training) for weight in weights]
        exchanged = exchange(weights, [block.layout.pair_slots for block in layout.blocks])
        # Under autocast the norm of the exchange returns float32.
        return [weight.to(v.dtype) @ v for weight, (_, _, v) in zip(exchanged, blocks, strict=True)]

    @torch.no_grad()
    def _record(
        self,
        x: Tensor,
        qkv: Tensor,
        layout: DenseLayout,
        biases: Sequence[Tensor | None] | None,
        out: Tensor,
    ) -> LayerTrace:
        matrices, biases = None, layout.block_biases() if biases is None else biases
        if self.re_attention is None:
            pairs = zip(layout.to_block_heads(qkv, 3, self.num_heads), biases, strict=True)
            matrices = layout.matrices_of_graphs([attention_weights(q, k, bias) for (q, k, _), bias in pairs])
        none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return LayerTrace(
            tokens=out.detach(),
            batch=layout.graph_of,
            values=mixed_values(x, self.v_map.weight, self.out_map.weight, self.num_heads),
            attention=matrices,
            num_nodes=layout.ptr.diff() - self.extra_tokens,
            input=x,
            substructure=none if self.extra_tokens else None,  # a graph token is not a substructure
        )


class GateFusion(nn.Module):
    """Hierarchical fusion by gates (Shi et al., "Revisiting over-smoothing in BERT", ICLR 2022): `dim` parameters.

    `h_i = sum_l softmax_l(w . h_i^l) h_i^l` over the input of the first layer and the outputs of all layers, for each
    token. A bias would cancel in the softmax; checkpoints of older versions, which have one, load without it.

    Args:
        dim: width of the tokens.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, 1, bias=False)
        self.register_load_state_dict_pre_hook(_drop_gate_bias)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Fuse the states `[T, dim]` of all depths into one."""
        stacked = torch.stack(tuple(states))
        return (self.gate(stacked).softmax(0) * stacked).sum(0)


def _drop_gate_bias(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Drop the bias of the gate from an older checkpoint."""
    state.pop(f"{prefix}gate.bias", None)


class ReAttention(nn.Module):
    """Exchange of attention weights between heads (Zhou et al., "DeepViT", arXiv 2103.11886, section 4.2).

    `A'_h = BN_h(sum_g Theta_hg A_g + b_h) / sqrt(d)`, in the form that DeepGraph's code uses to deepen Graphormer: the
    norm includes all real pairs of tokens, never padding. `H^2 + 3 H` parameters.

    Args:
        num_heads: heads H.
        head_dim: width d of a head.
    """

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.mix = nn.Linear(num_heads, num_heads)
        self.norm = BatchNorm(num_heads)
        self.scale = head_dim**-0.5

    def forward(self, weights: Sequence[Tensor], slots: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
        """Return the exchanged weights, zero at padding.

        Args:
            weights: attention weights `[B, H, N, N]` of blocks of graphs.
            slots: `pair_slots` of the layout of each block.

        Returns:
            Tensors of the same shapes.
        """
        # A real pair of tokens is a row of H weights for the batch norm, over all blocks at once.
        rows = [weight.permute(0, 2, 3, 1)[pairs] for weight, pairs in zip(weights, slots, strict=True)]
        mixed = self.norm(self.mix(torch.cat(rows))) * self.scale
        filled = []
        for weight, pairs, part in zip(weights, slots, mixed.split([len(row) for row in rows]), strict=True):
            # Zeros at padding, where the bias of `mix` and the shift of the norm would give keys a weight.
            dense = part.new_zeros(weight.shape[0], *weight.shape[2:], part.shape[-1])
            dense[pairs] = part
            filled.append(dense.permute(0, 3, 1, 2).to(weight.dtype))
        return filled


def run_layer(layer: nn.Module, *inputs: object, checkpointing: bool) -> Tensor:
    """Run a layer, optionally with gradient checkpointing, and return its tokens.

    No layer is recomputed while a trace is recording, since the trace would record it twice. Running statistics of
    norms are updated in the first pass only.

    Args:
        layer: layer that returns tokens `[T, dim]`.
        inputs: its arguments.
        checkpointing: recompute the layer in the backward pass.
    """
    listening = any(isinstance(part, Traced) and part.listening for part in layer.modules())
    if checkpointing and torch.is_grad_enabled() and not listening:

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), _fixed_statistics(layer)

        # Only the non-reentrant form takes `context_fn`.
        recomputed: Tensor = checkpoint(layer, *inputs, use_reentrant=False, context_fn=contexts)
        return recomputed
    tokens: Tensor = layer(*inputs)
    return tokens


@contextmanager
def _fixed_statistics(layer: nn.Module) -> Iterator[None]:
    """Freeze the running statistics of batch norms in `layer`, which still normalise with batch statistics."""
    norms = [part for part in layer.modules() if isinstance(part, nn.BatchNorm1d)]
    saved = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    # With momentum 0 running means and variances do not change; the counter is updated in place, hence a copy.
    for norm in norms:
        norm.momentum = 0.0
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked = norm.num_batches_tracked.clone()
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, saved, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
