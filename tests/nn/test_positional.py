from __future__ import annotations

import networkx as nx
import pytest
import torch
from torch import nn

from graphbench import Architecture, GraphTable
from graphbench.encodings import LapPE
from graphbench.errors import BadInput
from graphbench.nn.positional import DegreeEncoder, ESLapPEEncoder, LapPEEncoder, RWSEEncoder, SignNetEncoder
from graphbench.testing import tiny_spec, tiny_table

ENCODERS = {
    "lap_pe": lambda: LapPEEncoder(6, 8),
    "lap_pe_skip": lambda: LapPEEncoder(6, 8, num_layers=3, skip_trivial=True),
    "lap_pe_linear": lambda: LapPEEncoder(6, 8, model="linear", normalization="random_walk"),
    "lap_pe_absolute": lambda: LapPEEncoder(6, 8, sign="absolute"),
    "es_lap_pe": lambda: ESLapPEEncoder(6, 8),
    "rwse": lambda: RWSEEncoder(7, 8),
    "signnet": lambda: SignNetEncoder(6, 8, hidden_dim=16, num_layers=3),
    "signnet_mlp": lambda: SignNetEncoder(6, 8, hidden_dim=16, num_layers=2, model="mlp"),
    "degree": lambda: DegreeEncoder(9, 8),
}


@pytest.fixture(params=ENCODERS)
def encoder(request) -> nn.Module:
    torch.manual_seed(0)
    return ENCODERS[request.param]()


def encode(table: GraphTable, encoder: nn.Module) -> GraphTable:
    """Return the table with all encodings that the encoder requires."""
    for encoding in encoder.encodings:
        encoded = encoding.compute(table)
        table = table.with_columns(encoded.columns, encoding.layout, encoded.ptr)
    return table


def warm(encoder: nn.Module, table: GraphTable) -> nn.Module:
    """Return the encoder in evaluation mode after training steps, so that running statistics are not 0 and 1."""
    encoder.train()
    for _ in range(3):
        encoder(table.batch(range(len(table))))
    return encoder.eval()


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def undirected(graph: nx.Graph, order: torch.Tensor | None = None) -> dict:
    """Return both directions of every edge, with node i renamed to order[i]."""
    edges = torch.tensor(list(graph.to_directed().edges())).t()
    return {"num_nodes": len(graph), "edge_index": edges if order is None else order[edges]}


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        (LapPEEncoder(10, 16), 624),
        (LapPEEncoder(8, 8), 184),
        (LapPEEncoder(10, 16, num_layers=1), 2 * 16 + 16),
        (LapPEEncoder(10, 16, num_layers=3), 624 + 32 * 32 + 32),
        (LapPEEncoder(10, 16, model="linear"), 176),
        (LapPEEncoder(6, 6, model="raw"), 0),
        (RWSEEncoder(20, 28), 40 + 21 * 28),
        (ESLapPEEncoder(10, 48), 10 * 48 + 48),
        (SignNetEncoder(), 74_844),
        (SignNetEncoder(model="mlp"), 74_844 + 36 * 64 * 64),
        (DegreeEncoder(511, 80), 2 * 512 * 80),
    ],
)
def test_parameters_are_those_of_the_sheets(encoder, expected):
    assert count(encoder) == expected


def test_signnet_node_encoder_of_zinc_has_the_published_count():
    assert count(SignNetEncoder()) + count(nn.Embedding(28, 64 - 28)) == 75_852


def test_output_has_one_row_a_node_and_gradients_reach_every_parameter(encoder, table):
    batch = encode(table, encoder).batch(range(len(table)))
    features = encoder(batch)
    assert features.shape == (batch.num_nodes, encoder.dim)
    features.square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_a_graph_gets_the_same_features_alone_and_in_a_batch(encoder, table):
    encoded = encode(table, encoder)
    warm(encoder, encoded)
    together = encoder(encoded.batch(range(len(table)))).split(table.num_nodes.tolist())
    for graph, expected in enumerate(together):
        torch.testing.assert_close(encoder(encoded.batch([graph])), expected)


def test_features_move_with_the_nodes(encoder):
    graph = nx.gnp_random_graph(11, 0.4, seed=1)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(2))
    encoded = encode(GraphTable.from_graphs([undirected(graph), undirected(graph, order)]), encoder)
    features, moved = warm(encoder, encoded)(encoded.batch([0, 1])).split(11)
    torch.testing.assert_close(moved[order], features, rtol=1e-4, atol=1e-5)
    assert (features - moved).abs().max() > 1e-3


def test_evaluation_is_deterministic(encoder, table):
    batch = encode(table, encoder).batch(range(len(table)))
    encoder.eval()
    assert torch.equal(encoder(batch), encoder(batch))


def test_bf16_autocast_stays_near_full_precision(encoder, table):
    encoded = encode(table, encoder)
    warm(encoder, encoded)
    batch = encoded.batch(range(len(table)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = encoder(batch)
    full = encoder(batch)
    assert (features.float() - full).abs().max() < 0.05 * full.abs().max()


def test_double_precision_batches_need_only_double_modules(encoder, table):
    batch = encode(table, encoder).batch(range(len(table)))
    encoder.eval()
    single = encoder(batch)
    for name in ("lap_pe_vectors", "lap_pe_values", "rwse"):
        if name in batch:
            batch[name] = batch[name].double()
    torch.testing.assert_close(encoder.double()(batch), single.double(), rtol=1e-3, atol=1e-5)


def test_a_batch_without_the_encoding_is_an_error_that_names_it(encoder, table):
    with pytest.raises(BadInput, match=encoder.encodings[0].name):
        encoder(table.batch([0]))


def test_an_architecture_requires_the_encodings_of_its_encoders(spec, encoder):
    model = Architecture(spec, 8)
    model.encoder = encoder
    assert model.required_encodings() == encoder.encodings


def test_rwse_encoder_normalises_steps_over_all_nodes(table):
    encoder = RWSEEncoder(5, 3)
    batch = encode(table, encoder).batch(range(len(table)))
    rwse = batch.rwse.double()
    normal = (rwse - rwse.mean(0)) / (rwse.var(0, unbiased=False) + 1e-5).sqrt()
    expected = normal @ encoder.encode.weight.double().T + encoder.encode.bias.double()
    torch.testing.assert_close(encoder(batch).double(), expected, rtol=1e-4, atol=1e-5)


def test_degree_encoder_adds_the_rows_of_both_degrees():
    star = {"num_nodes": 4, "edge_index": torch.tensor([[1, 2, 3], [0, 0, 0]])}
    encoder = DegreeEncoder(2, 5)
    batch = encode(GraphTable.from_graphs([star]), encoder).batch([0])
    into, out = encoder.incoming.weight, encoder.outgoing.weight
    torch.testing.assert_close(encoder(batch), torch.stack([into[2] + out[0], *[into[0] + out[1]] * 3]))


@pytest.mark.parametrize("normalization", ["symmetric", "none"])
def test_es_lap_pe_maps_the_stored_eigenvectors_in_training_too(table, normalization):
    encoder = ESLapPEEncoder(6, 8, normalization)
    assert encoder.encodings == (LapPE(6, normalization),)
    batch = encode(table, encoder).batch(range(len(table)))
    torch.testing.assert_close(encoder.train()(batch), encoder.encode(batch.lap_pe_vectors))


def test_lap_pe_encoder_and_its_neighbour_share_one_encoding():
    assert LapPEEncoder(10).encodings == SignNetEncoder(10).encodings


def test_lap_pe_features_are_finite_for_a_single_node():
    encoder = LapPEEncoder(4, 8)
    single = GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.zeros(2, 0, dtype=torch.int64)}])
    batch = encode(single, encoder).batch([0])
    torch.testing.assert_close(encoder.eval()(batch)[0], encoder.encode(torch.tensor([1.0, 0.0])))


def test_raw_positions_are_the_stored_eigenvectors():
    encoder = LapPEEncoder(4, 4, model="raw", normalization="symmetric", skip_trivial=True).eval()
    batch = encode(tiny_table(tiny_spec()), encoder).batch([0, 1, 2])
    assert torch.equal(encoder(batch), batch.lap_pe_vectors)
    drawn = encoder.train()(batch)
    assert torch.equal(drawn.abs(), batch.lap_pe_vectors.abs())
    with pytest.raises(BadInput, match="dim must be num_eigenvectors = 4, but it is 5"):
        LapPEEncoder(4, 5, model="raw")
