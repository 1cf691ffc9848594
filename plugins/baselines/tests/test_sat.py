import networkx as nx
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GINConv
from torch_geometric.transforms import AddRandomWalkPE

from graphbench import GraphTable
from graphbench.errors import BadInput
from graphbench.nn import LapPEEncoder
from graphbench.testing import encode
from graphbench_baselines import SAT, RandomWalkPE
from graphbench_baselines.structure import (
    MessagePassing,
    SubgraphExtractor,
    SubtreeExtractor,
    khop_subgraphs,
    network_edges,
    subgraph_distances,
)

DIM = 8


def encoded(graphs, *encodings):
    return encode(GraphTable.from_graphs(graphs), encodings).batch(range(len(graphs)))


def ego_graphs(graphs, num_hops):
    """For each node of the batch: its subgraph by networkx, nodes and edges numbered as in the batch."""
    first_node = first_edge = 0
    for graph in graphs:
        network = nx.MultiDiGraph()
        network.add_nodes_from(range(graph["num_nodes"]))
        for number, (a, b) in enumerate(graph["edge_index"].t().tolist()):
            network.add_edge(a, b, number=number)
        for node in range(graph["num_nodes"]):
            ego = nx.ego_graph(network.reverse(), node, radius=num_hops)
            edges = [number + first_edge for _, _, number in network.subgraph(ego).edges(data="number")]
            yield node + first_node, sorted(n + first_node for n in ego), sorted(edges)
        first_node += graph["num_nodes"]
        first_edge += graph["edge_index"].shape[1]


@pytest.mark.parametrize("num_hops", [1, 2, 3])
def test_subgraphs_are_those_of_networkx(graphs, num_hops):
    batch = encoded(graphs, subgraph_distances(3))
    subgraphs = khop_subgraphs(batch, num_hops)
    source, target = subgraphs.edge_index
    assert torch.equal(batch.edge_index[:, subgraphs.edge], subgraphs.member[subgraphs.edge_index])
    assert torch.equal(subgraphs.root[source], subgraphs.root[target])
    for root, members, edges in ego_graphs(graphs, num_hops):
        assert sorted(subgraphs.member[subgraphs.root == root].tolist()) == members
        assert sorted(subgraphs.edge[subgraphs.root[source] == root].tolist()) == edges


@pytest.mark.parametrize("gnn", ["GIN", "PNA", "GINE"])
def test_subgraph_extractor_runs_on_each_subgraph_alone(graphs, gnn):
    torch.manual_seed(0)
    batch = encoded(graphs, subgraph_distances(2))
    network = MessagePassing(gnn, DIM, 2, edge_dim=None if gnn == "GIN" else 4, num_towers=2)
    extractor = SubgraphExtractor(network, DIM, "none").double()
    x = torch.randn(batch.num_nodes, DIM, dtype=torch.float64)
    edge = torch.randn(batch.edge_index.shape[1], 4, dtype=torch.float64)
    pooled = torch.zeros_like(x)
    for root, members, edges in ego_graphs(graphs, 2):
        place = {node: number for number, node in enumerate(members)}
        ends = [[place[int(end)] for end in batch.edge_index[row, edges]] for row in (0, 1)]
        inside = torch.tensor(ends, dtype=torch.long).reshape(2, -1)
        alone = Data(edge_index=inside, num_nodes=len(members))
        pooled[root] = network(x[members], network_edges(alone, edge[edges]))[-1].sum(0)
    expected = extractor.linear(torch.cat([x, pooled], dim=1))
    actual = extractor(x, network_edges(batch, edge, khop_subgraphs(batch, 2)))
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-8)


def test_subtree_extractor_joins_all_rounds(batch):
    torch.manual_seed(0)
    network = MessagePassing("GIN", DIM, 2, edge_dim=None, num_towers=1)
    extractor = SubtreeExtractor(network, DIM, "layer")
    x = torch.randn(batch.num_nodes, DIM)
    states = [x]
    for layer in network.layers:
        conv = GINConv(layer.nn, train_eps=True)
        conv.eps = layer.eps
        states.append(conv(states[-1], batch.edge_index).relu())
    expected = extractor.linear(torch.nn.functional.layer_norm(torch.cat(states, 1), (3 * DIM,)))
    torch.testing.assert_close(extractor(x, network_edges(batch, None)), expected)


def test_random_walk_positions_are_those_of_pyg(graphs):
    encoder = RandomWalkPE(4)
    (graph,) = [g for g in graphs if g["num_nodes"] == 12]
    edges = graph["edge_index"]
    simple = torch.cat([edges, edges.flip(0)], dim=1)
    simple = torch.unique(simple[:, simple[0] != simple[1]], dim=1)
    batch = encoded([{"num_nodes": 12, "edge_index": simple}], *encoder.encodings)
    data = AddRandomWalkPE(4)(batch.clone())
    torch.testing.assert_close(encoder(batch), data.random_walk_pe)


def test_attention_is_damped_by_degree(spec, graphs):
    model = SAT(spec, hidden_dim=DIM, num_heads=2, num_layers=1).eval()
    batch = encoded(graphs, *model.required_encodings())
    around = model._surroundings(batch, torch.float64)
    degree = torch.zeros(batch.num_nodes, dtype=torch.float64)
    for node in batch.edge_index[0].tolist():
        degree[node] += 1
    torch.testing.assert_close(around.damping[:, 0], (1 + degree) ** -0.5)


def test_layer_agrees_with_its_equations(spec, graphs):
    torch.manual_seed(0)
    model = SAT(spec, hidden_dim=DIM, num_heads=2, num_layers=1, norm="layer").eval()
    batch = encoded(graphs, *model.required_encodings())
    layer, x = model.layers[0], model.node_encoder(batch)
    around = model._surroundings(batch, x.dtype)
    structure = layer.extractor(x, around.edges)
    mixed = layer.attention(x, around.layout, structure=structure)
    y = layer.attention_norm(x + around.damping * mixed)
    torch.testing.assert_close(model(batch).node, layer.ffn_norm(y + layer.feed_forward(y)))
    attention = SAT(spec, hidden_dim=DIM, num_heads=2, num_layers=1, dropout=0.5).train().layers[0].attention
    assert not torch.equal(*(attention(x, around.layout, structure=structure) for _ in range(2)))  # drops weights


def test_structure_steers_attention_and_edges_reach_it(spec, graphs):
    torch.manual_seed(0)
    model = SAT(spec, hidden_dim=DIM, num_heads=2, num_layers=1, edge_dim=4).eval()
    blind = SAT(spec, hidden_dim=DIM, num_heads=2, num_layers=1, edge_dim=0).eval()
    batch = encoded(graphs, *model.required_encodings())
    before, before_blind = model(batch).node, blind(batch).node
    batch.edge_attr = (batch.edge_attr + 1) % 4
    assert not torch.allclose(model(batch).node, before)
    assert torch.equal(blind(batch).node, before_blind)


def test_laplacian_positions_are_mapped_and_added(spec, graphs):
    torch.manual_seed(0)
    encoder = LapPEEncoder(3, 3, model="raw", sign="flip_batch", normalization="symmetric", skip_trivial=True)
    model = SAT(spec, hidden_dim=DIM, num_heads=2, num_layers=1, positional_encoders=[encoder, RandomWalkPE(2)]).eval()
    batch = encoded(graphs, *model.required_encodings())
    assert model.position_map.in_features == 5
    before = model(batch).node
    batch.lap_pe_vectors = batch.lap_pe_vectors + 1
    assert not torch.allclose(model(batch).node, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_hops": 0}, "num_hops must be an integer of at least 1, but got 0"),
        ({"edge_dim": -1}, "edge_dim must be an integer of at least 0, but got -1"),
        ({"extractor": "ball"}, "extractor must be one of subtree, subgraph, but got 'ball'"),
        ({"gnn": "GAT"}, "gnn must be one of .* but got 'GAT'"),
        ({"num_towers": 3}, "num_towers=3 and hidden_dim=64"),
        ({"num_heads": 5}, "num_heads=5 and hidden_dim=64"),
        ({"released": True}, "extractor is 'subtree'"),
    ],
)
def test_sat_refuses(spec, options, message):
    with pytest.raises(BadInput, match=message):
        SAT(spec, **options)
