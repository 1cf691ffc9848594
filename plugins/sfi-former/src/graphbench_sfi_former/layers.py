"""Global attentions of SFi-Former and DFi-Former: a sparse or a dense flow in equation (13), see `enhanced`.

`RivalAttention` replaces the friction with a plain regulariser. A row of attention solves, for its logits s,

    max_z  s . z - Omega(z)        over the simplex  z >= 0, sum_i z_i = 1

The negative entropy for Omega gives softmax, and `|z|^2 / 2` gives sparsemax (Martins & Astudillo, "From Softmax to
Sparsemax", ICML 2016, arXiv 1602.02068); `|z|_1` is 1 on all of the simplex, so the largest logit would get all the
weight. Two more rivals keep softmax and add a penalty to the loss, the entropy of its rows or `1 - |z|^2`; both vanish
for rows with a single weight.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.contracts.devices import widest_dtype
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout, attend, attention_weights
from graphbench_sfi_former.attention import Solver, flow_resistance, sparse_flow_attention, sparse_flow_weights
from graphbench_sfi_former.enhanced import AdjacencyEnhancedAttention, Heads, PaddedGraphs, Terms, edge_mask
from graphbench_sfi_former.reference import ProximalOptions
from graphbench_sfi_former.sparse_flow import solving_dtype, sparse_flow

log = logging.getLogger(__name__)

SolverName = Literal["exact", "proximal"]
PenaltySize = Literal["graph", "batch"] | int
FrictionName = Literal["learned", "uniform", "given"]
FlowGraph = Literal["complete", "edges"]
#: sparsemax: L2 on rows. entropy, l2: softmax with that penalty on its rows in the loss.
Rival = Literal["sparsemax", "entropy", "l2"]
RIVALS: tuple[Rival, ...] = ("sparsemax", "entropy", "l2")


class SparseFlowAttention(AdjacencyEnhancedAttention):
    """SFi-attention (sections 3.2 to 4.2): equation (13) with the flow of equation (11) or, without alpha, (7).

    Drop-in for any GPS-like model: a `graphbench.nn.GlobalAttention`. Resistances and frictions are two multi-head
    attentions, R = softmax(-Q K^T / sqrt dim) and F = softmax(Q~ K~^T / sqrt dim), and the weight of the friction is
    `penalty / N`. With `terms="flow"` and without `extra_parameters` the layer computes only the flow.

    A row carries no flow if every friction f_i >= alpha N / penalty. As the frictions of N keys sum to one, this
    happens only in graphs of up to sqrt(penalty / alpha) nodes. With the paper's 1 and 0.1 and the graph's own N it
    always happens for N = 1, for N = 2 if both frictions exceed 0.2, and for N = 3 if all exceed 0.3. In the paper N is
    that of the batch's largest graph; a number for `penalty_size` has the same effect without coupling graphs.

    Parameters: `6 H dim^2 + (5 H + 1) dim`, and 2 dim + 2 more, see `AdjacencyEnhancedAttention`.

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        penalty: lambda*, non-negative.
        alpha: weight of the unit-inflow term, positive; None for rows that sum to one.
        dropout: probability of dropping a weight of the flow.
        terms: "both", "flow" or "adjacency".
        friction: "learned" as in the paper; "uniform", 1 / N on all links, which leaves a plain L1 penalty on the flow
            and produces no zeros; or "given" to `forward`.
        flow_graph: graph of the flow: "complete" as in the paper, or "edges" for the edges of the graph and loops; any
            other graph can be passed to `forward`.
        penalty_size: value of N: the number of nodes of the "graph"; that of the largest graph of the "batch" as in the
            paper, where a graph's answer depends on the rest of its batch; or one number for all graphs.
        solver: "exact", or "proximal" for T steps of the paper's iteration.
        proximal: options of the solver "proximal"; by default `ProximalOptions()`. They are stored with the weights.
        extra_parameters: add the guessed parameters of `AdjacencyEnhancedAttention`.
        head_dim: width of a head, see `AdjacencyEnhancedAttention`.

    Raises:
        BadInput: an option is out of range, two conflict, or `forward` gets frictions although they are learned, or
            none although it needs them.

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
        super().__init__(dim, num_heads, dropout, terms=terms, extra_parameters=extra_parameters, head_dim=head_dim)
        _check_energy(penalty, alpha)
        _check_choices(friction, flow_graph, penalty_size, solver)
        if solver == "proximal" and alpha is None:
            raise BadInput("The solver proximal needs alpha: the iteration has no hard constraint. Use solver: exact.")
        if solver != "proximal" and proximal is not None:
            raise BadInput(f"The options proximal need solver: proximal, but the solver is {solver}.")
        self.penalty, self.alpha = penalty, alpha
        self.flow_graph, self.penalty_size, self.solver = flow_graph, penalty_size, solver
        self.proximal = (proximal or ProximalOptions()) if solver == "proximal" else None
        learned = self.with_flow and friction == "learned"
        self.friction_given = friction == "given"
        # A separate module, so that `in_proj` has the shape of DFi-Former's, from whose weights SFi-Former+ starts.
        self.friction_proj = Heads(dim, num_heads, 2, self.head_dim) if learned else None

    @property
    def projections(self) -> tuple[Heads, ...]:
        """Maps to Q, K and V, and to Q~ and K~ if frictions are learned."""
        return (self.in_proj,) if self.friction_proj is None else (self.in_proj, self.friction_proj)

    def sources(self, batch: Data, layout: DenseLayout) -> Tensor | None:
        """Return the edges of the graph and loops, bool `[B, 1, N, N]`, for `flow_graph="edges"`."""
        return edge_mask(batch, layout) if self.flow_graph == "edges" else None

    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Return Z V `[B, H, N, dim]`, with dropout while training."""
        if (graphs.friction is None) == self.friction_given:
            raise BadInput(
                "A SparseFlowAttention with friction='given' needs friction [B, H or 1, N, N] in forward, and one with "
                "friction='learned' or 'uniform' accepts none."
            )
        if self.friction_proj is None:
            # Given or uniform frictions have no Q~ and K~ from which the solver could compute F block by block.
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
        """Return Z `[B, H, N, N]`, without dropout."""
        query, key = graphs.maps[:2]
        penalty, mask = self.weight_of_friction(graphs), self._mask(graphs)
        if self.friction_proj is not None:
            solver: Literal["exact"] | Solver = "exact" if self.proximal is None else self.proximal.solve
            friction_query, friction_key = graphs.maps[3:]
            return sparse_flow_weights(query, key, friction_query, friction_key, penalty, self.alpha, mask, solver)
        resistance = flow_resistance(query, key, graphs.mask)
        friction = graphs.friction
        if friction is None:
            # The softmax of equal logits. Cast first: 1 over an integer tensor is float32 even in a float64 model.
            friction = 1 / graphs.num_nodes.to(resistance.dtype)
        friction = friction.to(resistance.dtype).expand(resistance.shape)
        solve = sparse_flow if self.proximal is None else self.proximal.solve
        return solve(resistance, friction, penalty, self.alpha, mask)

    def weight_of_friction(self, graphs: PaddedGraphs) -> float | Tensor:
        """Return lambda* / N: a number, a 0-dim tensor, or `[B, 1, 1, 1]`."""
        if self.penalty_size == "batch":
            # The true maximum: padded sizes are per block, and rounded up on a GPU.
            return self.penalty / graphs.batch_ptr.diff().max().to(widest_dtype(graphs.batch_ptr.device))
        if self.penalty_size != "graph":
            return self.penalty / self.penalty_size
        # A number over integers is float32, even in a float64 model.
        is_double = solving_dtype(graphs.maps[0]) == torch.float64
        return self.penalty / (graphs.num_nodes.double() if is_double else graphs.num_nodes)

    def _mask(self, graphs: PaddedGraphs) -> Tensor | None:
        """Return the allowed sources; the iteration has one step length per matrix, so it must not see padded rows."""
        if self.proximal is None or graphs.mask is None:
            return graphs.mask
        return graphs.mask & graphs.layout.mask[:, None, :, None]

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state stored with the weights: T, start, step and seed of the solver "proximal"."""
        return {} if self.proximal is None else self.proximal.as_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Warn if a checkpoint was trained with other options of the iteration; this layer keeps its options."""
        options = self.get_extra_state()
        if state != options:
            log.warning(
                "A layer of the checkpoint was trained with %s, but this model has %s.",
                state or "an exact solver",
                options or "an exact solver",
            )

    def extra_repr(self) -> str:
        """Return the options that decide the flow, for `print(module)`."""
        return f"penalty={self.penalty}, alpha={self.alpha}, penalty_size={self.penalty_size}, solver={self.solver}"


class DenseFlowAttention(AdjacencyEnhancedAttention):
    """DFi-attention: equation (13) without friction, so the flow is softmax attention (equation 6).

    Weights have the same names and shapes as in `SparseFlowAttention`, which can start from them (SFi-Former+).

    Parameters: `4 H dim^2 + (3 H + 1) dim`, and 2 dim + 2 more, see `AdjacencyEnhancedAttention`.

    Args:
        dim: width of the nodes and of every head.
        num_heads: heads H.
        dropout: probability of dropping an attention weight.
        terms: "both", "flow" or "adjacency".
        extra_parameters: add the guessed parameters of `AdjacencyEnhancedAttention`.
        head_dim: width of a head, see `AdjacencyEnhancedAttention`.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> from torch_geometric.data import Data
        >>> graph = Data(x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> DenseFlowAttention(8, num_heads=2)(graph.x, graph).shape
        torch.Size([3, 8])
    """

    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Return softmax attention `[B, H, N, dim]`, with dropout while training."""
        query, key, value = graphs.maps
        bias, closed = hidden_sources(graphs)
        mixed = attend(query, key, value, bias, self.dropout.p if self.training else 0.0)
        return mixed if closed is None else mixed.masked_fill(closed, 0.0)

    def weights(self, graphs: PaddedGraphs) -> Tensor:
        """Return attention weights `[B, H, N, N]`, without dropout."""
        query, key = graphs.maps[:2]
        bias, closed = hidden_sources(graphs)
        weights = attention_weights(query, key, bias)
        return weights if closed is None else weights.masked_fill(closed, 0.0)


def sparsemax(logits: Tensor) -> Tensor:
    """Return the point of the simplex nearest to each row, `max(s_i - tau, 0)` with tau such that it sums to one.

    With logits in descending order, the first k remain, with k the largest such that `1 + k s_k > s_1 + ... + s_k`.

    Args:
        logits: `[..., K]`; minus infinity hides an entry, and each row needs a finite one. Half precision is computed
            and returned in float32.

    Examples:
        >>> sparsemax(torch.tensor([[1.0, 0.8, -1.0], [3.0, 0.0, 0.0]]))
        tensor([[0.6000, 0.4000, 0.0000],
                [1.0000, 0.0000, 0.0000]])
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # inf - inf would be NaN. Sums of these finite stand-ins may overflow to -inf, but still fail the test below.
    finite = torch.where(logits.isneginf(), torch.finfo(logits.dtype).min / 4, logits)
    finite = finite - finite.amax(-1, keepdim=True).detach()  # sums of large numbers would lose small ones
    ordered = finite.sort(-1, descending=True).values
    number = torch.arange(1, ordered.shape[-1] + 1, device=ordered.device, dtype=ordered.dtype)
    sums = ordered.cumsum(-1)
    # The support is locally constant, so the gradient needs nothing from this count.
    count = (1 + number * ordered > sums).sum(-1, keepdim=True)
    tau = (sums.gather(-1, count - 1) - 1) / count
    return (finite - tau).clamp(min=0)


class RivalAttention(DenseFlowAttention):
    """Equation (13) around attention rows that a plain regulariser makes sparse, or encourages to be sparse.

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        dropout: probability of dropping an attention weight.
        rival: sparsemax, entropy or l2.
        **options: `terms`, `extra_parameters` and `head_dim`, as in `AdjacencyEnhancedAttention`.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> graph = Data(x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> layer = RivalAttention(8, num_heads=2, rival="entropy")
        >>> layer(graph.x, graph).shape, bool(layer.take_row_penalty() > 0)
        (torch.Size([3, 8]), True)
    """

    def __init__(self, dim: int, num_heads: int = 4, dropout: float = 0.0, *, rival: Rival, **options: Any) -> None:
        check_choice("rival", rival, RIVALS)
        super().__init__(dim, num_heads, dropout, **options)
        self.rival = rival
        self._row_penalty: Tensor | None = None
        self._sums: list[Tensor] = []

    def take_row_penalty(self) -> Tensor | None:
        """Return the mean penalty over rows and heads of the last forward pass, and clear it; None for sparsemax."""
        penalty, self._row_penalty = self._row_penalty, None
        return penalty

    def mix_all(self, padded: list[PaddedGraphs]) -> list[Tensor]:
        """Return Z V of every group of graphs, and keep the mean penalty over all their rows."""
        # Cleared before and after: an unused penalty must not keep the graph of an earlier pass alive.
        self._sums = []
        mixed, num_nodes = super().mix_all(padded), sum(len(graphs.layout.graph_of) for graphs in padded)
        self._row_penalty = torch.stack(self._sums).sum() / num_nodes if self._sums else None
        self._sums = []
        return mixed

    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Return Z V `[B, H, N, dim]`, with dropout while training."""
        weights, value = self.weights(graphs), graphs.maps[2]
        if self.rival != "sparsemax":
            rows = _entropy(weights) if self.rival == "entropy" else 1 - weights.square().sum(-1)
            if (closed := hidden_sources(graphs)[1]) is not None:
                rows = rows.masked_fill(closed[..., 0], 0.0)
            # Padded nodes also have softmax rows, hence the mask. Before dropout, after which rows do not sum to one.
            self._sums.append((rows.mean(1) * graphs.layout.mask).sum())
        dropped: Tensor = self.dropout(weights)
        return dropped.to(value.dtype) @ value

    def weights(self, graphs: PaddedGraphs) -> Tensor:
        """Return Z `[B, H, N, N]`, without dropout."""
        if self.rival != "sparsemax":
            return super().weights(graphs)
        query, key = graphs.maps[:2]
        logits = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        bias, closed = hidden_sources(graphs)
        weights = sparsemax(logits if bias is None else logits + bias.to(logits.dtype))
        return weights if closed is None else weights.masked_fill(closed, 0.0)


def _entropy(weights: Tensor) -> Tensor:
    """Return the entropy of every row; 0 log 0 = 0, also in the gradient."""
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log()).sum(-1)


def hidden_sources(graphs: PaddedGraphs) -> tuple[Tensor | None, Tensor | None]:
    """Return the term that hides sources, added to logits, and the rows without a source, whose weights are to be 0.

    The term is 0 or minus infinity, of the shape of the mask; in rows without a source 0, as softmax would give NaN.
    """
    mask, closed = graphs.mask, None
    if mask is None:
        return None, None
    if mask.shape[-2] == graphs.layout.max_nodes:  # a given graph; padding alone hides the same from all rows
        closed = ~mask.any(-1, keepdim=True)
        mask = mask | closed
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf), closed


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
