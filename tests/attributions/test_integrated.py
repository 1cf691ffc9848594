"""Integrated gradients against closed forms, their axiom, captum's absence, and random weights."""

import sys

import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from graphbench import registry
from graphbench.attributions import attribute
from graphbench.attributions.integrated import explained
from graphbench.contracts import Architecture, Representation
from graphbench.errors import BadInput, MissingExtra
from graphbench.nn import EdgeEncoder, NodeEncoder
from graphbench.nn.heads import HeadConfig
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule

needs_captum = pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("captum"), reason="needs the extra explain (captum)"
)


class Additive(Architecture):
    """Nodes and the edges that point at them, added up, to a power."""

    def __init__(self, spec, hidden_dim=6, power=1):
        super().__init__(spec, hidden_dim)
        self.node, self.edge = NodeEncoder(spec, hidden_dim), EdgeEncoder(spec, hidden_dim)
        self.power = power

    def forward(self, batch):
        into = torch.zeros(batch.num_nodes, self.dim, dtype=self.edge(batch).dtype)
        nodes = self.node(batch) + into.index_add(0, batch.edge_index[1], self.edge(batch))
        return Representation(nodes**self.power)


def additive(task="graph-regression", power=1):
    torch.manual_seed(1)
    head = HeadConfig(num_layers=1, pooling="add")
    return BenchmarkModule(tiny_spec(task, "categorical"), lambda spec: Additive(spec, power=power), head=head).eval()


def copies_of(module, row=0, seed=0, **options):
    table = encode(tiny_table(module.spec, num_graphs=4, seed=seed, **options), module.required_encodings())
    return lambda count: table.batch([row] * count)


@needs_captum
def test_a_linear_model_gives_each_node_and_edge_its_own_term():
    module = additive()
    module.task.offset.copy_(torch.tensor([3.0, -1.0]))
    module.task.scale.copy_(torch.tensor([2.0, 0.5]))
    copies = copies_of(module)
    batch, weight = copies(1), module.task.head.mlp.layers[0].weight[1] * 0.5
    found = attribute(module, copies, target=1, steps=4)
    with torch.no_grad():
        nodes, edges = module.architecture.node(batch) @ weight, module.architecture.edge(batch) @ weight
    assert torch.allclose(found.nodes, nodes, atol=1e-5)
    assert torch.allclose(found.edges, edges, atol=1e-5)
    assert found.without_features == pytest.approx(float(module.task.head.mlp.layers[0].bias[1]) * 0.5 - 1.0, abs=1e-5)


@needs_captum
def test_a_square_gives_each_node_its_share():
    """F = sum_i w (n_i + e_i)^2 has IG of n_i = w n_i (n_i + e_i), by integrating 2 a (n_i + e_i) n_i over a."""
    module = additive(power=2)
    copies = copies_of(module, seed=3)
    batch, weight = copies(1), module.task.head.mlp.layers[0].weight[0]
    found = attribute(module, copies, target=0, steps=4)
    with torch.no_grad():
        node, edge = module.architecture.node(batch), module.architecture.edge(batch)
        both = node + torch.zeros_like(node).index_add(0, batch.edge_index[1], edge)
    assert torch.allclose(found.nodes, (node * both) @ weight, atol=1e-5)
    assert torch.allclose(found.edges, (edge * both[batch.edge_index[1]]) @ weight, atol=1e-5)


@needs_captum
@pytest.mark.parametrize("name", ["GPS", "Graphormer", "GatedGCN"])
def test_attributions_sum_to_the_difference_of_the_predictions(name):
    torch.manual_seed(0)
    cls = registry.load("architectures", name)
    module = BenchmarkModule(tiny_spec("graph-multilabel", "both"), lambda spec: cls(spec, hidden_dim=16, num_layers=2))
    copies = copies_of(module.eval(), row=2)
    found = attribute(module, copies, target=2, steps=200)
    with torch.no_grad():
        assert found.prediction == pytest.approx(float(explained(module, copies(1))[0, 2]), abs=1e-6)
    assert found.edges is not None
    assert found.nodes.abs().sum() > 0
    assert found.edges.abs().sum() > 0
    assert abs(found.prediction - found.without_features) > 1e-3
    assert abs(found.gap) < 0.02 * abs(found.prediction - found.without_features)
    assert not any(part._forward_hooks for part in module.modules())


@needs_captum
def test_a_trained_model_points_at_what_decides_and_random_weights_do_not():
    """The target is how many nodes have category 2; attributions know which, and forget it with the weights."""
    spec = tiny_spec("graph-regression", "categorical")
    table = tiny_table(spec, num_graphs=64, seed=1)
    parts = table.columns["x"][:, 0].split(table.num_nodes.tolist())
    counts = torch.stack([(part == 2).sum().float() for part in parts])
    table.columns["y"] = counts[:, None].expand(-1, 2).contiguous()
    cls = registry.load("architectures", "GINE")

    def module(seed):
        torch.manual_seed(seed)
        head = HeadConfig(pooling="add")
        return BenchmarkModule(spec, lambda s: cls(s, hidden_dim=16, num_layers=2, norm="none"), head=head)

    trained = module(0)
    optimizer, batch = torch.optim.Adam(trained.parameters(), 0.01), table.batch(range(64))
    for _ in range(150):
        optimizer.zero_grad()
        loss = trained.task.loss(trained(batch), batch)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3
    scores, truth, random = [], [], []
    for row in range(12):
        copies = lambda count, row=row: table.batch([row] * count)  # noqa: E731
        scores += attribute(trained, copies, target=0).nodes.tolist()
        random += attribute(module(7), copies, target=0).nodes.tolist()
        truth += (copies(1).x[:, 0] == 2).tolist()
    decides = [score for score, is_two in zip(scores, truth, strict=True) if is_two]
    others = [score for score, is_two in zip(scores, truth, strict=True) if not is_two]
    assert min(decides) > max(others)
    assert abs(spearmanr(scores, random).statistic) < 0.5


@needs_captum
@pytest.mark.parametrize("task", ["node-regression", "node-classification"])
def test_a_linear_model_of_nodes_rests_on_the_node_and_the_edges_into_it(task):
    """The head is linear, so a part adds its own vector times the head's row, scaled to the unit of the target."""
    module = additive(task)
    if task == "node-regression":
        module.task.scale.fill_(3.0)
        module.task.offset.fill_(5.0)
    copies, node = copies_of(module, row=1), 2
    batch = copies(1)
    found = attribute(module, copies, target=1, node=node)
    (linear,) = [part for part in module.task.head.modules() if isinstance(part, nn.Linear)]
    row = linear.weight[1] * (3.0 if task == "node-regression" else 1.0)
    with torch.no_grad():
        nodes, edges = module.architecture.node(batch) @ row, module.architecture.edge(batch) @ row
        expected = explained(module, batch, node)[0, 1]
    alone = torch.zeros(batch.num_nodes).index_fill(0, torch.tensor([node]), 1.0)
    torch.testing.assert_close(found.nodes, nodes * alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.edges, edges * (batch.edge_index[1] == node), rtol=1e-4, atol=1e-5)
    assert (batch.edge_index[1] == node).any()
    assert found.prediction == pytest.approx(float(expected), abs=1e-5)
    assert abs(found.gap) < 1e-4


@needs_captum
def test_the_most_probable_class_is_explained_unless_one_is_named():
    module = additive("graph-classification")
    copies = copies_of(module)
    with torch.no_grad():
        logits = explained(module, copies(1))[0]
    assert attribute(module, copies).prediction == pytest.approx(float(logits.max()), abs=1e-6)
    assert attribute(module, copies, target=1).prediction == pytest.approx(float(logits[1]), abs=1e-6)


class Blind(Architecture):
    """Reads no features."""

    def __init__(self, spec):
        super().__init__(spec, 4)
        self.row = nn.Parameter(torch.ones(4))

    def forward(self, batch):
        return Representation(self.row.expand(batch.num_nodes, -1))


@needs_captum
def test_what_cannot_be_explained_is_named():
    blind = BenchmarkModule(tiny_spec("graph-regression", "categorical"), Blind)
    with pytest.raises(BadInput, match="Blind on tiny-graph-regression-categorical cannot be explained: it reads no"):
        attribute(blind, copies_of(blind), target=0)
    nodes = BenchmarkModule(tiny_spec("node-classification", "categorical"), Blind)
    with pytest.raises(BadInput, match=r"--node: .* is node-classification; name the node to explain"):
        attribute(nodes, copies_of(nodes))
    with pytest.raises(BadInput, match="--node must be an integer of at least 0 and below"):
        attribute(nodes, copies_of(nodes), node=99)
    with pytest.raises(BadInput, match=r"--node: .* is graph-regression; it has no prediction of single nodes"):
        attribute(blind, copies_of(blind), node=0)
    pairs = BenchmarkModule(tiny_spec("link-ranking", "categorical"), Blind)
    with pytest.raises(BadInput, match="link-ranking is not about graphs or nodes"):
        attribute(pairs, copies_of(pairs))
    with pytest.raises(BadInput, match="steps must be an integer of at least 2"):
        attribute(blind, copies_of(blind), steps=1)


def test_without_captum_the_line_that_installs_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    monkeypatch.setitem(sys.modules, "captum", None)
    module = additive()
    with pytest.raises(MissingExtra, match=r"pip install 'graphbench-lightning\[explain\]'"):
        attribute(module, copies_of(module), target=0)
