"""Small models with known attributions, and the graphs that they explain."""

from types import SimpleNamespace

import torch

from graphbench.contracts import Architecture, Representation
from graphbench.inference import TrainingFacts
from graphbench.nn import EdgeEncoder, NodeEncoder
from graphbench.nn.heads import HeadConfig
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule


class Additive(Architecture):
    """Adds up nodes and the edges that point at them, and raises the sums to a power."""

    def __init__(self, spec, hidden_dim=6, power=1):
        super().__init__(spec, hidden_dim)
        self.node, self.edge = NodeEncoder(spec, hidden_dim), EdgeEncoder(spec, hidden_dim)
        self.power = power

    def forward(self, batch):
        into = torch.zeros(batch.num_nodes, self.dim, dtype=self.edge(batch).dtype)
        nodes = self.node(batch) + into.index_add(0, batch.edge_index[1], self.edge(batch))
        return Representation(nodes**self.power)


def additive(task="graph-regression", power=1, kind="categorical"):
    torch.manual_seed(1)
    head = HeadConfig(num_layers=1, pooling="add")
    return BenchmarkModule(tiny_spec(task, kind), lambda spec: Additive(spec, power=power), head=head).eval()


def table_of(module, num_graphs=4, seed=0, **options):
    return encode(tiny_table(module.spec, num_graphs=num_graphs, seed=seed, **options), module.required_encodings())


def copies_of(module, row=0, seed=0, **options):
    table = table_of(module, seed=seed, **options)
    return lambda count: table.batch([row] * count)


def facts_of(module, seed=9):
    """Return means of graphs other than those that are explained."""
    return facts_of_table(table_of(module, num_graphs=6, seed=seed), module.spec)


def facts_of_table(table, spec):
    described = SimpleNamespace(spec=spec, class_labels=lambda: tuple(map(str, range(spec.num_classes or 0))))
    return TrainingFacts.of(table, described)


def terms(module, copies, facts_table, weight):
    """Return what each node and edge of an additive model adds to the average one, `[n]` and `[m]`."""
    batch, seen = copies(1), facts_table.batch(range(len(facts_table)))
    node, edge = module.architecture.node, module.architecture.edge
    with torch.no_grad():
        return (node(batch) - node(seen).mean(0)) @ weight, (edge(batch) - edge(seen).mean(0)) @ weight
