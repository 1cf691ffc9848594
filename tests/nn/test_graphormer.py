"""Degrees, distances and edges on shortest paths, compared with loops over nodes and pairs with networkx."""

from __future__ import annotations

import dataclasses
import tracemalloc

import networkx as nx
import pytest
import torch
import torch.nn.functional as F

from graphbench import BenchmarkSpec, Features, GraphTable
from graphbench.benchmarks import PCQM4M
from graphbench.errors import BadInput
from graphbench.nn import (
    FAIRSEQ_TABLES,
    CentralityEmbedding,
    FeatureEncoder,
    PairBias,
    PathEdgeTerm,
    ReleasedTables,
    TokenReadout,
)
from graphbench.nn.graphormer import ReleasedFeatures
from graphbench.testing import encode, tiny_spec, tiny_table

HEADS = 3
ONE_COLUMN = ReleasedTables(atoms=64, degrees=64, edges=64, hops=40, distances=40, step=0, first=1)


def make_spec(node=Features((7, 3)), edge=Features((4,)), **options):  # noqa: B008 - frozen dataclass
    return BenchmarkSpec("Tiny", "graph-regression", node, edge, "MAE", False, "L1", **options)


def encoded(table, module):
    return encode(table, module.encodings).batch(range(len(table)))


def shortest_paths(edges, distance, start, goal):
    """Return every shortest path as a list of edge numbers, given networkx's distances."""
    if start == goal:
        return [[]]
    return [
        [number, *rest]
        for number, (a, b) in enumerate(edges)
        if a == start and distance[b].get(goal) == distance[start][goal] - 1
        for rest in shortest_paths(edges, distance, b, goal)
    ]


def expected_pairs(module, num_nodes, edges, q):
    """Return `D[distance]` + the mean over all shortest paths of `1/k sum_h q(e_h) W_h`, pair by pair, path by path."""
    network = nx.MultiDiGraph(edges)
    network.add_nodes_from(range(num_nodes))
    distance = dict(nx.all_pairs_shortest_path_length(network))
    rows = []
    for start in range(num_nodes):
        for goal in range(num_nodes):
            if goal not in distance[start]:
                rows.append(module.distance.weight[module.paths.unreachable])
                continue
            row = module.distance.weight[min(distance[start][goal], module.paths.max_distance)]
            paths = [path[: module.edge_term.max_hops] for path in shortest_paths(edges, distance, start, goal)]
            terms = [q[edge] @ module.edge_term.hops[hop] for path in paths for hop, edge in enumerate(path)]
            rows.append(row + sum(terms) / (len(paths) * len(paths[0])) if terms else row)
    return torch.stack(rows)


def assert_equals_brute_force(module, batch, q):
    """Compare all pairs of all graphs of a batch, given the vectors q of its edges."""
    pairs = module.pairs(batch)
    for graph, (first, last) in enumerate(zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True)):
        own = (batch.edge_index[0] >= first) & (batch.edge_index[0] < last)
        edges = (batch.edge_index[:, own] - first).t().tolist()
        expected = expected_pairs(module, last - first, edges, q[own])
        actual = pairs[batch.pair_ptr[graph] : batch.pair_ptr[graph + 1]]
        # Shares of paths are stored in float32; weights here are about 0.02.
        torch.testing.assert_close(actual, expected, atol=1e-9, rtol=1e-10)


# -- the bias of node pairs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tables", [None, FAIRSEQ_TABLES], ids=["own", "released"])
def test_pairs_agree_with_brute_force(table, tables):
    """Random graphs with loops, parallel edges, one-way edges, several components and single nodes."""
    torch.manual_seed(0)
    module = PairBias(make_spec(), HEADS, max_distance=3, max_hops=2, tables=tables).double()
    batch = encoded(table, module)
    codes = batch.edge_attr[:, 0]
    assert_equals_brute_force(module, batch, module.edge_term.features.table[codes if tables is None else codes + 3])


def two_paths(num_nodes, joined):
    """Return two paths of half the nodes each, in both directions, joined by an edge or not."""
    half = num_nodes // 2
    net = nx.path_graph(num_nodes)
    if not joined:
        net.remove_edge(half - 1, half)
    return undirected(net)


def undirected(net):
    """Return both directions of every edge, with features that vary from edge to edge."""
    edges = torch.tensor(list(net.edges())).t()
    number = 2 * edges.shape[1]
    return {
        "num_nodes": len(net),
        "edge_index": torch.cat([edges, edges.flip(0)], 1),
        "x": torch.zeros(len(net), 1, dtype=torch.int64),
        "edge_attr": (torch.arange(number).reshape(number, 1) * 5 // 3) % 4,
        "y": torch.zeros(1),
    }


@pytest.mark.parametrize("max_hops", [1, 3, 5, 9])
def test_tied_paths_are_averaged(max_hops):
    """A grid has up to 20 shortest paths a pair, a ring of six two; distances may saturate before the hops do."""
    torch.manual_seed(1)
    module = PairBias(make_spec(Features((3,))), HEADS, max_distance=2, max_hops=max_hops).double()
    grid, ring = (nx.convert_node_labels_to_integers(net) for net in (nx.grid_2d_graph(4, 4), nx.cycle_graph(6)))
    graphs = [undirected(net) for net in (grid, ring)]
    batch = encoded(GraphTable.from_graphs(graphs), module)
    assert_equals_brute_force(module, batch, module.edge_term.features.table[batch.edge_attr[:, 0]])


@torch.no_grad()
def test_pairs_do_not_depend_on_how_edges_are_listed():
    """Reorder the edges of a grid together with their features: every pair keeps its bias."""
    torch.manual_seed(1)
    module = PairBias(make_spec(Features((3,))), HEADS, max_distance=9, max_hops=5).double()
    grid = undirected(nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 5)))
    order = torch.randperm(grid["edge_index"].shape[1])
    shuffled = grid | {"edge_index": grid["edge_index"][:, order], "edge_attr": grid["edge_attr"][order]}
    before, after = (module.pairs(encoded(GraphTable.from_graphs([graph]), module)) for graph in (grid, shuffled))
    torch.testing.assert_close(after, before, atol=1e-14, rtol=0)


def test_disconnected_graphs_agree_with_brute_force():
    """Pairs without a path have their own row and no edges; all others have at most `max_hops` edges."""
    torch.manual_seed(0)
    module = PairBias(make_spec(Features((3,))), HEADS, max_distance=20, max_hops=5).double()
    batch = encoded(GraphTable.from_graphs([two_paths(16, joined) for joined in (False, True)]), module)
    assert (batch.path_step_batch == 0).sum() == 2 * (8 * 8 - 8), "one step for each pair joined by a path"
    assert_equals_brute_force(module, batch, module.edge_term.features.table[batch.edge_attr[:, 0]])


def test_a_disconnected_graph_costs_no_more_than_a_connected_one():
    """A path table as wide as the largest distance would need `n^2` times "infinity" for pairs without a path."""
    module, peaks = PairBias(make_spec(Features((3,))), HEADS, max_distance=500, max_hops=5), {}
    n = 120
    for joined in (False, True):
        graphs = GraphTable.from_graphs([two_paths(n, joined)])
        tracemalloc.start()
        columns = module.paths.compute(graphs).columns
        peaks[joined] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        joined_pairs = n**2 - n if joined else 2 * ((n // 2) ** 2 - n // 2)
        assert len(columns["path_step_edge"]) == joined_pairs
        assert columns["path_step_edge"].dtype == columns["path_step_goal"].dtype == torch.int32
    assert peaks[False] < 1.2 * peaks[True]
    assert peaks[False] < n**2 * 500 * 8 / 10


@torch.no_grad()
def test_node_pairs_stand_among_the_others(table):
    module = PairBias(make_spec(), HEADS, max_distance=4, max_hops=3).double()
    batch = encoded(table, module)
    padded, sizes = 15, batch.ptr.diff().tolist()
    slots = torch.cat([graph * padded + torch.randperm(padded)[:n] for graph, n in enumerate(sizes)])
    others = torch.randn(len(sizes), padded, padded, HEADS, dtype=torch.float64)
    expected, pairs = others.clone(), iter(module.pairs(batch))
    for graph, n in enumerate(sizes):
        own = (slots[batch.batch == graph] % padded).tolist()
        assert len(own) == n
        for query in own:
            for key in own:
                expected[graph, query, key] = next(pairs)
    assert torch.equal(module.place(batch, slots, others), expected.permute(0, 3, 1, 2))


def test_path_edge_term_has_right_gradients():
    """Check the gradient of the gathered sum by finite differences in float64."""
    spec = tiny_spec(kind="dense")
    bias = PairBias(spec, 2, max_distance=4, max_hops=5).double()
    batch = encode(tiny_table(spec, sizes=[4, 6]), bias.encodings).batch([0, 1])
    batch.edge_dense = batch.edge_dense.double()

    def term(hops):
        return torch.func.functional_call(bias.edge_term, {"hops": hops}, (batch,))

    assert torch.autograd.gradcheck(term, bias.edge_term.hops.detach().requires_grad_())


def test_bias_stays_in_the_precision_of_its_parameters(table):
    module = PairBias(make_spec(), HEADS, max_distance=4, max_hops=3)
    batch = encoded(table, module)
    slots = batch.batch * 12 + torch.arange(batch.num_nodes) - batch.ptr[batch.batch]
    others = torch.zeros(batch.num_graphs, 12, 12, HEADS)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = module.place(batch, slots, others)
    assert torch.equal(mixed, module.place(batch, slots, others))


@pytest.mark.parametrize(("edge", "max_hops"), [(Features((4,)), 0), (Features(), 5)])
def test_no_edge_term_without_hops_or_features(edge, max_hops):
    module = PairBias(make_spec(edge=edge), HEADS, max_distance=4, max_hops=max_hops)
    assert module.edge_term is None
    assert not module.paths.with_edges


def test_released_tables_are_carried_but_not_read_without_edge_features(table):
    module = PairBias(make_spec(edge=Features()), HEADS, max_distance=4, max_hops=5, tables=FAIRSEQ_TABLES)
    assert (module.paths.max_distance, module.paths.unreachable, module.paths.with_edges) == (509, 510, False)
    assert module.edge_term.hops.shape == (128, HEADS, HEADS)
    module.pairs(encoded(table, module)).sum().backward()
    assert module.edge_term.hops.grad is None
    assert module.distance.weight.grad.any()


# -- features of a node ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [True, False])
def test_degrees_enter_by_direction(table, directed):
    spec = make_spec(Features((7, 3), dense=2))
    module = CentralityEmbedding(spec, 8, max_degree=4, directed=directed)
    batch = encoded(table, module)
    ends = [torch.bincount(end, minlength=batch.num_nodes).clamp(max=4) for end in batch.edge_index]
    expected = module.features(batch) + module.in_degree.weight[ends[1]]
    if directed:
        expected = expected + module.out_degree.weight[ends[0]]
    else:
        assert module.out_degree is None
    torch.testing.assert_close(module(batch), expected)


def test_released_features_are_a_sum_and_a_mean_of_rows():
    columns = torch.tensor([[0, 1, 2], [5, 0, 200]])
    for mode, reduce in (("sum", torch.sum), ("mean", torch.mean)):
        module = ReleasedFeatures(size=91, dim=4, first=2, step=10, mode=mode)
        rows = torch.tensor([[2, 13, 24], [7, 12, 90]])  # the last value is past the end
        torch.testing.assert_close(module(columns), reduce(module.table[rows], 1))


def test_released_centrality_has_tables_for_both_directions(table):
    module = CentralityEmbedding(make_spec(), 8, max_degree=4, tables=FAIRSEQ_TABLES, directed=False)
    batch = encoded(table, module)
    assert module.encodings[0].max_degree == 511
    expected = module.features(batch.x) + module.in_degree.weight[batch.in_degree]
    torch.testing.assert_close(module(batch), expected + module.out_degree.weight[batch.out_degree])


def rows_read(module, features):
    """Return the rows of a table `[R, d]` that each value reads: `(column, value) -> set of rows`."""
    read = {}
    for column, size in enumerate(features.vocabularies):
        for value in range(size):
            codes = torch.zeros(1, len(features.vocabularies), dtype=torch.int64)
            codes[0, column] = value
            (gradient,) = torch.autograd.grad(module(codes).sum(), module.table)
            codes[0, column] = 1 if value == 0 else 0
            (other,) = torch.autograd.grad(module(codes).sum(), module.table)
            read[column, value] = set((gradient - other).clamp(min=0).sum(1).nonzero().flatten().tolist())
    return read


class WithoutDense(torch.nn.Module):
    """A `FeatureEncoder` that reads categorical columns only."""

    def __init__(self, features):
        super().__init__()
        self.encoder = FeatureEncoder(features, 2, "normal")
        self.table = self.encoder.table

    def forward(self, categories):
        return self.encoder(categories, None)


@pytest.mark.parametrize("part", ["node", "edge"])
def test_no_two_values_of_a_molecule_share_a_row(part):
    """Every element, charge, chirality and bond of PCQM4M has its own row; in the released tables they collide."""
    features = getattr(PCQM4M.spec, part)
    read = rows_read(WithoutDense(features), features)
    assert len(read) == sum(features.vocabularies)
    assert all(len(rows) == 1 for rows in read.values())
    assert len(set().union(*read.values())) == len(read)


def test_released_rows_of_pcqm4m_collide():
    """For example, silicon (code 13 of column 0) and chirality "other" (code 3 of column 1) read row 15."""
    read = rows_read(ReleasedFeatures(FAIRSEQ_TABLES.atoms, 2, 2, FAIRSEQ_TABLES.step, "sum"), PCQM4M.spec.node)
    assert read[0, 13] == read[1, 3] == {15}
    assert read[0, 100] == read[0, 118] == {90}, "past the end"


def test_embeddings_start_small():
    torch.manual_seed(0)
    spec = make_spec(Features((40,), dense=2), Features((9,), dense=1))
    for module in (CentralityEmbedding(spec, 64, 20), PathEdgeTerm(spec, 16, 4), PairBias(spec, 16, 60, 4)):
        drawn = [p.detach().flatten() for n, p in module.named_parameters() if "linear" not in n]
        assert float(torch.cat(drawn).std()) == pytest.approx(0.02, rel=0.1)
        assert max(float(part.abs().max()) for part in drawn) < 0.02 * 6


def test_readout_is_its_formula():
    readout, x = TokenReadout(8), torch.randn(5, 8)
    hidden = F.gelu(x @ readout.linear.weight.T + readout.linear.bias)
    torch.testing.assert_close(readout(x), F.layer_norm(hidden, (8,), readout.norm.weight, readout.norm.bias))
    assert sum(p.numel() for p in readout.parameters()) == 8**2 + 3 * 8


@pytest.mark.parametrize(
    ("spec", "tables", "message"),
    [
        (make_spec(Features(dense=3)), FAIRSEQ_TABLES, "categorical features only"),
        (make_spec(edge=Features((4,), dense=1)), FAIRSEQ_TABLES, "1 dense columns"),
        (make_spec(coordinates=3), FAIRSEQ_TABLES, "3 dense columns and coordinates"),
        (make_spec(), ONE_COLUMN, "one column of each"),
    ],
)
def test_released_tables_refuse_what_they_cannot_hold(spec, tables, message):
    with pytest.raises(BadInput, match=message):
        CentralityEmbedding(spec, 8, 4, tables)
    with pytest.raises(BadInput, match=message):
        PairBias(spec, HEADS, 4, 5, tables)


def test_released_tables_hold_categories_alone(spec):
    FAIRSEQ_TABLES.check(dataclasses.replace(spec, node=Features((3,))))
    for node in (Features(), Features((3,), dense=1), Features(dense=1)):
        with pytest.raises(BadInput, match="reads categorical features only"):
            FAIRSEQ_TABLES.check(dataclasses.replace(spec, node=node))
