"""What is done about depth: gate fusion of all layers, re-attention, and activation checkpointing.

Graphormer and SAT share it; DeepGraph (Zhao et al., ICLR 2023, section 6.5) deepens both of them with these remedies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphbench import Traced
from graphbench.nn import BatchNorm


class GateFusion(nn.Module):
    """Hierarchical fusion by gates (Shi et al., "Revisiting over-smoothing in BERT", ICLR 2022): `dim` parameters.

    `h_i = sum_l softmax_l(w . h_i^l) h_i^l` over what enters the first layer and what every layer returns, for each
    token on its own. A bias would be the same at all depths, so that the softmax takes it away again: older versions
    had one, and their weights load without it.

    Args:
        dim: width of the tokens.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, 1, bias=False)
        self.register_load_state_dict_pre_hook(_drop_gate_bias)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """One state `[T, dim]` of the states `[T, dim]` of all depths."""
        stacked = torch.stack(tuple(states))
        return (self.gate(stacked).softmax(0) * stacked).sum(0)


def _drop_gate_bias(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Forget the bias of a gate of a checkpoint that has one."""
    state.pop(f"{prefix}gate.bias", None)


class ReAttention(nn.Module):
    """Exchange of attention weights between heads (Zhou et al., "DeepViT", arXiv 2103.11886, section 4.2).

    `A'_h = BN_h(sum_g Theta_hg A_g + b_h) / sqrt(d)`, in the form that DeepGraph's code deepens Graphormer with: the
    norm sees all real pairs of tokens, never padding. `H^2 + 3 H` parameters.

    Args:
        num_heads: heads H.
        head_dim: width d of a head.
    """

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.mix = nn.Linear(num_heads, num_heads)
        self.norm = BatchNorm(num_heads)
        self.scale = head_dim**-0.5

    def forward(self, weights: Sequence[Tensor], masks: Sequence[Tensor]) -> list[Tensor]:
        """New weights, zero at padding.

        Args:
            weights: attention weights `[B, H, N, N]` of blocks of graphs.
            masks: which slots of a block hold a token, bool `[B, N]`.

        Returns:
            Shaped as they came.
        """
        pairs = [mask[:, :, None] & mask[:, None, :] for mask in masks]
        rows = [weight.permute(0, 2, 3, 1)[pair] for weight, pair in zip(weights, pairs, strict=True)]
        mixed = self.norm(self.mix(torch.cat(rows))) * self.scale
        parts = mixed.split([len(row) for row in rows])
        filled = []
        for weight, pair, part in zip(weights, pairs, parts, strict=True):
            dense = part.new_zeros(*pair.shape, part.shape[-1])
            dense[pair] = part
            filled.append(dense.permute(0, 3, 1, 2).to(weight.dtype))
        return filled


def run_layer(layer: nn.Module, *inputs: object, checkpointing: bool) -> Tensor:
    """Tokens after a layer, with its activations kept, or computed again on the way back.

    A listener hears a layer once, so nothing is computed again while one is there. Running statistics of norms are
    updated in the first pass only.

    Args:
        layer: returns tokens `[T, dim]`.
        inputs: its arguments.
        checkpointing: compute the layer again on the way back.
    """
    listening = any(isinstance(part, Traced) and part.listening for part in layer.modules())
    if checkpointing and torch.is_grad_enabled() and not listening:

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), _fixed_statistics(layer)

        recomputed: Tensor = checkpoint(layer, *inputs, use_reentrant=False, context_fn=contexts)
        return recomputed
    tokens: Tensor = layer(*inputs)
    return tokens


@contextmanager
def _fixed_statistics(layer: nn.Module) -> Iterator[None]:
    """Batch norms inside `layer` normalise as ever but leave their running statistics alone."""
    norms = [part for part in layer.modules() if isinstance(part, nn.BatchNorm1d)]
    kept = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked = norm.num_batches_tracked.clone()
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, kept, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches
