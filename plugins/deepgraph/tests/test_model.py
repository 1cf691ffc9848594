"""DeepGraph as a whole: the contract, any graph, and options."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
import torch

from graphbench.contracts import GraphTable
from graphbench.data.loader import GraphLoader
from graphbench.data.sampler import SizeBucketSampler
from graphbench.diagnostics import Patterns, record, summarise
from graphbench.encodings.substructures import Kind, Substructures
from graphbench.errors import BadInput
from graphbench.testing import ArchitectureContract, encode, permute_nodes, tiny_batch, tiny_spec, tiny_table
from graphbench_deepgraph import DeepGraph

SMALL = {"hidden_dim": 16, "ffn_dim": 24, "num_layers": 2, "num_heads": 2}
GEOMETRIC = Substructures(hops=())
WALKS = Substructures(cycles=(), paths=(), stars=(), hops=(), walks=(10,))


class GivenDraw(DeepGraph):
    """One seed for all graphs, so that the draw does not depend on how nodes are numbered."""

    def seeds(self, batch, draw=0, generator=None):
        return torch.full((batch.num_graphs,), 77 + draw, device=batch.ptr.device)


class TestGivenDraw(ArchitectureContract):
    """For a given draw the whole contract holds, including the one about the order of the nodes."""

    architecture = GivenDraw
    options = SMALL
    most_launches = 363


class TestDeepGraph(ArchitectureContract):
    architecture = DeepGraph
    options = SMALL | {"num_draws": 2}
    most_launches = 363

    def test_node_order_does_not_matter(self):
        """In evaluation a different numbering is a different draw: the means over draws agree within their error."""
        torch.manual_seed(0)
        spec = tiny_spec()
        model = DeepGraph(spec, **SMALL | {"num_draws": 150}).eval()
        table = encode(tiny_table(spec, sizes=[7, 9]), model.required_encodings())
        moved, origin = permute_nodes(table)
        with torch.no_grad():
            before, after = model(table.batch([0, 1])), model(moved.batch([0, 1]))
            model.num_draws = 1
            single = model(moved.batch([0, 1]))
        far = (single.node - before.node[origin]).abs().max()
        assert (after.node - before.node[origin]).abs().max() < 0.35 * far
        assert (after.graph - before.graph).abs().max() < 0.35 * far


class TestReleased(ArchitectureContract):
    """The released tables and sampler; ascending node numbers, so the order of the nodes matters."""

    architecture = GivenDraw
    options = SMALL | {"released": True}
    spec = tiny_spec("node-classification", "categorical")
    without_gradient = ("pooler.*",)
    most_launches = 498


class TestWithoutLocalAttention(ArchitectureContract):
    """A relative-position transformer: no sampling, so any node order gives the same."""

    architecture = DeepGraph
    options = SMALL | {"local_attention": False}
    most_launches = 353


def small(kind="both", **options):
    torch.manual_seed(0)
    return DeepGraph(tiny_spec(kind=kind), **SMALL | options).eval()


def graph_of(net, spec, seed=0):
    """A graph with random features; both directions of every edge of networkx, as often as they occur."""
    edges = torch.tensor(list(net.edges()), dtype=torch.int64).reshape(-1, 2).t()
    generator = torch.Generator().manual_seed(seed)
    graph = {"num_nodes": len(net), "edge_index": torch.cat([edges, edges.flip(0)], 1), "y": torch.zeros(1, 2)}
    graph["x"] = torch.randint(5, (len(net), 1), generator=generator)
    graph["edge_attr"] = torch.randint(4, (2 * edges.shape[1], 1), generator=generator)
    return graph


def shuffle_edges(table, seed=0):
    """The same graphs with their edges listed in another order, each with its features."""
    generator = torch.Generator().manual_seed(seed)
    ranges = zip(table.ptr["edge"][:-1].tolist(), table.num_edges.tolist(), strict=True)
    order = torch.cat([start + torch.randperm(n, generator=generator) for start, n in ranges])
    columns = {
        name: table.columns[name][order] if column.axis == "edge" else table.columns[name]
        for name, column in table.layout.items()
    }
    return GraphTable(columns, table.layout, table.ptr)


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [{}, {"num_draws": 2}, {"released": True}, {"local_attention": False}, {"substructures": WALKS}],
    ids=["default", "two draws", "released", "relative", "walks"],
)
def test_the_order_of_edges_does_not_matter(options):
    """Encodings, draws and paths of equal length: all are those of the graph, however its edges are listed."""
    model = small("categorical", **options).double()
    for parameter in model.parameters():  # large enough for edges to matter
        torch.nn.init.normal_(parameter, std=0.5)
    nets = [nx.grid_2d_graph(3, 4), nx.cycle_graph(8), nx.gnp_random_graph(11, 0.35, seed=2)]
    graphs = [graph_of(nx.convert_node_labels_to_integers(net), model.spec, seed) for seed, net in enumerate(nets)]
    table = GraphTable.from_graphs(graphs)
    before, after = (
        model(encode(given, model.required_encodings()).batch(range(3))) for given in (table, shuffle_edges(table))
    )
    for expected, actual in ((before.node, after.node), (before.graph, after.graph)):
        torch.testing.assert_close(actual, expected, atol=1e-10, rtol=0)
    model.bias.edge_term.hops.zero_()
    without = model(encode(table, model.required_encodings()).batch(range(3)))
    assert (without.node - before.node).abs().max() > 1e-4, "edges on paths do enter"


# -- any graph -------------------------------------------------------------------------------------------------------


AWKWARD = {
    "components": nx.disjoint_union(nx.cycle_graph(5), nx.path_graph(4)),
    "single": nx.empty_graph(1),
    "no edges": nx.empty_graph(6),
    "no cycle": nx.path_graph(3),
    "multi-edges": nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 2), (2, 3)]),
    "self-loop alone": nx.Graph([(0, 0)]),
    "star": nx.star_graph(12),
    "hundreds": nx.connected_watts_strogatz_graph(400, 4, 0.1, seed=1),
}


@pytest.mark.parametrize(
    "encoding",
    [
        pytest.param(None, id="both", marks=pytest.mark.slow),
        pytest.param(GEOMETRIC, id="geometric", marks=pytest.mark.slow),
        pytest.param(WALKS, id="walks"),
    ],
)
def test_any_graph_trains_alone_and_together(encoding):
    """Rows for every node, finite gradients, and the same answer alone as together."""
    model = small("categorical", substructures=encoding)
    table = GraphTable.from_graphs([graph_of(net, model.spec) for net in AWKWARD.values()])
    table = encode(table, model.required_encodings())
    together = model(table.batch(range(len(table))))
    assert len(together.node) == sum(len(net) for net in AWKWARD.values()), "no graph is left out, however large"
    batch = table.batch(range(len(table)))
    for number, name in enumerate(AWKWARD):
        with torch.no_grad():
            alone = model(table.batch([number]))
        assert torch.allclose(alone.node, together.node[batch.batch == number], atol=1e-5), name
        assert torch.allclose(alone.graph[0], together.graph[number], atol=1e-5), name
    model.train()(batch).node.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_graphs_without_any_substructure_work():
    """With only geometric patterns on graphs that have none, nodes and graph token remain."""
    model = small("categorical", substructures=GEOMETRIC)
    graphs = [graph_of(nx.path_graph(2), model.spec), graph_of(nx.empty_graph(3), model.spec)]
    table = encode(GraphTable.from_graphs(graphs), model.required_encodings())
    output = model(table.batch([0, 1]))
    assert output.tokens.shape == (0, 16)
    assert output.node.isfinite().all()
    assert output.graph.shape == (2, 16)


# -- options ---------------------------------------------------------------------------------------------------------


def test_released_takes_its_sampler_and_tables():
    model = small("categorical", released=True)
    assert model.sampling.released
    assert not model.substructures.distinct_neighbourhoods
    for given in (
        Substructures(max_neighbourhood=9),
        Substructures(max_neighbourhood=9, distinct_neighbourhoods=False),
    ):
        configured = small("categorical", released=True, substructures=given)
        assert configured.substructures == Substructures(max_neighbourhood=9, distinct_neighbourhoods=False)
        assert configured.required_encodings()[0] == configured.substructures, "and this is what the data prepare"
        assert small("categorical", substructures=given).substructures is given
    assert len(model.node_embedding.features.table) == 91
    assert not small("categorical").sampling.released
    with pytest.raises(BadInput, match="categorical features only"):
        small("dense", released=True)


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"substructures": GEOMETRIC}, {Kind.CYCLE, Kind.PATH, Kind.STAR}),
        ({"substructures": Substructures((), (), (), max_neighbourhood=10)}, {Kind.HOP}),
        ({"substructures": WALKS}, {Kind.WALK}),
        ({"substructures": Substructures((), (), (), (), walks=(5,)), "substructure_content": "type"}, {Kind.WALK}),
        ({"substructure_content": "random"}, {Kind.CYCLE, Kind.PATH, Kind.STAR, Kind.HOP}),
        ({"deepnorm": False}, {Kind.CYCLE, Kind.PATH, Kind.STAR, Kind.HOP}),
    ],
)
def test_ablations_do_what_they_say(options, kinds):
    model = small(**options)
    batch = tiny_batch(model)
    output = model(batch)
    assert set(model.substructures.kind_of_type.tolist()) == kinds
    assert output.graph.isfinite().all()
    assert model.layers[0].alpha == (1.0 if "deepnorm" in options else 4**0.25)
    content = options.get("substructure_content", "adjacency")
    size = {"adjacency": (model.substructures.max_size**2 + 1) * 16 + 272, "type": 16, "random": 0}[content]
    assert sum(p.numel() for p in model.substructure_encoder.parameters()) == size


def test_random_content_is_normal_and_repeats():
    model = small(substructure_content="random")
    inputs = torch.arange(400) * 7919
    drawn = model.substructure_encoder(inputs, torch.float64)
    assert torch.equal(drawn, model.substructure_encoder(inputs, torch.float64))
    assert drawn.mean().abs() < 4 / drawn.numel() ** 0.5
    assert drawn.var() == pytest.approx(1, abs=0.08)
    assert torch.corrcoef(drawn.T)[0, 1:].abs().max() < 0.25


def test_checkpointing_changes_memory_alone():
    """Losses and gradients are the same, dropout included; fewer tensors are kept for the backward pass."""
    results, kept = [], []
    for checkpointing in (False, True):
        model = small(checkpointing=checkpointing, dropout=0.2, num_layers=6).train()
        batch = tiny_batch(model)
        torch.manual_seed(5)
        total = []

        def keep(tensor, sizes=total):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model(batch).node.square().mean()
        loss.backward()
        results.append([loss.detach(), *[p.grad for p in model.parameters()]])
        kept.append(sum(total))
    assert kept[1] < 0.6 * kept[0]
    for expected, actual in zip(*results, strict=True):
        assert torch.allclose(expected, actual, atol=1e-6)


@pytest.mark.slow
def test_compiled_forward_agrees():
    model = small()
    batch = tiny_batch(model)
    with torch.no_grad():
        expected = model(batch)
        compiled = torch.compile(model, backend="eager", dynamic=True)(batch)
    assert torch.allclose(compiled.node, expected.node, atol=1e-6)
    assert torch.allclose(compiled.graph, expected.graph, atol=1e-6)


def test_capacity_of_substructure_tokens_is_measured():
    model = small("categorical")
    table = GraphTable.from_graphs([graph_of(nx.cycle_graph(6), model.spec), graph_of(nx.star_graph(5), model.spec)])
    table = encode(table, model.required_encodings())
    batch = table.batch([0, 1])
    patterns = Patterns.uniform(
        batch.member_node, batch.member_substructure, batch.substructure_batch, batch.ptr.diff()
    )
    with torch.no_grad(), record(model) as recording:
        model(batch)
    measures = [layer.means() for layer in summarise(recording, patterns).values()]
    assert len(measures) == 3, "two layers and the output"
    assert all(layer[name] > 0 for layer in measures[:2] for name in ("capacity", "token_capacity"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draws": 0}, "num_draws must be an integer of at least 1"),
        ({"substructures": Substructures()}, "max_neighbourhood"),
        ({"substructure_content": "words"}, "substructure_content must be one of adjacency, type, random"),
        ({"init": "kaiming"}, "init must be one of normal, xavier, but got 'kaiming'"),
        ({"num_heads": 3}, "must divide"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        small(**options)


def test_the_loader_samples_as_the_model_does():
    """A candidate becomes a token as often with the loader's generators as with PyTorch's, which a bare batch uses."""
    model = small("categorical").train()
    table = encode(tiny_table(model.spec, sizes=[9]), model.required_encodings())
    sampler = SizeBucketSampler(table.num_nodes, 1, shuffle=True)
    loader, batch = GraphLoader(table, sampler, precompute=model.precomputed, draws=True), table.batch([0])
    names, draws = ("deepgraph_member_node_0", "deepgraph_member_substructure_0"), 300
    counts = {"loader": Counter(), "model": Counter()}
    for epoch in range(draws):
        loader.set_epoch(epoch)
        for way, sampled in (
            ("loader", next(iter(loader))),
            ("model", model.precomputed(batch, torch.default_generator)),
        ):
            node, token = (sampled[name] for name in names)
            counts[way].update({tuple(node[token == one].tolist()) for one in token.unique()})
    assert len(counts["loader"]) > 10
    for candidate in counts["loader"] | counts["model"]:
        first, second = (counts[way][candidate] / draws for way in counts)
        share = (first + second) / 2
        assert abs(first - second) <= 4.5 * (2 * share * (1 - share) / draws) ** 0.5, candidate
    assert model(next(iter(loader))).graph.isfinite().all()


def test_missing_encoding_is_named():
    model = small()
    with pytest.raises(BadInput, match=r"member_node, member_substructure.*required_encodings"):
        model(encode(tiny_table(model.spec), model.bias.encodings).batch([0]))


def test_a_batch_that_was_sampled_for_another_model_is_sampled_anew():
    """Two models of the class with other options, as in an ensemble, do not share what was precomputed."""
    one, other = small().eval(), small(num_draws=3).eval()
    batch = encode(tiny_table(one.spec, sizes=[7, 9]), one.required_encodings()).batch([0, 1])
    sampled = one.precomputed(batch)
    assert one.precomputed(sampled) is sampled
    torch.testing.assert_close(other(sampled).node, other(batch).node, rtol=0, atol=0)
