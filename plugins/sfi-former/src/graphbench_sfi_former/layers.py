"""The global attentions of SFi-Former and DFi-Former: a flow beside the adjacency matrix.

SFi-Former (Li et al., 2025, section 4.2, equation 13), for H heads of full width d and any attention matrix Z:

    X' = X + (1 + gamma)^-1 sum_h [A~ + gamma Z_h] X W_V^h W_O^h

The residual branch X belongs to the GPS layer around it; everything else is here.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench import LayerTrace, Traced
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout, attend, attention_weights, mixed_values
from graphbench_sfi_former.attention import Solver, flow_resistance, sparse_flow_attention, sparse_flow_weights
from graphbench_sfi_former.edges import adjacency_dtype, adjacency_of, edge_mask
from graphbench_sfi_former.reference import ProximalOptions
from graphbench_sfi_former.sparse_flow import sparse_flow

Terms = Literal["both", "flow", "adjacency"]


class Heads(nn.Module):
    """Several maps with bias in one product, each to H heads.

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        num_maps: how many maps.
        head_dim: width of a head.
    """

    def __init__(self, dim: int, num_heads: int, num_maps: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.num_maps = num_heads, num_maps
        self.linear = nn.Linear(dim, num_maps * num_heads * head_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Nodes `[T, dim]` to `[T, num_maps H head_dim]`."""
        projected: Tensor = self.linear(x)
        return projected

    def split(self, projected: Tensor, layout: DenseLayout) -> list[tuple[Tensor, ...]]:
        """For each of `layout.blocks` one padded tensor `[b, H, n, head_dim]` per map, of what `forward` returns."""
        return layout.to_block_heads(projected, self.num_maps, self.num_heads)


class PaddedGraphs(NamedTuple):
    """Some graphs of similar size, as an attention matrix is made of them.

    Args:
        layout: of these graphs alone.
        maps: Q, K, V and what else a layer projects, `[B, H, N, dim]` each.
        mask: sources that are allowed, bool, broadcastable to `[B, H, N, N]`; None where all are.
        friction: given frictions `[B, H or 1, N, N]`.
        num_nodes: of each graph `[B, 1, 1, 1]`.
        largest: nodes of the largest graph of the whole batch.
    """

    layout: DenseLayout
    maps: tuple[Tensor, ...]
    mask: Tensor | None
    friction: Tensor | None
    num_nodes: Tensor
    largest: int


class AdjacencyEnhancedAttention(Traced):
    """Equation (13) around any attention matrix; base of the sparse and of the dense layer.

    `gamma = exp(log_gamma)` is positive, so that `1 + gamma` never vanishes, and 1 at first; the paper gives no initial
    value.

    The published parameter counts have 2 dim + 2 numbers per layer that the maps of the paper do not explain. One is
    gamma. The others are our guess, `extra_parameters`: a scale and a shift of every output channel, 1 and 0 at first,
    and a weight of A~, 1 at first, so that an untrained layer is equation (13) to the letter.

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        dropout: probability of dropping a weight of the flow; A~ keeps all of its own.
        terms: "both" as in the paper; "flow" for Z without A~ and gamma, "adjacency" for A~ alone (table 3).
        extra_parameters: with the guessed parameters.
        head_dim: width of a head, dim where it is left out, as in the paper; that of GPS is dim / H.

    Raises:
        BadInput: no head, unknown `terms`, or `dropout` is no probability below 1.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float,
        terms: Terms = "both",
        extra_parameters: bool = True,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        check_range("dim", dim, at_least=1, whole=True)
        self.head_dim = dim if head_dim is None else head_dim
        check_range("head_dim", self.head_dim, at_least=1, whole=True)
        check_range("num_heads", num_heads, at_least=1, whole=True)
        check_range("dropout (of attention weights)", dropout, at_least=0, below=1)
        check_choice("terms", terms, ("both", "flow", "adjacency"))
        self.num_heads, self.dropout = num_heads, nn.Dropout(dropout)
        self.with_flow, self.with_adjacency = terms != "adjacency", terms != "flow"
        self.in_proj = Heads(dim, num_heads, 3 if self.with_flow else 1, self.head_dim)
        self.out_proj = nn.Linear(num_heads * self.head_dim, dim)
        self.log_gamma = nn.Parameter(torch.zeros(())) if terms == "both" else None
        weighted = extra_parameters and self.with_adjacency
        self.adjacency_weight = nn.Parameter(torch.ones(())) if weighted else None
        self.scale = nn.Parameter(torch.ones(dim)) if extra_parameters else None
        self.shift = nn.Parameter(torch.zeros(dim)) if extra_parameters else None

    @abstractmethod
    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Z V, `[B, H, N, dim]`, with dropout while training."""

    @abstractmethod
    def weights(self, graphs: PaddedGraphs) -> Tensor:
        """Z, `[B, H, N, N]`, without dropout."""

    @property
    def gamma(self) -> Tensor | None:
        """Weight of the flow beside A~; None where only one of them is there."""
        return None if self.log_gamma is None else self.log_gamma.exp()

    @property
    def projections(self) -> tuple[Heads, ...]:
        """Maps of the nodes; the first gives Q, K and V, or V alone where there is no flow."""
        return (self.in_proj,)

    def forward(
        self,
        x: Tensor,
        batch: Data,
        layout: DenseLayout | None = None,
        graph: Tensor | None = None,
        friction: Tensor | None = None,
    ) -> Tensor:
        """Mix nodes within each graph.

        Args:
            x: nodes `[T, dim]`.
            batch: the graphs, a batch of PyG or of graphbench; their edges make A~.
            layout: where nodes lie in padded graphs; by default made from the batch. Layers may share one.
            graph: graph of the flow, bool `[B, H or 1, N, N]`: whether the node of a row may draw on that of a column;
                by default on all. Rows without a source get a flow of 0.
            friction: given frictions, non-negative `[B, H or 1, N, N]`, for layers that do not learn them.

        Returns:
            `[T, dim]`, without the residual branch.
        """
        layout = DenseLayout.from_batch(batch) if layout is None else layout
        projected = [project(x) for project in self.projections]
        padded = self._padded(projected, layout, graph, friction) if self.with_flow else []
        flow = layout.from_block_heads([self.mix(graphs) for graphs in padded]) if padded else None
        out = self.out_proj(self._balance(flow, projected[0], batch))
        if self.scale is not None and self.shift is not None:
            out = torch.addcmul(self.shift, out, self.scale)
        self.trace(lambda: self._record(x, layout, padded, out))
        return out

    def _padded(
        self,
        projected: list[Tensor],
        layout: DenseLayout,
        graph: Tensor | None,
        friction: Tensor | None,
    ) -> list[PaddedGraphs]:
        """Pad the graphs of the batch, those of similar size together."""
        padded = []
        each = [heads.split(rows, layout) for heads, rows in zip(self.projections, projected, strict=True)]
        for block, *parts in zip(layout.blocks, *each, strict=True):
            own, allowed, maps = block.layout, block.take_pairs(graph), tuple(chain.from_iterable(parts))
            mask = None if own.is_full else own.mask[:, None, None, :]
            if allowed is not None:
                mask = allowed if mask is None else mask & allowed
            num_nodes = own.ptr.diff()[:, None, None, None]
            given = block.take_pairs(friction)
            padded.append(PaddedGraphs(own, maps, mask, given, num_nodes, layout.max_nodes))
        return padded

    def _balance(self, flow: Tensor | None, projected: Tensor, batch: Data) -> Tensor:
        """Compute (A~ V + gamma Z V) / (1 + gamma) `[T, H dim]`, or one of the terms alone."""
        if not self.with_adjacency:
            assert flow is not None
            return flow
        values = projected[:, -self.out_proj.in_features :]
        near = adjacency_of(batch, adjacency_dtype(values)).mix(values)
        if self.adjacency_weight is not None:
            near = near * self.adjacency_weight
        gamma = self.gamma
        if gamma is None or flow is None:
            return near
        return (near + gamma * flow) / (1 + gamma)

    @torch.no_grad()
    def _record(self, x: Tensor, layout: DenseLayout, padded: list[PaddedGraphs], out: Tensor) -> LayerTrace:
        """`attention` holds the flows Z, `values` what they mix, `mixing_weight` is gamma.

        There is no `attention` where an iteration has left negative flows, which the optimum never has: diagnostics
        read weights.
        """
        attention = layout.matrices_of_graphs([self.weights(graphs) for graphs in padded]) if padded else []
        shown = bool(attention) and all(bool((matrix >= 0).all()) for matrix in attention)
        w_value = self.in_proj.linear.weight[-self.out_proj.in_features :]
        w_out = self.out_proj.weight if self.scale is None else self.scale[:, None] * self.out_proj.weight
        gamma = self.gamma
        return LayerTrace(
            tokens=out.detach(),
            batch=layout.graph_of,
            values=mixed_values(x, w_value, w_out, self.num_heads),
            attention=attention if shown else None,
            num_nodes=layout.ptr.diff(),
            input=x.detach(),
            mixing_weight=None if gamma is None else gamma.detach(),
        )


log = logging.getLogger(__name__)

SolverName = Literal["exact", "proximal"]
PenaltySize = Literal["graph", "batch"] | int
FrictionName = Literal["learned", "uniform", "given"]
FlowGraph = Literal["complete", "edges"]


class SparseFlowAttention(AdjacencyEnhancedAttention):
    """SFi-attention (sections 3.2 to 4.2): equation (13) with the flow of equation (11) or, without alpha, (7).

    A drop-in for any GPS-like model: a `graphbench.nn.GlobalAttention`. Resistances and frictions are two multi-head
    attentions, R = softmax(-Q K^T / sqrt dim) and F = softmax(Q~ K~^T / sqrt dim), and the weight of the friction is
    `penalty / N`. With `terms="flow"` and without `extra_parameters` it is the flow alone.

    A row carries no flow at all where every friction f_i >= alpha N / penalty. As the frictions of N keys sum to one,
    this happens only in graphs of up to sqrt(penalty / alpha) nodes: with the paper's 1 and 0.1 and the graph's own N
    always at N = 1, at N = 2 wherever both frictions exceed 0.2, and at N = 3 where all exceed 0.3. In the paper, N is
    that of the batch's largest graph; here a number for `penalty_size` does the same without coupling graphs.

    Parameters: `6 H dim^2 + (5 H + 1) dim`, and 2 dim + 2 more, see `AdjacencyEnhancedAttention`.

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        penalty: lambda*, non-negative.
        alpha: weight of the unit-inflow term, positive; None for rows that sum to one.
        dropout: probability of dropping a weight of the flow.
        terms: "both", "flow" or "adjacency".
        friction: "learned" as in the paper; "uniform", 1 / N on all links, which leaves a plain L1 penalty on the flow
            and makes no zeros; or "given" to `forward`.
        flow_graph: the flow runs over the "complete" graph as in the paper, or over the "edges" of the graph and loops;
            `forward` takes any other graph.
        penalty_size: what N is: the number of nodes of the "graph"; that of the largest graph of the "batch" as in the
            paper, where a graph's answer depends on what shares its batch; or one number for all graphs.
        solver: "exact", or "proximal" for T steps of the paper's iteration.
        proximal: options of the solver "proximal"; by default `ProximalOptions()`. They are stored with the weights.
        extra_parameters: with the guessed parameters of `AdjacencyEnhancedAttention`.
        head_dim: width of a head, see there.

    Raises:
        BadInput: an option is out of range, or two do not fit each other.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Batch, Data
        >>> from graphbench_sfi_former import SparseFlowAttention
        >>> path = Data(x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> batch = Batch.from_data_list([path, path])
        >>> SparseFlowAttention(8, num_heads=2)(batch.x, batch).shape
        torch.Size([6, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 4,
        penalty: float = 1.0,
        alpha: float | None = 0.1,
        dropout: float = 0.0,
        *,
        terms: Terms = "both",
        friction: FrictionName = "learned",
        flow_graph: FlowGraph = "complete",
        penalty_size: PenaltySize = "graph",
        solver: SolverName = "exact",
        proximal: ProximalOptions | None = None,
        extra_parameters: bool = True,
        head_dim: int | None = None,
    ) -> None:
        super().__init__(dim, num_heads, dropout, terms, extra_parameters, head_dim)
        _check_energy(penalty, alpha)
        _check_choices(friction, flow_graph, penalty_size, solver)
        if solver == "proximal" and alpha is None:
            raise BadInput("The solver proximal needs alpha: the iteration has no hard constraint. Use solver: exact.")
        if solver != "proximal" and proximal is not None:
            raise BadInput(f"The options proximal go with solver: proximal, but the solver is {solver}.")
        self.penalty, self.alpha = penalty, alpha
        self.flow_graph, self.penalty_size, self.solver = flow_graph, penalty_size, solver
        self.proximal = (proximal or ProximalOptions()) if solver == "proximal" else None
        learned = self.with_flow and friction == "learned"
        self.friction_given = friction == "given"
        self.friction_proj = Heads(dim, num_heads, 2, self.head_dim) if learned else None

    @property
    def projections(self) -> tuple[Heads, ...]:
        """Q, K and V, and Q~ and K~ where frictions are learned."""
        return (self.in_proj,) if self.friction_proj is None else (self.in_proj, self.friction_proj)

    def forward(
        self,
        x: Tensor,
        batch: Data,
        layout: DenseLayout | None = None,
        graph: Tensor | None = None,
        friction: Tensor | None = None,
    ) -> Tensor:
        """As `AdjacencyEnhancedAttention.forward`.

        Raises:
            BadInput: frictions are given to a layer that learns them, or missing for one that does not.
        """
        if self.with_flow and (friction is None) == self.friction_given:
            raise BadInput(
                "A SparseFlowAttention with friction='given' takes friction [B, H or 1, N, N] in forward, and one with "
                "friction='learned' or 'uniform' takes none."
            )
        layout = DenseLayout.from_batch(batch) if layout is None else layout
        if graph is None and self.flow_graph == "edges":
            graph = edge_mask(batch, layout)
        return super().forward(x, batch, layout, graph, friction)

    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Z V `[B, H, N, dim]`, with dropout while training."""
        if self.friction_proj is None:
            weights: Tensor = self.dropout(self.weights(graphs))
            return weights.to(graphs.maps[2].dtype) @ graphs.maps[2]
        query, key, value, friction_query, friction_key = graphs.maps
        solver: Literal["exact"] | Solver = "exact" if self.proximal is None else self.proximal.solve
        return sparse_flow_attention(
            query,
            key,
            friction_query,
            friction_key,
            value,
            self.weight_of_friction(graphs),
            self.alpha,
            self._mask(graphs),
            dropout=self.dropout.p if self.training else 0.0,
            solver=solver,
        )

    def weights(self, graphs: PaddedGraphs) -> Tensor:
        """Z `[B, H, N, N]`, without dropout."""
        query, key = graphs.maps[:2]
        penalty, mask = self.weight_of_friction(graphs), self._mask(graphs)
        if self.friction_proj is not None:
            solver: Literal["exact"] | Solver = "exact" if self.proximal is None else self.proximal.solve
            friction_query, friction_key = graphs.maps[3:]
            return sparse_flow_weights(query, key, friction_query, friction_key, penalty, self.alpha, mask, solver)
        resistance = flow_resistance(query, key, graphs.mask)
        friction = graphs.friction
        if friction is None:
            friction = 1 / graphs.num_nodes.to(resistance.dtype)
        friction = friction.to(resistance.dtype).expand(resistance.shape)
        solve = sparse_flow if self.proximal is None else self.proximal.solve
        return solve(resistance, friction, penalty, self.alpha, mask)

    def weight_of_friction(self, graphs: PaddedGraphs) -> float | Tensor:
        """lambda* / N, a number or `[B, 1, 1, 1]`."""
        if self.penalty_size == "batch":
            return self.penalty / graphs.largest
        if self.penalty_size != "graph":
            return self.penalty / self.penalty_size
        return self.penalty / graphs.num_nodes

    def _mask(self, graphs: PaddedGraphs) -> Tensor | None:
        """Return the allowed sources; the iteration's steps, one length per matrix, must not see padded rows either."""
        if self.proximal is None or graphs.mask is None:
            return graphs.mask
        return graphs.mask & graphs.layout.mask[:, None, :, None]

    def get_extra_state(self) -> dict[str, Any]:
        """Return what checkpoints hold beside weights: T, start, step and seed of the solver "proximal"."""
        return {} if self.proximal is None else self.proximal.as_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Warn where a checkpoint was trained with other options of the iteration; those of this layer stay."""
        own = self.get_extra_state()
        if state != own:
            log.warning(
                "A layer of the checkpoint was trained with %s, but this model has %s.",
                state or "an exact solver",
                own or "an exact solver",
            )

    def extra_repr(self) -> str:
        """Return the options that decide the flow, for `print(module)`."""
        return f"penalty={self.penalty}, alpha={self.alpha}, penalty_size={self.penalty_size}, solver={self.solver}"


class DenseFlowAttention(AdjacencyEnhancedAttention):
    """DFi-attention: equation (13) without friction, where the flow is softmax attention (equation 6).

    Weights have the names and shapes of those of `SparseFlowAttention`, which can start from them (SFi-Former+).

    Parameters: `4 H dim^2 + (3 H + 1) dim`, and 2 dim + 2 more, see `AdjacencyEnhancedAttention`.

    Args:
        dim: width of the nodes and of every head.
        num_heads: heads H.
        dropout: probability of dropping an attention weight.
        terms: "both", "flow" or "adjacency".
        extra_parameters: with the guessed parameters of `AdjacencyEnhancedAttention`.
        head_dim: width of a head, see there.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> from torch_geometric.data import Data
        >>> graph = Data(x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> DenseFlowAttention(8, num_heads=2)(graph.x, graph).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 4,
        dropout: float = 0.0,
        *,
        terms: Terms = "both",
        extra_parameters: bool = True,
        head_dim: int | None = None,
    ) -> None:
        super().__init__(dim, num_heads, dropout, terms, extra_parameters, head_dim)

    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Softmax attention `[B, H, N, dim]`, with dropout while training."""
        query, key, value = graphs.maps
        return attend(query, key, value, hidden_sources(graphs.mask), self.dropout.p if self.training else 0.0)

    def weights(self, graphs: PaddedGraphs) -> Tensor:
        """Attention weights `[B, H, N, N]`, without dropout."""
        query, key = graphs.maps[:2]
        return attention_weights(query, key, hidden_sources(graphs.mask))


def hidden_sources(mask: Tensor | None) -> Tensor | None:
    """Return the term that hides sources, added to logits: 0 or minus infinity, of the shape of `mask`."""
    return None if mask is None else torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)


def _check_energy(penalty: float, alpha: float | None) -> None:
    check_range("penalty (lambda*)", penalty, at_least=0, below=float("inf"))
    if alpha is not None:
        check_range("alpha (null for rows that sum to one)", alpha, above=0, below=float("inf"))


def _check_choices(friction: str, flow_graph: str, penalty_size: PenaltySize, solver: str) -> None:
    check_choice("friction", friction, ("learned", "uniform", "given"))
    check_choice("flow_graph", flow_graph, ("complete", "edges"))
    check_choice("solver", solver, ("exact", "proximal"))
    if not isinstance(penalty_size, str):
        check_range("penalty_size", penalty_size, at_least=1, whole=True)
    elif penalty_size not in ("graph", "batch"):
        raise BadInput(f"penalty_size must be graph, batch or a number of nodes, but got {penalty_size!r}.")
