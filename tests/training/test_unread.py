"""Features that a model does not read: reported once, and only if they have no effect."""

import contextlib
import inspect
import itertools
from dataclasses import replace

import pytest
import torch

from graphbench import registry
from graphbench.contracts import Features
from graphbench.errors import BadInput
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule
from graphbench.training.unread import features_beside

BOTH = Features(vocabularies=(5,), dense=2)
#: Graphs or shapes with all kinds of features; sequences with tokens and a position.
SPECS = [
    replace(tiny_spec(), node=BOTH, edge=BOTH, coordinates=3),
    replace(tiny_spec(), node=Features((5,)), edge=Features(dense=1), coordinates=1),
]
WORDS = {
    "x": "features of nodes",
    "x_dense": "features of nodes",
    "edge_attr": "features of edges",
    "edge_dense": "features of edges",
    "pos": "(pos)",
}


def outputs(model, table):
    """Return the model's outputs on a newly encoded table, and the fields of the batch that it reads."""
    torch.manual_seed(0)
    batch = encode(table, model.required_encodings()).batch(range(len(table)))
    batch = model.precomputed(batch, torch.Generator().manual_seed(0))
    with torch.no_grad(), batch.noted_reads() as read:
        made = model(batch)
    return [part for part in (made.node, made.edge, made.graph, made.tokens) if part is not None], read, batch


def small_model(architecture):
    """Return a model of one layer if the class has this option, on the first specification it accepts."""
    options = {"num_layers": 1} if "num_layers" in inspect.signature(architecture).parameters else {}
    for spec, chosen in itertools.product(SPECS, (options, {})):
        torch.manual_seed(0)
        with contextlib.suppress(BadInput):
            return architecture(spec, **chosen).eval()
    pytest.skip("takes data of another kind")


@pytest.mark.parametrize("name", sorted(registry.architectures()))
def test_what_is_not_read_changes_nothing(name):
    """For every architecture: a second pass has other values in each reported field and new encodings."""
    model = small_model(registry.load("architectures", name))
    table = tiny_table(model.spec, sizes=[5, 6])
    before, read, batch = outputs(model, table)
    unread = WORDS.keys() & table.columns.keys() - read
    told = " and ".join(features_beside(read, batch, model.spec))
    assert {words for words in WORDS.values() if words in told} == {WORDS[field] for field in unread}
    changed = {}
    for field in unread:
        values = table.columns[field]
        changed[field] = values * 1.7 + 0.3 if values.is_floating_point() else (values + 1) % (values.max() + 1)
    after = outputs(model, replace(table, columns=table.columns | changed))[0]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("name", "told"),
    [("GCN", "GCN does not read the features of edges (w, kind) and the positions of nodes (pos)."),
     ("GINE", "GINE does not read the positions of nodes (pos).")],
)  # fmt: skip
def test_a_training_names_them_once(name, told, caplog):
    named = replace(SPECS[0], edge=Features((4,), 1, ("w", "kind")))
    architecture = registry.load("architectures", name)
    module = BenchmarkModule(named, lambda spec: architecture(spec, hidden_dim=8, num_layers=1))
    module.log_dict = lambda *values, **options: None
    batch = tiny_table(named).batch([0, 1])
    for step in range(2):
        module.training_step(batch, step)
    assert caplog.messages == [told]
    assert type(batch.to_dict()) is dict
    assert torch.equal(batch.pos, tiny_table(named).batch([0, 1]).pos)
