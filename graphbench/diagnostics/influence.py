"""Measure how far information travels in a graph model: influence by distance, and its mean, the range.

Influence of node u on node v, with h_v `[C]` the output of a layer or model at v and x_u `[d]` the input at u:

    I(v, u) = sum_ij |d h_v^i / d x_u^j|        "l1", of Xu et al., ICML 2018, arXiv 1806.03536
    I(v, u) = sum_ij (d h_v^i / d x_u^j)^2      "squared", the squared Frobenius norm

By distance, as Liang et al., "Towards Quantifying Long-Range Interactions in Graph Machine Learning", ICLR 2026, arXiv
2503.09008, section 4, where I is that of "l1" (`torch_geometric.utils.total_influence` is their code):

    T_k(v) = sum_{u at distance k} I(v, u)          R = mean_v  sum_k k T_k(v) / sum_k T_k(v)

The distance is the number of edges on a shortest path from u to v, in the direction of messages. Nodes without a path,
which global attention also reaches, have no distance and are counted separately.

A row of the Jacobian costs one backward pass, and a pass serves one target in each graph. Few rows are enough for an
unbiased estimate of I: for "l1", channels i drawn without replacement, with their sum scaled up; for "squared", rows
`sum_i s_i dh_v^i/dx_u` with random signs s, whose squares have the mean I (Hutchinson). Shares and R are ratios of such
sums, so they are exact only with all channels.

Legend: N nodes of all graphs, S targets v, P pairs of a target and a node of its graph, K the largest distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from graphbench.contracts.devices import as_double
from graphbench.diagnostics.ragged import Ragged, ratio
from graphbench.diagnostics.recording import Recording
from graphbench.diagnostics.summary import LayerSummary, Summary
from graphbench.diagnostics.traces import TokenState, token_states
from graphbench.errors import BadInput, check_choice, check_range

InfluenceNorm = Literal["l1", "squared"]


@dataclass(frozen=True)
class Influence:
    """Influence of all nodes on some targets, by distance, float64.

    Args:
        totals: T_k(v), the total influence of all nodes at distance k `[S, K + 1]`.
        nodes: their number `[S, K + 1]`.
        unreachable: influence of the graph's nodes without a path to the target `[S]`.
        unreachable_nodes: their number `[S]`.

    Examples:
        >>> one = torch.ones(1).double()
        >>> influence = Influence(torch.tensor([[2.0, 1.0, 1.0]]), torch.tensor([[1.0, 2.0, 1.0]]), 0 * one, 0 * one)
        >>> influence.ranges, influence.means
        (tensor([0.7500]), tensor([[2.0000, 0.5000, 1.0000]]))
    """

    totals: Tensor
    nodes: Tensor
    unreachable: Tensor
    unreachable_nodes: Tensor

    @property
    def ranges(self) -> Tensor:
        """R of each target, mean distance weighted by influence `[S]`; NaN if no node has any influence."""
        return _mean_distance(self.totals)

    @property
    def uniform_ranges(self) -> Tensor:
        """R if all nodes with a path had equal influence: their mean distance `[S]`."""
        return _mean_distance(self.nodes)

    @property
    def shares(self) -> Tensor:
        """Share of all influence, including unreachable nodes, by distance `[S, K + 1]`."""
        return ratio(self.totals, (self.totals.sum(1) + self.unreachable)[:, None])

    @property
    def means(self) -> Tensor:
        """Mean influence of a single node by distance `[S, K + 1]`; NaN if there is none."""
        return ratio(self.totals, self.nodes)


def _mean_distance(weights: Tensor) -> Tensor:
    distance = torch.arange(weights.shape[1], dtype=weights.dtype)
    return ratio(weights @ distance, weights.sum(1))


def influence_by_distance(
    outputs: Tensor,
    inputs: Tensor | Sequence[Tensor],
    edge_index: Tensor,
    targets: Tensor,
    batch: Tensor | None = None,
    norm: InfluenceNorm = "l1",
    num_probes: int | None = None,
    generator: torch.Generator | None = None,
) -> Influence:
    """Measure the influence on target nodes by distance in the outputs of any module.

    Args:
        outputs: h `[N, C]`, of a layer or of the model, computed with gradients from `inputs`.
        inputs: x `[N, d]`, or several whose influences are summed; they must require gradients.
        edge_index: `[2, num_edges]`; messages go from row 0 to row 1.
        targets: nodes v `[S]`.
        batch: graph of each node `[N]`; one graph if None. Several graphs share backward passes, so the module must not
            mix them: batch normalisation must be in evaluation mode.
        norm: how to reduce the Jacobian of a pair to a number.
        num_probes: backward passes for each target: channels for "l1", random signs for "squared"; None for all
            channels, which is exact.
        generator: for the draws.

    Raises:
        BadInput: the outputs have no gradients, or not one row per input row, or an option is out of range.

    Examples:
        With two layers that sum over neighbours, a node at distance two has as much influence as the target itself.

        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> adjacency = torch.zeros(3, 3).index_put((path[1], path[0]), torch.ones(4))
        >>> x = torch.randn(3, 1, requires_grad=True)
        >>> influence = influence_by_distance(adjacency @ adjacency @ x, x, path, targets=torch.tensor([0]))
        >>> influence.totals, influence.ranges
        (tensor([[1., 0., 1.]], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    leaves = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    _check(outputs, leaves, norm, num_probes)
    pairs = _Pairs.of(edge_index, targets, torch.zeros(len(outputs), dtype=torch.int64) if batch is None else batch)
    return _by_distance(_influences(outputs, leaves, pairs, norm, num_probes, generator), pairs)


def _check(outputs: Tensor, inputs: Sequence[Tensor], norm: str, num_probes: int | None) -> None:
    check_choice("norm", norm, get_args(InfluenceNorm))
    if num_probes is not None:
        check_range("num_probes", num_probes, at_least=1, whole=True)
    if outputs.dim() != 2 or not inputs or any(len(value) != len(outputs) for value in inputs):
        shapes = ", ".join(str(list(value.shape)) for value in inputs) or "none"
        raise BadInput(
            f"outputs must be [N, C] with a row for each row of the inputs: {list(outputs.shape)}, {shapes}."
        )
    if not outputs.requires_grad or not all(value.requires_grad for value in inputs):
        raise BadInput("outputs must be computed from inputs that require gradients, and outside torch.no_grad().")


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a target and a node of its graph, in rounds with at most one target per graph."""

    rounds: list[Tensor]  # target nodes of each round
    nodes: list[Tensor]  # nodes paired with them in each round
    row: Tensor  # number of the target of each pair `[P]`
    distance: Tensor  # from the node to the target `[P]`; -1 without a path
    num_targets: int  # S

    @classmethod
    def of(cls, edge_index: Tensor, targets: Tensor, batch: Tensor) -> _Pairs:
        edge_index, targets, batch = edge_index.cpu(), targets.cpu(), batch.cpu()
        num_nodes, num_graphs = len(batch), int(batch.max()) + 1 if len(batch) else 0
        source, target = edge_index.numpy()
        # Row v lists the nodes whose messages v reads, so a search from v goes against the messages.
        incoming = csr_array((np.ones(len(source)), (target, source)), shape=(num_nodes, num_nodes))
        turn = Ragged(batch[targets], num_graphs).position()
        rounds, nodes, rows, distances = [], [], [], []
        for number in range(int(turn.max()) + 1 if len(turn) else 0):
            chosen = (turn == number).nonzero().flatten()
            of_graph = torch.full((num_graphs,), -1).index_put((batch[targets[chosen]],), chosen)
            node = (of_graph[batch] >= 0).nonzero().flatten()
            steps = dijkstra(incoming, indices=targets[chosen].numpy(), unweighted=True, min_only=True)
            rounds.append(targets[chosen])
            nodes.append(node)
            rows.append(of_graph[batch[node]])
            distances.append(torch.from_numpy(np.where(np.isfinite(steps), steps, -1)).long()[node])
        empty = torch.zeros(0, dtype=torch.int64)
        return cls(rounds, nodes, torch.cat([empty, *rows]), torch.cat([empty, *distances]), len(targets))


def _by_distance(influence: Tensor, pairs: _Pairs) -> Influence:
    """Sum the influences of pairs `[P]`."""
    near = pairs.distance >= 0
    place = (pairs.row[near], pairs.distance[near])
    zeros = influence.new_zeros(pairs.num_targets, int(place[1].max()) + 1 if len(place[1]) else 1)
    apart, far = zeros.new_zeros(pairs.num_targets), pairs.row[~near]
    one = torch.ones_like(influence)
    return Influence(
        totals=zeros.index_put(place, influence[near], accumulate=True),
        nodes=zeros.index_put(place, one[near], accumulate=True),
        unreachable=apart.index_add(0, far, influence[~near]),
        unreachable_nodes=apart.index_add(0, far, one[~near]),
    )


def _influences(
    outputs: Tensor,
    inputs: Sequence[Tensor],
    pairs: _Pairs,
    norm: InfluenceNorm,
    num_probes: int | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Return I of every pair, float64 `[P]` on the CPU."""
    of_rounds = [torch.zeros(0, dtype=torch.float64)]
    for targets, nodes in zip(pairs.rounds, pairs.nodes, strict=True):
        rows = outputs[targets.to(outputs.device)]
        probes, scale = _probes(rows.shape, norm, num_probes, generator)
        total = torch.zeros(len(outputs), dtype=torch.float64)
        for probe in probes.to(rows):
            # One pass serves a target in each graph: graphs do not mix, so rows of the sum stay separate.
            for part in torch.autograd.grad(rows, inputs, probe, retain_graph=True, allow_unused=True):
                if part is not None:
                    values = as_double(part.detach()).flatten(1)
                    total += (values.abs() if norm == "l1" else values.square()).sum(1).cpu()
        of_rounds.append(scale * total[nodes])
    return torch.cat(of_rounds)


def _probes(
    shape: Sequence[int], norm: InfluenceNorm, num_probes: int | None, generator: torch.Generator | None
) -> tuple[Tensor, float]:
    """Choose the weights of the channels in each backward pass `[m, B, C]`, and the scale of the sum over passes.

    They are the same for all targets, so that a draw does not depend on the other graphs in the batch.
    """
    targets, channels = shape
    if norm == "squared" and num_probes is not None and num_probes < channels:
        signs = torch.randint(0, 2, (num_probes, 1, channels), generator=generator) * 2.0 - 1.0
        return signs.expand(-1, targets, -1), 1 / num_probes
    count = channels if num_probes is None else min(num_probes, channels)
    chosen = torch.arange(channels) if count == channels else torch.randperm(channels, generator=generator)[:count]
    return torch.eye(channels)[chosen][:, None].expand(-1, targets, -1), channels / count


def sample_targets(batch: Tensor, num_targets: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw nodes of each graph without replacement, all of a smaller one; `batch [N]` is the graph of each node.

    Examples:
        >>> sample_targets(torch.tensor([0, 1, 1, 1]), 2, torch.Generator().manual_seed(0))
        tensor([0, 1, 3])
    """
    graph = batch.cpu()
    order = torch.randperm(len(graph), generator=generator)
    position = Ragged(graph[order], int(graph.max()) + 1 if len(graph) else 0).position()
    return order[position < num_targets]


def summarise_influence(
    recording: Recording,
    inputs: Sequence[Tensor],
    edge_index: Tensor,
    batch: Tensor,
    targets: Tensor,
    norm: InfluenceNorm = "l1",
    num_probes: int | None = None,
    max_distance: int = 20,
    generator: torch.Generator | None = None,
) -> Summary:
    """Measure influence by depth: means over the targets of each graph, and over graphs.

    Number l is the input of attention layer l, the number after the last is the model's output; a model without
    attention layers has only its output. Measures: `range` R, `uniform_range` R if all nodes had equal influence,
    `influence` of all nodes together (how the Jacobian grows or fades with depth), its `unreachable` share, and by
    distance `share_0` to `share_MAX` and `share_beyond`, which sum to one with `unreachable`. A depth whose trace has
    tokens without gradients has no measures.

    Args:
        recording: of one forward pass with gradients.
        inputs: leaves of that pass, see `graphbench.diagnostics.encoders.differentiable`.
        edge_index: edges of the batch `[2, num_edges]`.
        batch: graph of each node `[N]`.
        targets: nodes `[S]`, such as those from `sample_targets`.
        norm: see `influence_by_distance`.
        num_probes: see `influence_by_distance`.
        max_distance: the last distance with its own share.
        generator: for the draws.

    Raises:
        BadInput: nothing in the recording has gradients.

    Examples:
        >>> from graphbench.diagnostics import record
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(4, num_heads=2), torch.randn(3, 4, requires_grad=True)
        >>> batch, path = torch.tensor([0, 0, 0]), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> with record(layer) as recording:
        ...     _ = layer(x, batch)
        >>> before, after = summarise_influence(recording, [x], path, batch, torch.tensor([0])).values()
        >>> before.mean("range"), 0 < after.mean("range") < 2
        (0.0, True)
    """
    check_range("max_distance", max_distance, at_least=0, whole=True)
    states = token_states(recording)
    if not states and recording.output is not None and len(recording.output) == len(batch):
        states = [TokenState(recording.output, batch, int(batch.max()) + 1, "output")]
    summary: Summary = {}
    pairs, of_target = _Pairs.of(edge_index, targets, batch), batch.cpu()[targets.cpu()]
    # One for each depth, since more rounds at one depth would shift the draws of the next.
    seeds = torch.randint(2**62, (len(states),), generator=generator).tolist()
    for number in [one for one, state in enumerate(states) if state.tokens.requires_grad] or range(len(states)):
        state, drawing = states[number], torch.Generator().manual_seed(seeds[number])
        _check(state.tokens, inputs, norm, num_probes)
        influence = _by_distance(_influences(state.tokens, inputs, pairs, norm, num_probes, drawing), pairs)
        measures = _measures(influence, max_distance).items()
        of_graphs = {name: _mean(value, of_target, state.num_graphs) for name, value in measures}
        summary.setdefault(number, LayerSummary(number, state.name)).add_graphs(of_graphs)
    return summary


def _measures(influence: Influence, max_distance: int) -> dict[str, Tensor]:
    """Return the measures of each target `[S]`."""
    shares, together = influence.shares, influence.totals.sum(1) + influence.unreachable
    nothing = torch.where(together > 0, 0.0, torch.nan).double()
    by_distance = {
        f"share_{distance}": shares[:, distance] if distance < shares.shape[1] else nothing
        for distance in range(max_distance + 1)
    }
    return {
        "range": influence.ranges,
        "uniform_range": influence.uniform_ranges,
        "influence": together,
        "unreachable": ratio(influence.unreachable, together),
        **by_distance,
        "share_beyond": shares[:, max_distance + 1 :].sum(1) + nothing,
    }


def _mean(values: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """Return the mean over the targets of each graph that have a value `[G]`; NaN if none has."""
    defined = values.isfinite()
    sums = values.new_zeros(num_graphs).index_add(0, graph[defined], values[defined])
    counts = torch.bincount(graph[defined], minlength=num_graphs)
    return torch.where(counts > 0, sums / counts, torch.nan)
