"""The reference against means over all rows of the training split, for every kind of feature encoder."""

import dataclasses

import pytest
import torch
from attributed import facts_of_table

from graphbench.contracts import Architecture, Representation
from graphbench.diagnostics.encoders import recorded
from graphbench.errors import BadInput
from graphbench.inference.attributions.reference import reference_of
from graphbench.nn import EdgeEncoder, LapPEEncoder, NodeEncoder
from graphbench.nn.graphormer import FAIRSEQ_TABLES, ReleasedFeatures
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule


class Reads(Architecture):
    """Encode nodes and edges with one mode of `FeatureEncoder`."""

    def __init__(self, spec, categorical="normal"):
        super().__init__(spec, 8)
        self.node, self.edge = NodeEncoder(spec, 8, categorical=categorical), EdgeEncoder(spec, 8, categorical)

    def forward(self, batch):
        return Representation(self.node(batch) + self.edge(batch).mean())


class Released(Architecture):
    """Encode nodes and edges with the tables of Graphormer's code."""

    def __init__(self, spec):
        super().__init__(spec, 8)
        tables = FAIRSEQ_TABLES
        self.node = ReleasedFeatures(tables.atoms, 8, tables.first, tables.step, "sum")
        self.edge = ReleasedFeatures(tables.edges, 8, tables.first + 1, tables.step, "mean")

    def forward(self, batch):
        return Representation(self.node(batch.x) + self.edge(batch.edge_attr).mean())


def asked(module, table, row=0):
    batch = table.batch([row])
    with torch.no_grad(), recorded(module, batch) as calls:
        module(batch)
    return calls


@pytest.mark.parametrize("kind", ["categorical", "dense", "both"])
@pytest.mark.parametrize("categorical", ["normal", "one_hot"])
def test_the_vector_of_mean_features_is_the_mean_of_the_vectors(kind, categorical):
    module = BenchmarkModule(tiny_spec("graph-regression", kind), lambda spec: Reads(spec, categorical)).eval()
    assert_means(
        module, tiny_table(module.spec, num_graphs=5, seed=3), module.architecture.node, module.architecture.edge
    )


def test_of_released_tables_too():
    module = BenchmarkModule(tiny_spec("graph-regression", "categorical"), Released).eval()
    model = module.architecture
    assert_means(
        module,
        tiny_table(module.spec, num_graphs=5, seed=3),
        lambda b: model.node(b.x),
        lambda b: model.edge(b.edge_attr),
    )


def assert_means(module, seen, node, edge):
    calls = asked(module, tiny_table(module.spec, num_graphs=2, seed=4))
    facts = facts_of_table(seen, module.spec)
    assert [call.kind for call in calls] == ["node", "edge"]
    batch = seen.batch(range(len(seen)))
    for call, encoder in zip(calls, (node, edge), strict=True):
        with torch.no_grad():
            expected = encoder(batch).double().mean(0)
        found = reference_of(call, facts)
        assert found.shape == call.output.shape
        assert not found.requires_grad
        torch.testing.assert_close(found.double(), expected.expand_as(found), atol=1e-6, rtol=1e-5)


def test_nodes_that_have_nothing_but_a_place_have_a_mean_place():
    spec = tiny_spec("graph-regression", "coordinates")
    module = BenchmarkModule(spec, lambda spec: Reads(spec)).eval()
    seen = tiny_table(spec, num_graphs=5, seed=3)
    call = asked(module, tiny_table(spec, num_graphs=2, seed=4))[0]
    with torch.no_grad():
        expected = module.architecture.node(seen.batch(range(5))).mean(0)
    torch.testing.assert_close(
        reference_of(call, facts_of_table(seen, spec)), expected.expand_as(call.output), atol=1e-6, rtol=1e-5
    )


def test_encodings_that_stand_beside_features_stay_those_of_the_graph():
    spec = tiny_spec("graph-regression", "both")
    module = BenchmarkModule(spec, lambda spec: Reads(spec), positional_encoding=LapPEEncoder(3, 4)).eval()
    table = encode(tiny_table(spec, num_graphs=2, seed=4), module.required_encodings())
    call = asked(module, table)[0]
    found = reference_of(call, facts_of_table(tiny_table(spec, num_graphs=5, seed=3), spec))
    weight = module.architecture.node.features.linear.weight[:, spec.node.dense :]
    own = call.arguments[1][:, spec.node.dense :] @ weight.T
    assert own.std(0).max() > 1e-3
    without = (found - own).detach()
    torch.testing.assert_close(without, without[:1].expand_as(without), atol=1e-5, rtol=1e-5)


def test_a_mean_that_nobody_knows_is_refused_by_the_name_of_the_field():
    module = BenchmarkModule(tiny_spec("graph-regression", "dense"), lambda spec: Reads(spec)).eval()
    table = tiny_table(module.spec, num_graphs=2)
    (call, _) = asked(module, table)
    facts = dataclasses.replace(facts_of_table(table, module.spec), means={})
    with pytest.raises(BadInput, match="no training mean of x_dense"):
        reference_of(call, facts)


def test_a_graph_without_edges_has_no_rows_to_replace():
    module = BenchmarkModule(tiny_spec("graph-regression", "both"), lambda spec: Reads(spec)).eval()
    seen = tiny_table(module.spec, num_graphs=3)
    calls = asked(module, tiny_table(module.spec, sizes=[1], edges=False))
    assert reference_of(calls[1], facts_of_table(seen, module.spec)).shape == (0, 8)
