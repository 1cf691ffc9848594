"""Summaries of recordings: measures equal those of the pure functions, and shares of graphs add up."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from graphbench import GraphBatch, GraphTable, LayerTrace, Representation
from graphbench import diagnostics as D
from graphbench.diagnostics import Patterns, Recording, Summary, record
from graphbench.encodings.substructures import Substructures
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, MultiHeadAttention
from graphbench.testing.tiny import encode, tiny_spec, tiny_table

DIM, HEADS, LAYERS = 8, 2, 3


class Transformer(nn.Module):
    """Post-norm layers on random node features."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(2, DIM)
        self.attention = nn.ModuleList(MultiHeadAttention(DIM, HEADS) for _ in range(LAYERS))
        self.feed_forward = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(LAYERS))

    def forward(self, batch: GraphBatch) -> Representation:
        layout, x = DenseLayout.from_batch(batch), self.embed(batch.x_dense)
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            x = nn.functional.layer_norm(x + attention(x, layout), (DIM,))
            x = x + feed_forward(x).relu()
        return Representation(node=x)


@pytest.fixture(scope="module")
def table() -> GraphTable:
    return encode(
        tiny_table(tiny_spec(), num_graphs=9), [Substructures(cycles=(3, 4), paths=(4,), stars=(2,), hops=(1,))]
    )


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer().eval()


def look(model: nn.Module, batch: GraphBatch) -> tuple[Recording, Patterns]:
    patterns = Patterns.uniform(
        batch.member_node, batch.member_substructure, batch.substructure_batch, batch.ptr.diff()
    )
    with torch.no_grad(), record(model) as recording:
        model(batch)
    return recording, patterns


def summary_of(model: nn.Module, table: GraphTable, graphs: list[int]) -> Summary:
    batch = table.batch(graphs)
    recording, patterns = look(model, batch)
    return D.summarise(recording, patterns, batch.edge_index)


def test_measures_are_those_of_the_pure_functions(model: Transformer, table: GraphTable) -> None:
    batch = table.batch(range(9))
    recording, patterns = look(model, batch)
    summary = D.summarise(recording, patterns, batch.edge_index)
    assert list(summary) == [0, 1, 2, 3]
    assert [layer.name for layer in summary.values()] == [*(f"attention.{i}" for i in range(3)), "output"]
    for number, trace in enumerate(recording):
        means, x = summary[number].means(), trace.input
        together = trace.values.sum(1)
        expected = {
            "capacity": D.attention_capacity_per_graph(together, patterns),
            "capacity_head1": D.attention_capacity_per_graph(trace.values[:, 1], patterns),
            "numerical_rank": D.numerical_rank_per_graph(x, batch.batch).float(),
            "stable_rank": D.stable_rank_per_graph(x, batch.batch),
            "effective_rank": D.effective_rank_per_graph(x, batch.batch),
            "similarity": D.token_similarity_per_graph(x, batch.batch),
            "residual": D.rank_one_residual_per_graph(x, batch.batch),
            "dirichlet_energy": D.dirichlet_energy_per_graph(x, batch.edge_index, batch.batch, relative=True),
            "entropy": D.attention_entropy(trace.attention).mean(1),
            "zeros_head0": D.attention_zeros(trace.attention)[:, 0],
            "row_sum": D.attention_row_sum(trace.attention).mean(1),
        }
        for name, value in expected.items():
            assert means[name] == pytest.approx(value.double().mean().item(), rel=1e-5), name
        assert means["row_sum"] == pytest.approx(1)
    assert summary[3].mean("stable_rank") == pytest.approx(
        D.stable_rank_per_graph(recording.output, batch.batch).mean().item(), rel=1e-5
    )
    assert math.isnan(summary[3].mean("capacity"))


def test_bound_holds_and_factors_telescope(model: Transformer, table: GraphTable) -> None:
    for graph in range(9):
        summary = summary_of(model, table, [graph])
        spread = summary[0].mean("spread")
        for number in range(LAYERS):
            means = summary[number].means()
            assert means["spread"] == pytest.approx(spread, rel=1e-5)
            assert means["capacity"] <= means["capacity_bound"]
            assert means["alpha"] <= 1 + 1e-12
            spread *= means["alpha"] * means["lambda"] * means["gamma"]
        _, patterns = look(model, table.batch([graph]))
        weight = model.attention[0].out_proj.weight @ model.attention[0].in_proj.weight.chunk(3)[2]
        assert summary[0].mean("value_gain") <= torch.linalg.matrix_norm(weight, 2).item() + 1e-6
        assert patterns.num_graphs == 1


def test_shares_of_graphs_add_up_exactly(model: Transformer, table: GraphTable) -> None:
    whole = summary_of(model, table, list(range(9)))
    shares = [summary_of(model, table, share) for share in ([0], [5, 2], [1, 3, 4, 6, 7, 8])]
    merged = D.merge([*shares, {}])
    assert list(merged) == list(whole)
    for number, layer in whole.items():
        assert merged[number].counts == layer.counts
        assert merged[number].left_out == layer.left_out
        for name, mean in layer.means().items():
            assert merged[number].mean(name) == pytest.approx(mean, rel=1e-5, abs=1e-6), name
            assert layer.counts[name] == 9, name


def test_graphs_without_a_measure_are_not_counted(model: Transformer, table: GraphTable) -> None:
    single = {"num_nodes": 1, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "x_dense": torch.ones(1, 2)}
    batch = GraphTable.from_graphs([single, single | {"num_nodes": 2, "x_dense": torch.eye(2)}]).batch([0, 1])
    batch.x_dense[0] = torch.nan
    none = torch.zeros(0, dtype=torch.int64)
    with torch.no_grad(), record(model) as recording:
        model(batch)
    summary = D.summarise(recording, Patterns.uniform(none, none, none, batch.ptr.diff()), batch.edge_index)
    assert summary[0].counts["capacity"] == 0
    assert summary[0].left_out["capacity"] == 2
    assert summary[0].left_out["similarity"] == 1
    assert summary[0].counts["similarity"] == summary[0].counts["numerical_rank"] == 1
    assert math.isnan(summary[0].mean("capacity"))


def test_extra_tokens_are_measured_apart(patterns: Patterns, tokens: Tensor, batch: Tensor) -> None:
    """Nodes come first, then two extra tokens per graph: over all graphs, or within each graph."""
    extra = torch.randn(12, 12, generator=torch.Generator().manual_seed(0))
    all_tokens = torch.cat((tokens, extra))
    all_batch = torch.cat((batch, torch.arange(6).repeat_interleave(2)))
    by_graph = torch.argsort(all_batch, stable=True)
    found = []
    for order in (torch.arange(len(all_batch)), by_graph):
        trace = LayerTrace(
            all_tokens[order], all_batch[order], all_tokens[order].unsqueeze(1), num_nodes=patterns.num_nodes
        )
        recording = Recording()
        recording.take(trace, "scripted")
        found.append(D.summarise(recording, patterns)[0])
    for layer in found:
        capacity = D.attention_capacity_per_graph(tokens, patterns)
        assert layer.mean("capacity") == pytest.approx(capacity.nanmean().item(), rel=1e-6)
        assert layer.counts["capacity"] == 5
        of_tokens = D.token_capacity_per_graph(extra, torch.arange(6).repeat_interleave(2))
        assert layer.mean("token_capacity") == pytest.approx(of_tokens.mean().item(), rel=1e-6)
        stable = D.stable_rank_per_graph(tokens, batch)
        assert layer.mean("stable_rank") == pytest.approx(stable.mean().item(), rel=1e-6)
        assert "alpha" not in layer.values
        assert "entropy" not in layer.values


def test_a_graph_token_is_no_substructure(patterns: Patterns, tokens: Tensor, batch: Tensor) -> None:
    """One graph token and two substructure tokens per graph."""
    extra = torch.randn(18, 12, generator=torch.Generator().manual_seed(0))
    of_extra, is_substructure = torch.arange(6).repeat_interleave(3), torch.tensor([False, True, True] * 6)
    all_tokens = torch.cat((tokens, extra))
    mask = torch.cat((torch.zeros(len(tokens), dtype=torch.bool), is_substructure))
    trace = LayerTrace(
        all_tokens, torch.cat((batch, of_extra)), all_tokens.unsqueeze(1), num_nodes=patterns.num_nodes,
        substructure=mask,
    )  # fmt: skip
    recording = Recording()
    recording.take(trace, "scripted")
    expected = D.token_capacity_per_graph(extra[is_substructure], of_extra[is_substructure])
    found = D.summarise_capacity(recording, patterns)[0]
    assert found.mean("token_capacity") == pytest.approx(expected.mean().item(), rel=1e-6)


def test_residual_weight_enters_alpha(table: GraphTable, model: Transformer) -> None:
    recording, patterns = look(model, table.batch([3]))
    plain = D.summarise_capacity(recording, patterns)[0]
    recording[0].residual_weight = 3.0
    heavy = D.summarise_capacity(recording, patterns)[0]
    trace = recording[0]
    alone = D.decay_factors(trace.input, trace.values, trace.attention[0], residual=3.0)
    assert heavy.mean("alpha") == pytest.approx(alone.alpha.item())
    assert heavy.mean("alpha") > plain.mean("alpha")


def test_patterns_of_other_graphs_are_refused(model: Transformer, table: GraphTable) -> None:
    recording, _ = look(model, table.batch([0, 1]))
    _, other = look(model, table.batch([2, 1, 4]))
    with pytest.raises(BadInput, match="same graphs"):
        D.summarise(recording, other)


def test_values_without_heads_are_refused(patterns: Patterns, tokens: Tensor, batch: Tensor) -> None:
    recording = Recording()
    recording.take(LayerTrace(tokens, batch, tokens, num_nodes=patterns.num_nodes), "flat")
    with pytest.raises(BadInput, match=r"flat must be \[tokens, heads, dim\]"):
        D.summarise_capacity(recording, patterns)
