"""GatedGCN, with the distance gate of ES-LapPE as an option.

Legend: node i receives from node j along edge j -> i; `edge_index` contains (j, i).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.errors import BadInput, check_choice
from graphbench.nn.norms import NormName, make_norm
from graphbench.nn.ops import gated_messages


class EdgeGate(nn.Module):
    """Compute a scalar gate from the distance between two positions (ES-LapPE; Wang et al. 2022, section 4).

    `r_ij = sigmoid(w2 . ReLU(w1 |p_i - p_j|^2 + b1) + b2)`; `3 dim + 1` parameters.

    Args:
        dim: hidden width.
        activation: replaces ReLU.

    Examples:
        >>> EdgeGate(8)(torch.rand(4, 1)).shape
        torch.Size([4, 1])
    """

    def __init__(self, dim: int, activation: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        self.expand = nn.Linear(1, dim)
        self.contract = nn.Linear(dim, 1)
        self.activation = activation

    def forward(self, distances: Tensor) -> Tensor:
        """Map squared distances `[num_edges, 1]` to gates `[num_edges, 1]`."""
        return torch.sigmoid(self.contract(self.activation(self.expand(distances))))


class GatedGCNLayer(nn.Module):
    """GatedGCN (Bresson & Laurent 2017) with edge updates and residuals, in the equations of Dwivedi et al. 2023.

        e^_ij = D x_i + E x_j + C e_ij                 s_ij = sigmoid(e^_ij) r_ij
        x^_i  = A x_i + (sum_j s_ij * B x_j) / (sum_j s_ij + 1e-6)
        x'_i  = x_i + Drop(ReLU(Norm(x^_i)))           e'_ij = e_ij + Drop(ReLU(Norm(e^_ij)))

    All products with s are element-wise; r is 1 unless the layer has an `EdgeGate`. Dropout is placed as in GraphGPS;
    with `drops="output"` it applies to the sums, `x'_i = Drop(x_i + ReLU(Norm(x^_i)))`, as in "Benchmarking Graph
    Neural Networks". Parameters: `5 dim^2 + 9 dim` with batch norm, `3 dim + 1` more with the gate.

    Args:
        dim: width of nodes and edges.
        dropout: probability of both dropouts.
        norm: batch, layer or none.
        residual: add `x_i` and `e_ij` as in the equations.
        gated_by_distance: multiply the gates by `r_ij`.
        drops: what both dropouts apply to: the branch or the output.
        activation: replaces ReLU, also in the `EdgeGate`.

    Raises:
        BadInput: `drops` or `norm` is unknown.

    Examples:
        >>> layer = GatedGCNLayer(8)
        >>> x, edge = layer(torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.randn(4, 8))
        >>> x.shape, edge.shape
        (torch.Size([3, 8]), torch.Size([4, 8]))
    """

    def __init__(
        self,
        dim: int,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        gated_by_distance: bool = False,
        drops: Literal["branch", "output"] = "branch",
        activation: Callable[[Tensor], Tensor] = F.relu,
    ) -> None:
        super().__init__()
        check_choice("drops", drops, ("branch", "output"))
        # Initial values depend only on the input width, so one map is initialised like four separate ones.
        self.node_maps = nn.Linear(dim, 4 * dim)  # A, B, D, E of the equations, in one product
        self.edge_map = nn.Linear(dim, dim)  # C
        self.node_norm = make_norm(norm, dim)
        self.edge_norm = make_norm(norm, dim)
        self.gate: nn.Module | None = EdgeGate(dim, activation) if gated_by_distance else None
        self.dropout = nn.Dropout(dropout)
        self.residual = residual
        self.drops = drops
        self.activation = activation

    def forward(
        self, x: Tensor, edge_index: Tensor, edge: Tensor, distances: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Update nodes `[num_nodes, dim]` and edges `[num_edges, dim]` by one round of messages.

        A layer with a distance gate reads squared `distances [num_edges, 1]`.

        Raises:
            BadInput: the layer has a distance gate, but got no distances.
        """
        if self.gate is not None and distances is None:
            raise BadInput("GatedGCNLayer with gated_by_distance: true needs distances [num_edges, 1], but got None.")
        gates = None if self.gate is None else self.gate(distances)
        x_hat, edge_hat = gated_messages(self.node_maps(x), edge_index, self.edge_map(edge), gates)
        return self._update(x, x_hat, self.node_norm), self._update(edge, edge_hat, self.edge_norm)

    def _update(self, old: Tensor, raw: Tensor, norm: nn.Module) -> Tensor:
        new = self.activation(norm(raw))
        if self.drops == "branch":
            new = self.dropout(new)
        new = old + new if self.residual else new
        return self.dropout(new) if self.drops == "output" else new
