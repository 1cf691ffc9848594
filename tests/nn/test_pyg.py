"""Plain batches of PyG give the same results as a `GraphBatch` of the same graphs, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric import nn
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddRandomWalkPE, Compose

from graphbench import Encoding, GraphBatch, GraphTable
from graphbench.contracts import Column
from graphbench.contracts.pyg import graphs_of_nodes, to_graph_batch
from graphbench.encodings import (
    RRWP,
    RWSE,
    Degree,
    EffectiveResistance,
    ExpanderEdges,
    LapPE,
    ShortestPaths,
    Substructures,
)
from graphbench.errors import BadInput
from graphbench.nn import (
    DegreeEncoder,
    DenseLayout,
    ESLapPEEncoder,
    GatedGCNLayer,
    GPSLayer,
    LapPEEncoder,
    MultiHeadAttention,
    RWSEEncoder,
    SignNetEncoder,
    TransformerAttention,
    add_encodings,
    make_local_layer,
)
from graphbench.testing import encode

DIM = 8
ENCODERS = [
    lambda: LapPEEncoder(3, DIM),
    lambda: LapPEEncoder(3, 3, model="raw"),
    lambda: LapPEEncoder(3, DIM, model="linear", skip_trivial=True),
    lambda: ESLapPEEncoder(3, DIM),
    lambda: SignNetEncoder(3, DIM, hidden_dim=8, num_layers=2),
    lambda: SignNetEncoder(3, DIM, hidden_dim=8, num_layers=2, model="mlp"),
    lambda: RWSEEncoder(6, DIM),
    lambda: DegreeEncoder(9, DIM),
]
ENCODINGS = [
    RWSE(5),
    LapPE(4),
    Degree(9),
    ShortestPaths(max_distance=4),
    EffectiveResistance(),
    Substructures(cycles=(3, 4), paths=(3,), stars=(2,), hops=()),
]


def graphs_of(table: GraphTable) -> list[Data]:
    """Return the graphs of a table as PyG's `Data`."""
    found = []
    for graph in range(len(table)):
        columns = table.slice(graph, graph + 1).columns
        edges = columns["edge_index"].long().t().contiguous()
        found.append(Data(edge_index=edges, num_nodes=int(table.num_nodes[graph]), x=columns["x"]))
    return found


@pytest.fixture
def plain(table: GraphTable) -> Batch:
    return Batch.from_data_list(graphs_of(table))


def rows(batch: GraphBatch) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch.num_nodes, DIM, generator=generator)
    return x, torch.randn(batch.edge_index.shape[1], DIM, generator=generator)


@pytest.mark.parametrize("form", ["batch", "vector", "layout"])
def test_attention_is_that_of_a_graph_batch(batch: GraphBatch, plain: Batch, form: str) -> None:
    torch.manual_seed(0)
    attention, (x, _) = MultiHeadAttention(DIM, 2), rows(batch)
    where = {"batch": plain, "vector": plain.batch, "layout": DenseLayout.from_batch(plain)}[form]
    assert torch.equal(attention(x, where), attention(x, DenseLayout.from_batch(batch)))


def test_attention_of_one_graph_without_a_vector(batch: GraphBatch) -> None:
    attention, x = MultiHeadAttention(DIM, 2), torch.randn(5, DIM)
    alone = attention(x, Data(num_nodes=5))
    assert torch.equal(alone, attention(x, torch.zeros(5, dtype=torch.int64)))
    expected, _ = _reference(attention)(x[None], x[None], x[None], need_weights=False)
    torch.testing.assert_close(alone, expected[0], atol=1e-6, rtol=1e-5)


def _reference(attention: MultiHeadAttention) -> torch.nn.MultiheadAttention:
    """Return PyTorch's own layer with the same weights."""
    reference = torch.nn.MultiheadAttention(DIM, 2, batch_first=True)
    maps = {"in_proj_weight": attention.in_proj.weight, "in_proj_bias": attention.in_proj.bias}
    reference.load_state_dict(
        maps | {"out_proj.weight": attention.out_proj.weight, "out_proj.bias": attention.out_proj.bias}
    )
    return reference


@pytest.mark.parametrize("local", ["GatedGCN", "GINE", "GCN", "GAT", "none"])
def test_gps_layer_is_that_of_a_graph_batch(batch: GraphBatch, plain: Batch, local: str) -> None:
    torch.manual_seed(0)
    layer = GPSLayer(DIM, make_local_layer(local, DIM, num_heads=2), TransformerAttention(DIM, 2)).eval()
    x, edge = rows(batch)
    expected = layer(x, edge, batch, DenseLayout.from_batch(batch))
    for found in (layer(x, edge, plain), layer(x, edge, plain, DenseLayout.from_batch(plain.batch))):
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])


def test_gated_gcn_is_that_of_a_graph_batch(batch: GraphBatch, plain: Batch) -> None:
    torch.manual_seed(0)
    layer, (x, edge) = GatedGCNLayer(DIM), rows(batch)
    layer.eval()
    for found, expected in zip(layer(x, plain.edge_index, edge), layer(x, batch.edge_index, edge), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", ENCODERS)
def test_positional_encoders_are_those_of_a_graph_batch(table: GraphTable, plain: Batch, make, training: bool) -> None:
    torch.manual_seed(0)
    encoder = make().train(training)
    own = encode(table, encoder.encodings).batch(range(len(table)))
    torch.manual_seed(1)
    expected = encoder(own)
    torch.manual_seed(1)
    assert torch.equal(encoder(add_encodings(plain, encoder)), expected)


@pytest.mark.parametrize("make", ENCODERS)
def test_a_single_graph_is_a_batch_of_one(table: GraphTable, make) -> None:
    torch.manual_seed(0)
    encoder, graph = make().eval(), graphs_of(table)[4]
    expected = encoder(add_encodings(Batch.from_data_list([graph]), encoder))
    assert torch.equal(encoder(add_encodings(graph, encoder)), expected)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
def test_fields_are_those_of_a_graph_batch(table: GraphTable, plain: Batch, encoding: Encoding) -> None:
    """Node numbers get the offset of their graph, and axes that an encoding adds get their pointers."""
    expected = encode(table, [encoding]).batch(range(len(table)))
    found = add_encodings(plain, encoding)
    added = set(found.keys()) - set(plain.keys())
    assert set(encoding.layout) <= added
    for name in added:
        assert torch.equal(found[name], expected[name]), name
    axes = {column.axis for column in encoding.layout.values()} - {"node", "edge", "graph"}
    assert {f"{axis}_ptr" for axis in axes} <= added


def test_the_batch_itself_stays_as_it_is(plain: Batch) -> None:
    before = set(plain.keys())
    found = add_encodings(plain, RWSE(3), LapPE(2))
    assert set(plain.keys()) == before
    assert isinstance(found, Batch)
    assert found.num_graphs == plain.num_graphs
    assert found.edge_index is plain.edge_index


def test_encoded_graphs_pass_through_a_loader_of_pyg(table: GraphTable, plain: Batch) -> None:
    """Graphs encoded one by one, as a data set stores them, form the batch that is encoded as a whole."""
    encoder = RWSEEncoder(5, DIM).eval()
    graphs = [add_encodings(graph, encoder) for graph in graphs_of(table)]
    (loaded,) = DataLoader(graphs, batch_size=len(graphs))
    torch.testing.assert_close(encoder(loaded), encoder(add_encodings(plain, encoder)))


@pytest.mark.parametrize("encoding", [*ENCODINGS, ExpanderEdges(2), RRWP(3), ShortestPaths(with_edges=True)], ids=repr)
@pytest.mark.filterwarnings("error:Weights only load failed")  # PyG would run code of the file
@pytest.mark.parametrize("way", ["loader", "again", "saved"])
def test_single_graphs_batch_as_a_table_does(table: GraphTable, encoding: Encoding, way: str, tmp_path: Path) -> None:
    """Batch by PyG's loader, again from the graphs of a first batch, and from a saved data set."""
    edgeless = graphs_of(table)[0].subgraph(torch.tensor([0]))
    plain = [*graphs_of(table), edgeless, edgeless]
    graphs = [Compose([encoding])(graph) for graph in plain]
    if way == "again":
        graphs = Batch.from_data_list(graphs).to_data_list()
    if way == "saved":
        InMemoryDataset.save(graphs, str(tmp_path / "graphs.pt"))
        saved = InMemoryDataset()
        saved.load(str(tmp_path / "graphs.pt"), type(graphs[0]))
        graphs = [*saved]
    (loaded,) = DataLoader(graphs, batch_size=len(graphs))
    whole = GraphTable.from_graphs([{"num_nodes": g.num_nodes, "edge_index": g.edge_index, "x": g.x} for g in plain])
    expected = encode(whole, [encoding]).batch(range(len(whole)))
    read = to_graph_batch(loaded)
    axes = {column.axis for column in encoding.layout.values()} - {"node", "edge", "graph"}
    for name in [*encoding.layout, *(f"{axis}_ptr" for axis in axes), "batch", "ptr", "edge_index"]:
        assert torch.equal(read[name], expected[name]), name
    assert (read.num_graphs, read.max_nodes) == (expected.num_graphs, expected.max_nodes)


def test_graphs_of_another_class_take_fields_that_pyg_batches_rightly(table: GraphTable) -> None:
    class Own(Data):
        pass

    graph = Own.from_dict(graphs_of(table)[0].to_dict())
    assert type(add_encodings(graph, RWSE(3))) is Own
    with pytest.raises(BadInput, match="expander_edges"):
        add_encodings(graph, ExpanderEdges(2))


@pytest.mark.parametrize("graphs", [None, "vector"])
def test_layers_take_no_batch_for_a_single_graph(graphs: str | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, DIM)
    for layer in (MultiHeadAttention(DIM, 2), TransformerAttention(DIM, 2)):
        given = None if graphs is None else torch.zeros(5, dtype=torch.int64)
        assert torch.equal(layer(x, given), layer(x, Data(num_nodes=5)))


CONVOLUTIONS = {
    "GATv2": lambda: nn.GATv2Conv(DIM, DIM // 2, heads=2, edge_dim=DIM),
    "GATv2 without edges": lambda: nn.GATv2Conv(DIM, DIM // 2, heads=2),
    "SAGE": lambda: nn.SAGEConv(DIM, DIM),
    "TransformerConv": lambda: nn.TransformerConv(DIM, DIM // 2, heads=2, edge_dim=DIM),
    "General without edges": lambda: nn.GeneralConv(DIM, DIM),
    "AntiSymmetric": lambda: nn.AntiSymmetricConv(DIM),
    "Cheb": lambda: nn.ChebConv(DIM, DIM, 3),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gps_takes_convolutions_of_pyg(batch: GraphBatch, name: str) -> None:
    """The local branch is the residual `x + conv(x)`."""
    torch.manual_seed(0)
    conv, (x, edge) = CONVOLUTIONS[name](), rows(batch)
    layer = GPSLayer(DIM, conv, None, norm="none").eval()
    reads = name in ("GATv2", "TransformerConv")
    branch = x + (conv(x, batch.edge_index, edge) if reads else conv(x, batch.edge_index))
    torch.testing.assert_close(layer(x, edge, batch)[0], branch + layer.feed_forward(branch))


def test_random_walks_are_those_of_pyg(table: GraphTable) -> None:
    graph = graphs_of(table)[4]
    edges = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
    edges = torch.unique(edges[:, edges[0] != edges[1]], dim=1)
    simple = Data(edge_index=edges, num_nodes=graph.num_nodes)
    found = add_encodings(simple, RWSE(4)).rwse
    torch.testing.assert_close(found, AddRandomWalkPE(4)(simple.clone()).random_walk_pe, atol=1e-6, rtol=1e-5)


def test_whole_modules_name_their_encodings(plain: Batch) -> None:
    encoders = torch.nn.ModuleList([LapPEEncoder(3, DIM), RWSEEncoder(4, DIM)])
    found = add_encodings(plain, encoders)
    assert {"lap_pe_vectors", "lap_pe_values", "rwse"} <= set(found.keys())
    with pytest.raises(BadInput, match="RWSE with different parameters"):
        add_encodings(plain, encoders, RWSE(5))


def test_missing_encodings_name_the_call_that_adds_them(plain: Batch) -> None:
    with pytest.raises(BadInput, match=r"graphbench\.nn\.add_encodings"):
        RWSEEncoder(4, DIM)(plain)


def test_nodes_and_edges_out_of_order_are_refused() -> None:
    with pytest.raises(BadInput, match="batch must give the graph of every node, ascending"):
        DenseLayout.from_batch(torch.tensor([0, 1, 0]))
    with pytest.raises(BadInput, match="batch must give the graph of every node"):
        graphs_of_nodes(torch.tensor([0.0, 1.0]))
    edges = torch.tensor([[2, 3, 0, 1], [3, 2, 1, 0]])
    mixed = Data(edge_index=edges, num_nodes=4, batch=torch.tensor([0, 0, 1, 1]))
    with pytest.raises(BadInput, match="edge_index must list edges graph after graph"):
        add_encodings(mixed, RWSE(3))
    mixed.edge_index = torch.tensor([[0, 2], [2, 0]])
    with pytest.raises(BadInput, match="without edges between two graphs"):
        add_encodings(mixed, RWSE(3))
    with pytest.raises(BadInput, match="needs graphs with an edge_index"):
        add_encodings(Data(num_nodes=3), RWSE(3))


def test_graphs_without_nodes_have_empty_rows() -> None:
    layout = DenseLayout.from_batch(torch.tensor([0, 0, 2]))
    assert layout.mask.tolist() == [[True, True], [False, False], [True, False]]


@pytest.mark.parametrize("make", ENCODERS)
def test_encoders_of_a_batch_of_graphs_without_nodes_have_no_rows(make) -> None:
    nothing = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=0)
    encoder = make().eval()
    assert encoder(add_encodings(Batch.from_data_list([nothing, nothing]), encoder)).shape == (0, encoder.dim)


@pytest.mark.parametrize("make", ENCODERS)
def test_graphs_without_nodes_change_nothing_for_encoders(table: GraphTable, make) -> None:
    torch.manual_seed(0)
    graphs, encoder = graphs_of(table), make().eval()
    nothing = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=0, x=graphs[0].x[:0])
    among = Batch.from_data_list([graphs[0], nothing, *graphs[1:], nothing])
    expected = encoder(add_encodings(Batch.from_data_list(graphs), encoder))
    torch.testing.assert_close(encoder(add_encodings(among, encoder)), expected)


@pytest.mark.parametrize("local", ["GatedGCN", "GINE", "GCN", "GAT"])
def test_transforms_of_torch_func_go_through_a_gps_layer(plain: Batch, batch: GraphBatch, local: str) -> None:
    """`grad` equals the backward pass, and `vmap` over the weights of an ensemble a loop over its members."""

    def make() -> GPSLayer:
        return GPSLayer(DIM, make_local_layer(local, DIM, num_heads=2), TransformerAttention(DIM, 2)).eval()

    torch.manual_seed(0)
    members, (x, edge) = [make() for _ in range(3)], rows(batch)

    def answer(weights, buffers) -> torch.Tensor:
        return torch.func.functional_call(members[0], (weights, buffers), (x, edge, plain))[0]

    weights, buffers = torch.func.stack_module_state(members)
    expected = torch.stack([member(x, edge, plain)[0] for member in members])
    torch.testing.assert_close(torch.func.vmap(answer)(weights, buffers), expected)
    first = {name: value.detach() for name, value in members[0].named_parameters()}
    found = torch.func.grad(lambda own: answer(own, dict(members[0].named_buffers())).square().sum())(first)
    expected[0].square().sum().backward()
    for name, parameter in members[0].named_parameters():
        torch.testing.assert_close(
            found[name], torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        )


def test_a_table_is_a_column_of_what_encodings_read() -> None:
    """An encoding of features reads those of the batch."""

    class FirstFeature(Encoding):
        layout = {"first": Column("node")}  # noqa: RUF012

        def parameters(self):
            return {}

        def compute(self, graphs):
            from graphbench.contracts import Encoded

            return Encoded({"first": graphs.columns["x"][:, 0] + graphs.columns["edge_attr"].sum()})

    edges = torch.tensor([[0, 1], [1, 0]])
    graph = Data(edge_index=edges, x=torch.tensor([[5], [7]]), edge_attr=torch.ones(2, 1, dtype=torch.int64))
    assert add_encodings(graph, FirstFeature()).first.tolist() == [7, 9]
