"""Plain regularisers of attention as rivals of the friction: a row of weights by L2, or a penalty on rows in the loss.

A row of attention is the point of the simplex `z >= 0, sum_i z_i = 1` that is best for its logits s:

    max_z  s . z - Omega(z)

With the (negative) entropy for Omega it is softmax, with `|z|^2 / 2` sparsemax (Martins & Astudillo, "From Softmax to
Sparsemax", ICML 2016, arXiv 1602.02068), and with `|z|_1`, which is 1 on all of the simplex, nothing but the largest
logit. As penalties in the loss stand the entropy of rows of softmax and `1 - |z|^2`; both vanish where a row has one
weight.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.errors import check_choice
from graphbench.nn import DenseLayout
from graphbench_sfi_former.enhanced import PaddedGraphs, Terms
from graphbench_sfi_former.layers import DenseFlowAttention, hidden_sources

#: sparsemax: rows by L2. entropy, l2: softmax with that penalty on its rows in the loss.
Rival = Literal["sparsemax", "entropy", "l2"]
RIVALS: tuple[Rival, ...] = ("sparsemax", "entropy", "l2")


def sparsemax(logits: Tensor) -> Tensor:
    """Return the nearest point of the simplex to each row, `max(s_i - tau, 0)` with tau such that they sum to one.

    Sorted downwards, the k largest logits stay, k the last with `1 + k s_k > s_1 + ... + s_k`.

    Args:
        logits: `[..., K]`; minus infinity hides an entry, of which a row needs a finite one.

    Examples:
        >>> sparsemax(torch.tensor([[1.0, 0.8, -1.0], [3.0, 0.0, 0.0]]))
        tensor([[0.6000, 0.4000, 0.0000],
                [1.0000, 0.0000, 0.0000]])
    """
    finite = torch.where(logits.isneginf(), torch.finfo(logits.dtype).min / 4, logits)
    finite = finite - finite.amax(-1, keepdim=True).detach()  # sums of large numbers would lose the small ones
    ordered = finite.sort(-1, descending=True).values
    number = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device, dtype=ordered.dtype)
    sums = ordered.cumsum(-1)
    count = (1 + number * ordered > sums).sum(-1, keepdim=True)
    tau = (sums.gather(-1, count - 1) - 1) / count
    return (finite - tau).clamp(min=0)


class RivalAttention(DenseFlowAttention):
    """Equation (13) around rows of attention that a plain regulariser makes sparse, or drives to be.

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        dropout: probability of dropping an attention weight.
        rival: sparsemax, entropy or l2.
        terms: "both", "flow" or "adjacency".
        extra_parameters: see `AdjacencyEnhancedAttention`.
        head_dim: width of a head.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> graph = Data(x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> layer = RivalAttention(8, num_heads=2, rival="entropy")
        >>> layer(graph.x, graph).shape, bool(layer.take_row_penalty() > 0)
        (torch.Size([3, 8]), True)
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 4,
        dropout: float = 0.0,
        *,
        rival: Rival,
        terms: Terms = "both",
        extra_parameters: bool = True,
        head_dim: int | None = None,
    ) -> None:
        check_choice("rival", rival, RIVALS)
        super().__init__(dim, num_heads, dropout, terms=terms, extra_parameters=extra_parameters, head_dim=head_dim)
        self.rival = rival
        self._row_penalty: Tensor | None = None
        self._sums: list[Tensor] = []

    def forward(
        self,
        x: Tensor,
        batch: Data,
        layout: DenseLayout | None = None,
        graph: Tensor | None = None,
        friction: Tensor | None = None,
    ) -> Tensor:
        """As `AdjacencyEnhancedAttention.forward`; keeps the penalty."""
        self._sums = []
        out = super().forward(x, batch, layout, graph, friction)
        self._row_penalty = torch.stack(self._sums).sum() / len(x) if self._sums else None
        self._sums = []
        return out

    def take_row_penalty(self) -> Tensor | None:
        """Return the mean penalty over rows and heads of the last forward pass, once; None for sparsemax."""
        penalty, self._row_penalty = self._row_penalty, None
        return penalty

    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Z V `[B, H, N, dim]`, with dropout while training."""
        weights, value = self.weights(graphs), graphs.maps[2]
        if self.rival != "sparsemax":
            rows = _entropy(weights) if self.rival == "entropy" else 1 - weights.square().sum(-1)
            self._sums.append((rows.mean(1) * graphs.layout.mask).sum())
        dropped: Tensor = self.dropout(weights)
        return dropped.to(value.dtype) @ value

    def weights(self, graphs: PaddedGraphs) -> Tensor:
        """Z `[B, H, N, N]`, without dropout."""
        if self.rival != "sparsemax":
            return super().weights(graphs)
        query, key = graphs.maps[:2]
        logits = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        bias = hidden_sources(graphs.mask)
        return sparsemax(logits if bias is None else logits + bias.to(logits.dtype))


def _entropy(weights: Tensor) -> Tensor:
    """Return the entropy of every row; 0 log 0 = 0, also in the gradient."""
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log()).sum(-1)
