"""Every method on models with known attributions and on one trained on a known rule, and refused requests."""

import importlib.util
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from attributed import additive, copies_of, facts_of, facts_of_table, table_of, terms
from scipy.stats import spearmanr
from torch import nn

from graphbench import registry
from graphbench.contracts import Architecture, GraphTable, Representation
from graphbench.diagnostics.figures import graphs
from graphbench.diagnostics.figures.graphs import PlainDrawing
from graphbench.errors import BadInput
from graphbench.inference.attributions import attribute, question, rows
from graphbench.inference.attributions.attribution import Attribution, Method
from graphbench.inference.attributions.question import explained
from graphbench.inference.attributions.rows import ChosenRow, line_scores, tables_of
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule

METHODS = [
    pytest.param(
        method,
        marks=pytest.mark.skipif(
            method == "integrated_gradients" and not importlib.util.find_spec("captum"),
            reason="needs the extra explain (captum)",
        ),
    )
    for method in get_args(Method)
]
every_method = pytest.mark.parametrize("method", METHODS)


def whole(nodes, edges, method, edge_index):
    """Return an additive model's exact values; if only nodes have values, a line gives half to each of its ends."""
    if method != "myerson":
        return nodes.double(), lines(edges, edge_index)
    return nodes.double().index_add(0, edge_index[0], edges.double() / 2).index_add(
        0, edge_index[1], edges.double() / 2
    ), None


def lines(edges, edge_index):
    """Return the sum of the edges of each pair of nodes."""
    found = {}
    for value, pair in zip(edges.tolist(), edge_index.t().tolist(), strict=True):
        found[tuple(sorted(pair))] = found.get(tuple(sorted(pair)), 0.0) + value
    return found


@every_method
@pytest.mark.parametrize("kind", ["categorical", "both"])
def test_a_linear_model_gives_each_node_and_line_its_own_term(method, kind):
    module = additive(kind=kind)
    module.task.offset.copy_(torch.tensor([3.0, -1.0]))
    module.task.scale.copy_(torch.tensor([2.0, 0.5]))
    copies = copies_of(module)
    batch, weight = copies(1), module.task.head.mlp.layers[0].weight[1] * 0.5
    found = attribute(module, copies, facts_of(module), target=1, method=method, steps=4)
    nodes, edges = terms(module, copies, table_of(module, num_graphs=6, seed=9), weight)
    nodes, edges = whole(nodes.detach(), edges.detach(), method, batch.edge_index)
    torch.testing.assert_close(found.nodes, nodes, atol=1e-5, rtol=1e-4)
    assert (found.edges is None) == (edges is None)
    if edges is not None:
        assert lines(found.edges, batch.edge_index) == pytest.approx(edges, abs=1e-5)
    assert abs(found.gap) < 1e-4
    with torch.no_grad():
        assert found.prediction == pytest.approx(float(explained(module, batch)[0, 1]), abs=1e-5)


@every_method
@pytest.mark.parametrize("task", ["node-regression", "node-classification"])
def test_a_linear_model_of_nodes_rests_on_the_node_and_the_edges_into_it(task, method):
    """The head is linear, so each part adds its vector times the head's row, scaled to the target's unit."""
    module = additive(task)
    if task == "node-regression":
        module.task.scale.fill_(3.0)
        module.task.offset.fill_(5.0)
    copies, node = copies_of(module, row=1), 2
    batch = copies(1)
    found = attribute(module, copies, facts_of(module), target=1, method=method, node=node)
    (linear,) = [part for part in module.task.head.modules() if isinstance(part, nn.Linear)]
    row = linear.weight[1] * (3.0 if task == "node-regression" else 1.0)
    nodes, edges = terms(module, copies, table_of(module, num_graphs=6, seed=9), row.detach())
    alone = torch.zeros(batch.num_nodes).index_fill(0, torch.tensor([node]), 1.0)
    nodes, edges = whole(nodes * alone, edges * (batch.edge_index[1] == node), method, batch.edge_index)
    torch.testing.assert_close(found.nodes, nodes, rtol=1e-4, atol=1e-5)
    if edges is not None:
        assert lines(found.edges, batch.edge_index) == pytest.approx(edges, abs=1e-5)
    assert (batch.edge_index[1] == node).any()
    with torch.no_grad():
        assert found.prediction == pytest.approx(float(explained(module, batch, node)[0, 1]), abs=1e-5)
    assert abs(found.gap) < 1e-4


@pytest.fixture(scope="module")
def counting():
    """Train a model to count the nodes of category 2 and return it with its training graphs."""
    spec = tiny_spec("graph-regression", "categorical")
    table = tiny_table(spec, num_graphs=64, seed=1)
    parts = table.columns["x"][:, 0].split(table.num_nodes.tolist())
    counts = torch.stack([(part == 2).sum().float() for part in parts])
    table.columns["y"] = counts[:, None].expand(-1, 2).contiguous()
    trained = counter(spec, 0)
    optimizer, batch = torch.optim.Adam(trained.parameters(), 0.01), table.batch(range(64))
    for _ in range(150):
        optimizer.zero_grad()
        loss = trained.task.loss(trained(batch), batch)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3
    return trained, table


def counter(spec, seed):
    torch.manual_seed(seed)
    head, cls = HeadConfig(pooling="add"), registry.load("architectures", "GINE")
    return BenchmarkModule(spec, lambda s: cls(s, hidden_dim=16, num_layers=2, norm="none"), head=head)


@every_method
def test_a_trained_model_points_at_what_decides_and_random_weights_do_not(counting, method):
    """Nodes of category 2 get about 1 minus their share of all nodes, and most others are negative."""
    trained, table = counting
    facts = facts_of_table(table, trained.spec)
    scores, truth, drawn = [], [], []
    for row in range(12):
        copies = lambda count, row=row: table.batch([row] * count)  # noqa: E731
        found = attribute(trained, copies, facts, target=0, method=method)
        scores += found.nodes.tolist()
        drawn += attribute(counter(trained.spec, 7), copies, facts, target=0, method=method).nodes.tolist()
        truth += (copies(1).x[:, 0] == 2).tolist()
    decides = [score for score, is_two in zip(scores, truth, strict=True) if is_two]
    others = [score for score, is_two in zip(scores, truth, strict=True) if not is_two]
    assert min(decides) > max(others)
    assert min(decides) > 0
    assert sum(score < 0 for score in others) > 0.9 * len(others)
    share = sum(truth) / len(truth)
    assert sum(decides) / len(decides) == pytest.approx(1 - share, abs=0.25)
    assert abs(spearmanr(scores, drawn).statistic) < 0.5


@every_method
def test_the_average_graph_has_nothing_to_explain(method):
    """If every node and edge is the average one, nodes get zero and the prediction is the reference's."""
    module = additive(power=2)
    table = tiny_table(module.spec, num_graphs=3, seed=2)
    table.columns["x"][:], table.columns["edge_attr"][:] = table.columns["x"][0], table.columns["edge_attr"][0]
    facts = facts_of_table(table, module.spec)
    found = attribute(module, lambda count: table.batch([1] * count), facts, target=0, method=method)
    assert found.nodes.abs().max() < 1e-5
    assert found.prediction == pytest.approx(found.at_reference, abs=1e-5)


@every_method
def test_the_most_probable_class_is_explained_unless_one_is_named(method):
    module = additive("graph-classification")
    copies, facts = copies_of(module), facts_of(module)
    with torch.no_grad():
        logits = explained(module, copies(1))[0]
    assert attribute(module, copies, facts, method=method).prediction == pytest.approx(float(logits.max()), abs=1e-6)
    named = attribute(module, copies, facts, target=1, method=method)
    assert named.prediction == pytest.approx(float(logits[1]), abs=1e-6)


@every_method
def test_one_node_without_edges(method):
    module = additive()
    found = attribute(
        module, copies_of(module, sizes=[1], edges=False), facts_of(module), target=0, method=method, steps=4
    )
    assert float(found.nodes[0]) == pytest.approx(found.prediction - found.at_reference, abs=1e-5)


def test_the_tables_of_a_row_have_all_its_attributions_those_of_loops_included():
    module = additive()
    table = table_of(module, num_graphs=1, sizes=[3])
    table.columns["edge_index"][:2] = torch.tensor([[1, 1], [2, 1]])
    found = attribute(module, lambda count: table.batch([0] * count), facts_of(module), target=0, method="masking")
    edge_index = table.columns["edge_index"].long().t()
    drawing = PlainDrawing.of(edge_index, 3, None)
    nodes, edges = tables_of(ChosenRow(0, table, None), found, drawing)
    expected = lines(found.edges, edge_index)
    assert (1, 1) in expected
    assert expected == {
        (row.source, row.target): pytest.approx(row.attribution, abs=1e-6) for row in edges.itertuples()
    }
    total = nodes["attribution"].sum() + edges["attribution"].sum()
    assert total == pytest.approx(found.prediction - found.at_reference, abs=1e-5)


@pytest.mark.parametrize("method", [m for m in METHODS if m.values[0] != "myerson"])
def test_a_larger_graph_passes_in_fewer_copies_with_as_many_masks(method, monkeypatch):
    """16 copies take the memory of 16 training steps, and masks of all parts that of the square of the nodes."""
    monkeypatch.setattr(question, "_ROWS", 2000)
    module, asked, masks = additive(), [], []
    copies = copies_of(module, sizes=[40, 3, 3, 3])
    size = copies(1).num_nodes + copies(1).num_edges
    masked = question.Question.masked
    monkeypatch.setattr(
        question.Question, "masked", lambda self, *parts: [masks.append(len(parts[0])), masked(self, *parts)][1]
    )
    found = attribute(module, lambda count: [asked.append(count), copies(count)][1], facts_of(module), 0, method, 4)
    assert 1 < max(asked) <= 2000 // size < 16
    assert max(masks, default=0) <= max(asked)
    assert abs(found.gap) < 1e-2


def test_a_large_graph_is_drawn_by_its_most_important_nodes(monkeypatch):
    for module in (graphs, rows):
        monkeypatch.setattr(module, "MOST_LAID_OUT", 4)
    ring = torch.arange(9)
    table = GraphTable.from_graphs([{"num_nodes": 9, "edge_index": torch.stack((ring, ring.roll(1)))}])
    values = torch.tensor([0.0, 0.0, 3.0, -4.0, 1.0, 0.0, 0.5, 0.0, 0.0])
    found = Attribution(values, torch.arange(9.0), prediction=1.0, at_reference=0.0)
    wanted = SimpleNamespace(node=None, method="masking")
    row = ChosenRow(0, table, None)
    seen = []
    monkeypatch.setattr(rows, "attribution_figure", lambda *arguments: seen.append(arguments))
    rows.figure_of(row, found, rows.drawing_of(row), "y", "", wanted)
    drawing, nodes, of_lines, title, *_ = seen[0]
    assert nodes.tolist() == [3.0, -4.0, 1.0, 0.5]
    assert drawing.pairs.tolist() == [[0, 1], [1, 2]]
    assert of_lines.tolist() == [3.0, 4.0]  # an edge has the number of its first node, the higher one
    assert "4 of 9 nodes" in title
    assert len(tables_of(row, found, rows.drawing_of(row))[0]) == 9


def test_lines_of_a_large_graph_need_no_matrix():
    edge_index = torch.tensor([[0, 10**6 - 1, 7], [10**6 - 1, 0, 7]])
    table = GraphTable.from_graphs([{"num_nodes": 10**6, "edge_index": edge_index}])
    assert line_scores(table, torch.tensor([[7, 10**6 - 1], [7, 0]]), torch.tensor([1.0, 2.0, 4.0])).tolist() == [4, 3]


class Blind(Architecture):
    """Reads no features."""

    def __init__(self, spec):
        super().__init__(spec, 4)
        self.row = nn.Parameter(torch.ones(4))

    def forward(self, batch):
        return Representation(self.row.expand(batch.num_nodes, -1))


def test_what_cannot_be_explained_is_named():
    def asked(task, **options):
        module = BenchmarkModule(tiny_spec(task, "categorical"), Blind)
        return attribute(module, copies_of(module), facts_of(module), **options)

    with pytest.raises(BadInput, match="Blind on tiny-graph-regression-categorical cannot be explained: it reads no"):
        asked("graph-regression", target=0)
    with pytest.raises(BadInput, match=r"--node: .* is node-classification; name the node to explain"):
        asked("node-classification")
    with pytest.raises(BadInput, match="--node must be an integer of at least 0 and below"):
        asked("node-classification", node=99)
    with pytest.raises(BadInput, match=r"--node: .* is graph-regression; it has no prediction of single nodes"):
        asked("graph-regression", target=0, node=0)
    with pytest.raises(BadInput, match="link-ranking is not about graphs or nodes"):
        asked("link-ranking")
    with pytest.raises(BadInput, match="steps must be an integer of at least 2"):
        asked("graph-regression", steps=1)
    with pytest.raises(BadInput, match="--method must be one of integrated_gradients, masking, myerson"):
        asked("graph-regression", method="shap")
