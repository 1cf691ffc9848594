"""Compute all measures of a recording by layer, as values of graphs that other batches and processes can add to.

Measures of a layer:

| name | of | meaning |
|---|---|---|
| `capacity`, `capacity_head{h}` | nodes | attention capacity over `||U||_F`; heads together, and each head |
| `token_capacity` | extra tokens | the same for tokens that represent substructures |
| `capacity_bound` | nodes | `sqrt(2n) ||P_m E^T||_2 ||P U||_F`, over the same `||U||_F` |
| `spread` | nodes | `||P H||_F` of the tokens that enter the layer |
| `value_gain` | nodes | `||P U||_F / ||P H||_F`, at most `||W^V W^O||_2` if values are linear in tokens |
| `alpha`, `lambda`, `gamma` | nodes | factors of the spread from this layer to the next: attention (alpha and lambda, |
| | | see `bounds`) and all that comes after it; gamma is measured, at most the one of Theorem 2 |
| `numerical_rank`, `stable_rank`, `effective_rank` | nodes | see `rank` |
| `similarity`, `residual`, `dirichlet_energy` | nodes | see `similarity`; residual and energy are relative |
| `entropy`, `zeros`, `row_sum`, and each `_head{h}` | all tokens | see `attention`; means over queries |

A layer's `LayerTrace` states what only the layer knows: `input`, its input tokens (without them there are no factors,
and ranks are those of the layer's output); `residual_weight`, the weight of its residual branch if it is not 1
(deepnorm); `substructure`, which tokens represent substructures if not all extra tokens do (there may also be a graph
token).

The spread of the tokens that enter layer l is that of layer 0 times all factors in between, so the logarithms of the
factors show where capacity is lost. If all tokens are equal (a graph with one node, a collapsed layer), their spread is
zero and factors that would divide by it are undefined: such graphs are excluded from the mean and counted as left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphbench.contracts.devices import as_double
from graphbench.contracts.trace import LayerTrace
from graphbench.diagnostics.attention import attention_entropy, attention_row_sum, attention_zeros
from graphbench.diagnostics.bounds import capacity_bound, decay_factors_per_graph
from graphbench.diagnostics.capacity import attention_capacity_per_graph, token_capacity_per_graph
from graphbench.diagnostics.patterns import Patterns
from graphbench.diagnostics.ragged import centred, norm_per_graph, ratio, result_dtype, spread_per_graph
from graphbench.diagnostics.rank import (
    default_rtol,
    effective_rank_of_singular_values,
    rank_of_singular_values,
    rank_one_residual_per_graph,
    singular_values_per_graph,
    stable_rank_of_singular_values,
)
from graphbench.diagnostics.recording import Recording
from graphbench.diagnostics.similarity import dirichlet_energy_per_graph, token_similarity_per_graph
from graphbench.diagnostics.traces import TokenState, TraceRows, token_states
from graphbench.errors import BadInput


@dataclass
class LayerSummary:
    """Measures of one layer, collected over graphs.

    Args:
        layer: number of the layer.
        name: dotted name of its module.
        counts: measure -> number of graphs for which it is defined.
        left_out: measure -> number of the other graphs, for which it is undefined (NaN) or not finite.
        values: measure -> its values for the former graphs, in the order in which they were added.

    Examples:
        >>> layer = LayerSummary(0)
        >>> layer.add_graphs({"alpha": torch.tensor([0.5, 1.0, torch.nan])})
        >>> layer.mean("alpha"), layer.counts["alpha"], layer.left_out["alpha"]
        (0.75, 2, 1)
    """

    layer: int
    name: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)

    def mean(self, measure: str) -> float:
        """Return the mean over graphs; NaN if no graph has the measure."""
        count = self.counts.get(measure, 0)
        # `fsum` is exact, so a mean does not depend on the order of graphs and how processes divide them.
        return math.fsum(self.values[measure]) / count if count else float("nan")

    def means(self) -> dict[str, float]:
        """Return the mean of every measure."""
        return {measure: self.mean(measure) for measure in self.values}

    def add(self, other: LayerSummary) -> None:
        """Add the counts, left-out numbers and values of other graphs."""
        for measure in other.values:
            self.counts[measure] = self.counts.get(measure, 0) + other.counts[measure]
            self.left_out[measure] = self.left_out.get(measure, 0) + other.left_out[measure]
            self.values.setdefault(measure, []).extend(other.values[measure])

    def add_graphs(self, measures: dict[str, Tensor]) -> None:
        """Add measures of single graphs `[G]` each; a graph whose value is NaN or infinite is counted as left out."""
        if not measures:
            return
        rows = torch.stack([value.cpu().double() for value in measures.values()])
        defined = [row[row.isfinite()].tolist() for row in rows]
        values = dict(zip(measures, defined, strict=True))
        counts = {measure: len(numbers) for measure, numbers in values.items()}
        left_out = {measure: rows.shape[1] - count for measure, count in counts.items()}
        self.add(LayerSummary(self.layer, self.name, counts, left_out, values))


Summary = dict[int, LayerSummary]


def merge(summaries: Iterable[Summary]) -> Summary:
    """Merge summaries of disjoint graphs into one; exact, however graphs are divided.

    Examples:
        >>> first, second = LayerSummary(0), LayerSummary(0)
        >>> first.add_graphs({"alpha": torch.tensor([1e20, 1.5])})
        >>> second.add_graphs({"alpha": torch.tensor([-1e20])})
        >>> merge([{0: first}, {0: second}])[0].mean("alpha")
        0.5
    """
    merged: Summary = {}
    for summary in summaries:
        for number, layer in summary.items():
            merged.setdefault(number, LayerSummary(number, layer.name)).add(layer)
    return dict(sorted(merged.items()))


def summarise_ranks(recording: Recording, edge_index: Tensor | None = None) -> Summary:
    """Measure rank, similarity and smoothness of the node tokens by depth.

    Number l is the input of attention layer l; the number after the last is the model's output. Graphs with NaN or
    infinite tokens have no measure, and without the edges of the batch there is no Dirichlet energy.

    Examples:
        >>> from graphbench.diagnostics import record
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer, batch = MultiHeadAttention(4, num_heads=2), torch.tensor([0, 0, 0])
        >>> with torch.no_grad(), record(layer) as recording:
        ...     _ = layer(torch.randn(3, 4), batch)
        >>> [depth.means()["numerical_rank"] for depth in summarise_ranks(recording).values()]
        [3.0, 3.0]
    """
    summary: Summary = {}
    for number, state in enumerate(token_states(recording)):
        tokens, batch, count = state.tokens, state.batch, state.num_graphs
        singular = singular_values_per_graph(tokens, batch, count)
        sizes = torch.bincount(batch, minlength=count).to(singular.device)
        stable = stable_rank_of_singular_values(singular)
        rank = rank_of_singular_values(singular, default_rtol(tokens, sizes)).double()
        measures = {
            # Comparisons with NaN are false, so it would count as rank 0.
            "numerical_rank": torch.where(singular.isnan().any(-1) | (sizes == 0), torch.nan, rank),
            "stable_rank": stable,
            "effective_rank": effective_rank_of_singular_values(singular),
            "similarity": token_similarity_per_graph(tokens, batch, count),
            "residual": rank_one_residual_per_graph(tokens, batch, num_graphs=count),
        }
        if edge_index is not None:
            energy = dirichlet_energy_per_graph(tokens, edge_index, batch, relative=True, num_graphs=count)
            measures["dirichlet_energy"] = energy
        layer = summary.setdefault(number, LayerSummary(number, state.name))
        layer.add_graphs(measures)
    return summary


def summarise_attention(recording: Recording) -> Summary:
    """Measure entropy, zeros and row sums of attention matrices by layer; layers without matrices have none.

    Examples:
        >>> from graphbench.diagnostics import record
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer, batch = MultiHeadAttention(4, num_heads=2), torch.tensor([0, 0, 0])
        >>> with torch.no_grad(), record(layer) as recording:
        ...     _ = layer(torch.randn(3, 4), batch)
        >>> round(summarise_attention(recording)[0].mean("row_sum"), 5)
        1.0
    """
    summary: Summary = {}
    measures = {"entropy": attention_entropy, "zeros": attention_zeros, "row_sum": attention_row_sum}
    for trace in recording:
        layer = summary.setdefault(trace.layer, LayerSummary(trace.layer, trace.name))
        if trace.attention:
            matrices = list(trace.attention)  # some layers compute a matrix whenever it is read
            for name, measure in measures.items():
                of_heads = measure(matrices)
                layer.add_graphs({name: of_heads.mean(1)} | _by_head(name, of_heads))
    return summary


def _by_head(name: str, of_heads: Tensor) -> dict[str, Tensor]:
    return {f"{name}_head{head}": column for head, column in enumerate(of_heads.unbind(1))}


def summarise_capacity(recording: Recording, patterns: Patterns) -> Summary:
    """Measure attention capacity, its upper bound and factors of its loss by layer; layers without values have none.

    Use patterns from one vocabulary for all compared models.

    Raises:
        BadInput: the recording has other graphs.

    Examples:
        >>> from graphbench.diagnostics import record
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer, batch = MultiHeadAttention(4, num_heads=2), torch.tensor([0, 0, 0])
        >>> with torch.no_grad(), record(layer) as recording:
        ...     _ = layer(torch.randn(3, 4), batch)
        >>> node = torch.arange(3)
        >>> patterns = Patterns.uniform(node, node, torch.tensor([0, 0, 0]), torch.tensor([3]))
        >>> means = summarise_capacity(recording, patterns)[0].means()
        >>> 0 < means["capacity"] <= means["capacity_bound"]
        True
    """
    summary: Summary = {}
    states = token_states(recording)
    for number, trace in enumerate(recording):
        layer = summary.setdefault(trace.layer, LayerSummary(trace.layer, trace.name))
        if trace.values is None:
            continue
        if trace.num_nodes is None or trace.num_nodes.tolist() != patterns.num_nodes.tolist():
            raise BadInput("The patterns and the recording must have the same graphs: their node numbers differ.")
        following = states[number + 1] if number + 1 < len(states) else None
        layer.add_graphs(_capacities(trace, patterns) | _losses(trace, following))
    return summary


def _capacities(trace: LayerTrace, patterns: Patterns) -> dict[str, Tensor]:
    """Return the capacities of one layer and their bound, `[G]` each."""
    rows, values = TraceRows.of(trace), as_double(_values_of(trace))
    patterns = patterns if patterns.node.device == values.device else patterns.to(values.device)
    of_nodes = values[rows.nodes.to(values.device)]
    together = of_nodes.sum(1)
    graph, count = patterns.graph_of_node, patterns.num_graphs
    scale = norm_per_graph(together, graph, count)
    spread = norm_per_graph(centred(together, graph, count), graph, count)
    bound = capacity_bound(patterns.num_nodes, patterns.centred_norm, spread) / scale
    # The sum of all heads is added in front as another head, so that patterns are applied once.
    capacities = attention_capacity_per_graph(torch.cat((together.unsqueeze(1), of_nodes), 1), patterns)
    measures = {
        "capacity": capacities[:, 0],
        "capacity_bound": torch.where(patterns.counts > 0, bound, torch.nan),
        **_by_head("capacity", capacities[:, 1:]),
    }
    others = rows.others
    if trace.substructure is not None:
        others = others[trace.substructure[others]]
    if len(others):
        of_others = values[others.to(values.device)].sum(1)
        of_graph = trace.batch[others].to(values.device)
        measures["token_capacity"] = token_capacity_per_graph(of_others, of_graph, num_graphs=count)
    return measures


def _values_of(trace: LayerTrace) -> Tensor:
    if trace.values is None or trace.values.dim() != 3:
        raise BadInput(f"The values in a trace of {trace.name} must be [tokens, heads, dim].")
    return trace.values


def _losses(trace: LayerTrace, following: TokenState | None) -> dict[str, Tensor]:
    """Return the spread of a layer's input tokens and factors to the next depth, `[G]` each, if the trace has them."""
    entered, values = trace.input, _values_of(trace)
    # Without a residual sum with the width of the tokens, there are no factors.
    if entered is None or values.shape[::2] != entered.shape:
        return {}
    rows = TraceRows.of(trace)
    graph, count = trace.batch[rows.nodes], rows.num_graphs

    def spread_of(tokens: Tensor) -> Tensor:
        return spread_per_graph(as_double(tokens), graph.to(values.device), count, result_dtype(tokens))[1]

    spread = spread_of(entered[rows.nodes])
    measures = {"spread": spread, "value_gain": ratio(spread_of(values[rows.nodes].sum(1)), spread)}
    if trace.attention:
        order = rows.order
        factors = decay_factors_per_graph(
            entered[order], values[order], trace.attention, trace.batch[order], trace.columns, rows.is_node,
            residual=trace.residual_weight,
        )  # fmt: skip
        measures |= {"alpha": factors.alpha, "lambda": factors.lam}
        if following is not None:
            measures["gamma"] = ratio(spread_of(following.tokens), factors.spread)
    return measures


def summarise(recording: Recording, patterns: Patterns | None = None, edge_index: Tensor | None = None) -> Summary:
    """Compute all measures of one forward pass by layer; add those of other batches or processes with `merge`.

    Without patterns there is no capacity, and without the edges of the batch no Dirichlet energy.

    Raises:
        BadInput: the patterns are for other graphs.

    Examples:
        >>> from graphbench.diagnostics import record
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer, batch = MultiHeadAttention(4, num_heads=2), torch.tensor([0, 0, 0])
        >>> with torch.no_grad(), record(layer) as recording:
        ...     _ = layer(torch.randn(3, 4), batch)
        >>> sorted(summarise(recording)[0].means())[:3]
        ['effective_rank', 'entropy', 'entropy_head0']
    """
    parts = [summarise_ranks(recording, edge_index), summarise_attention(recording)]
    if patterns is not None:
        parts.append(summarise_capacity(recording, patterns))
    return merge(parts)
