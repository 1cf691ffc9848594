"""The substructure search compared with brute force, networkx and closed forms."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import pytest
import torch
from rdkit import Chem

from graphbench.contracts import GraphTable
from graphbench.encodings.substructures import Kind, Pattern, Substructures
from graphbench.errors import BadInput

DRUGS = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "FC(F)(F)c1ccc(cc1)S(=O)(=O)N2CCC3(CC2)OCCO3",
    "C1CC2CCC1C2",
    "c1ccc2c(c1)ccc3c2cccc3",
    "C12C3C4C1C5C2C3C45",
    "[Na+].[Cl-]",
)


def table(*graphs):
    rows = [{"num_nodes": g.number_of_nodes(), "edge_index": edges_of(g)} for g in graphs]
    return GraphTable.from_graphs(rows)


def edges_of(graph):
    return torch.tensor(list(graph.edges()), dtype=torch.int64).reshape(-1, 2).t()


def found_by(encoding, graphs):
    """Return, per graph, pattern -> list of node tuples in the order found."""
    encoded = encoding.compute(graphs)
    ptr, member_ptr = encoded.ptr["substructure"].tolist(), encoded.ptr["member"].tolist()
    types, sizes, nodes, owner = (encoded.columns[name].tolist() for name in encoding.layout)
    result = []
    for g in range(len(graphs)):
        member, matches = member_ptr[g], {pattern: [] for pattern in encoding.vocabulary}
        for index, row in enumerate(range(ptr[g], ptr[g + 1])):
            assert owner[member : member + sizes[row]] == [index] * sizes[row]
            matches[encoding.vocabulary[types[row]]].append(tuple(nodes[member : member + sizes[row]]))
            member += sizes[row]
        assert member == member_ptr[g + 1]
        result.append(matches)
    return result


def reach(masks, inside, start):
    """Return the nodes of the set `inside` that `start` reaches within it, all as bit masks."""
    reached, previous = 1 << start, 0
    while reached != previous:
        previous = reached
        for v, mask in masks.items():
            reached |= mask & inside if previous >> v & 1 else 0
    return reached


def geometric_kind(masks, chosen):
    """Return the patterns that the subgraph induced on `chosen` matches: by its degrees, if it is connected."""
    inside = sum(1 << v for v in chosen)
    size, degrees = len(chosen), sorted((masks[v] & inside).bit_count() for v in chosen)
    shapes = {
        Pattern(Kind.PATH, size): [1, 1] + [2] * (size - 2),
        **({Pattern(Kind.CYCLE, size): [2] * size} if size > 2 else {}),
        **({Pattern(Kind.STAR, size - 1): [1] * (size - 1) + [size - 1]} if size > 2 else {}),
    }
    kinds = [pattern for pattern, expected in shapes.items() if degrees == expected]
    return kinds if kinds and reach(masks, inside, chosen[0]) == inside else []


def brute_force(graph, largest):
    masks = {v: sum(1 << u for u in graph[v] if u != v) for v in graph}
    matches = {}
    for size in range(2, largest + 1):
        for chosen in combinations(sorted(graph), size):
            for pattern in geometric_kind(masks, chosen):
                matches.setdefault(pattern, []).append(chosen)
    return matches


def random_graph(generator, size):
    """Return a graph with self-loops, repeated edges, either direction, and any density."""
    possible = torch.rand(size, size, generator=generator) < torch.rand((), generator=generator) * 0.8
    edges = possible.nonzero().t()
    repeat = torch.randint(1, 3, (edges.shape[1],), generator=generator)
    return edges.repeat_interleave(repeat, dim=1)


@pytest.mark.slow
def test_geometric_patterns_equal_brute_force_on_random_graphs():
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 9, (2000,), generator=generator).tolist()
    rows = [{"num_nodes": n, "edge_index": random_graph(generator, n)} for n in sizes]
    rows += [{"num_nodes": 10, "edge_index": edges_of(nx.gnm_random_graph(10, 11, seed=k))} for k in range(60)]
    rows += [{"num_nodes": len(g), "edge_index": edges_of(g)} for g in (nx.cycle_graph(8), nx.star_graph(7))]
    encoding = Substructures(cycles=range(3, 9), paths=range(2, 9), stars=range(2, 8), hops=())
    seen = set()
    for row, found in zip(rows, found_by(encoding, GraphTable.from_graphs(rows)), strict=True):
        graph = nx.Graph()
        graph.add_nodes_from(range(row["num_nodes"]))
        graph.add_edges_from(row["edge_index"].t().tolist())
        expected = brute_force(graph, 8)
        for pattern, matches in found.items():
            assert sorted(matches) == expected.get(pattern, [])
            seen.update([pattern] if matches else [])
    assert seen == set(encoding.vocabulary)


def networkx_pattern(pattern):
    makers = {Kind.CYCLE: nx.cycle_graph, Kind.PATH: nx.path_graph, Kind.STAR: nx.star_graph}
    return makers[pattern.kind](pattern.size)


@pytest.mark.parametrize("smiles", DRUGS)
def test_molecules_equal_networkx_isomorphism_search(smiles):
    molecule = Chem.MolFromSmiles(smiles)
    graph = nx.Graph([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()])
    graph.add_nodes_from(range(molecule.GetNumAtoms()))
    graph = nx.convert_node_labels_to_integers(graph, ordering="sorted")
    encoding = Substructures()
    (found,) = found_by(encoding, table(graph))
    for pattern in encoding.vocabulary:
        if pattern.kind.is_neighbourhood:
            expected = {tuple(sorted(nx.ego_graph(graph, v, pattern.size))) for v in graph}
        else:
            matcher = nx.isomorphism.GraphMatcher(graph, networkx_pattern(pattern))
            expected = {tuple(sorted(match)) for match in matcher.subgraph_isomorphisms_iter()}
        assert len(found[pattern]) == len(set(found[pattern]))
        assert set(found[pattern]) == expected


def test_hops_one_a_node_when_duplicates_are_kept():
    graph = nx.gnm_random_graph(30, 40, seed=3)
    encoding = Substructures(cycles=(), paths=(), stars=(), hops=(1, 3), distinct_neighbourhoods=False)
    (found,) = found_by(encoding, table(graph))
    for radius in (1, 3):
        expected = [tuple(sorted(nx.ego_graph(graph, v, radius))) for v in range(30)]
        assert found[Pattern(Kind.HOP, radius)] == expected


def test_large_tree_equals_its_distances():
    """In a tree, every pair of nodes at distance k - 1 has exactly one induced path of k nodes."""
    graph = nx.random_labeled_tree(400, seed=1)
    (found,) = found_by(Substructures(hops=()), table(graph))
    distances = dict(nx.all_pairs_shortest_path_length(graph))
    for size in range(4, 9):
        pairs = sum(d == size - 1 for row in distances.values() for d in row.values()) // 2
        assert len(found[Pattern(Kind.PATH, size)]) == pairs
    for leaves in range(2, 7):
        ways = sum(len(list(combinations(range(degree), leaves))) for _, degree in graph.degree())
        assert len(found[Pattern(Kind.STAR, leaves)]) == ways
    assert not any(found[Pattern(Kind.CYCLE, size)] for size in range(3, 9))


def test_long_cycle_in_a_graph_of_more_than_64_nodes():
    encoding = Substructures(cycles=(71,), paths=(69, 70, 71), stars=(), hops=())
    (found,) = found_by(encoding, table(nx.cycle_graph(71)))
    assert found[Pattern(Kind.CYCLE, 71)] == [tuple(range(71))]
    assert [len(found[Pattern(Kind.PATH, size)]) for size in (69, 70, 71)] == [71, 71, 0]


def test_grid_squares_and_plus_signs():
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(15, 20))
    encoding = Substructures(cycles=(3, 4, 5), paths=(), stars=(4,), hops=())
    (found,) = found_by(encoding, table(graph))
    assert len(found[Pattern(Kind.CYCLE, 4)]) == 14 * 19
    assert len(found[Pattern(Kind.STAR, 4)]) == 13 * 18
    assert not found[Pattern(Kind.CYCLE, 3)]
    assert not found[Pattern(Kind.CYCLE, 5)]


def test_graphs_without_edges_and_disconnected_graphs():
    graphs = table(nx.empty_graph(1), nx.empty_graph(3), nx.disjoint_union(nx.cycle_graph(5), nx.empty_graph(2)))
    single, three, mixed = found_by(Substructures(walks=(4,)), graphs)
    assert single[Pattern(Kind.HOP, 2)] == single[Pattern(Kind.WALK, 4)] == [(0,)]
    assert sorted(three[Pattern(Kind.HOP, 2)]) == sorted(three[Pattern(Kind.WALK, 4)]) == [(0,), (1,), (2,)]
    assert mixed[Pattern(Kind.CYCLE, 5)] == [(0, 1, 2, 3, 4)]
    assert sorted(mixed[Pattern(Kind.HOP, 2)]) == [(0, 1, 2, 3, 4), (5,), (6,)]
    assert not any(matches for pattern, matches in three.items() if not pattern.kind.is_neighbourhood)


def test_batch_offsets_members_by_graph_and_substructure():
    graphs = table(nx.cycle_graph(5), nx.star_graph(4), nx.path_graph(6))
    encoding = Substructures(cycles=(5,), paths=(6,), stars=(4,), hops=())
    encoded = encoding.compute(graphs)
    batch = graphs.with_columns(encoded.columns, encoding.layout, encoded.ptr).batch([2, 1, 0])
    assert batch.substructure_batch.tolist() == [0, 1, 2]
    assert encoding.kind_of_type[batch.substructure_type].tolist() == [Kind.PATH, Kind.STAR, Kind.CYCLE]
    assert batch.member_node.tolist() == list(range(16))
    assert batch.member_substructure.tolist() == [0] * 6 + [1] * 5 + [2] * 5
    assert batch.substructure_ptr.tolist() == [0, 1, 2, 3]


def test_no_graphs_at_all():
    graphs = table(nx.cycle_graph(4)).slice(0, 0)
    encoded = Substructures().compute(graphs)
    assert encoded.ptr["substructure"].tolist() == encoded.ptr["member"].tolist() == [0]
    assert len(encoded.columns["member_node"]) == 0


def test_options_name_the_store_and_bound_the_size():
    assert Substructures() == Substructures(paths=[4, 5, 6, 7, 8])
    assert Substructures() != Substructures(seed=1)
    assert Substructures().max_size is None
    assert Substructures(max_neighbourhood=17).max_size == 17
    assert Substructures(hops=(), walks=(10,)).max_size == 11
    assert [pattern.name for pattern in Substructures(paths=(), stars=(3,)).vocabulary[-2:]] == ["star-3", "hop-2"]
    many = Substructures(cycles=range(3, 256), paths=(), stars=(), hops=range(1, 6))
    point = GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}])
    assert many.compute(point).columns["substructure_type"].tolist() == list(range(253, 258))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cycles": (2,)}, "cycle needs a whole number of nodes from 3"),
        ({"hops": (256,)}, "hop needs a whole number of .* to 255"),  # distances have eight bits
        ({"stars": (1,)}, "star needs a whole number of leaves from 2"),
        ({"paths": (4, 4)}, "path-4"),
        ({"max_per_pattern": 0}, "max_per_pattern must be an integer of at least 1"),
        ({"cycles": (), "paths": (), "stars": (), "hops": ()}, "vocabulary is empty"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        Substructures(**options)


def test_edge_outside_its_graph_is_refused():
    graphs = GraphTable.from_graphs([{"num_nodes": 2, "edge_index": torch.tensor([[0], [2]])}])
    with pytest.raises(BadInput, match="from 0 to num_nodes - 1"):
        Substructures().compute(graphs)
