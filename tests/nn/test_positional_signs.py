"""How encoders of eigenvectors handle signs and padding."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

from graphbench import GraphTable
from graphbench.encodings import LapPE
from graphbench.errors import BadInput
from graphbench.nn.positional import LapPEEncoder, SignNetEncoder

K = 6


@pytest.fixture
def batch():
    """Four graphs of 9, 4, 4 and 12 nodes: the second and third have fewer nodes than K and equal edges."""
    graphs = [
        nx.gnp_random_graph(9, 0.4, seed=4),
        nx.path_graph(4),
        nx.path_graph(4),
        nx.gnp_random_graph(12, 0.4, seed=1),
    ]
    edges = [torch.tensor(list(graph.to_directed().edges())).t() for graph in graphs]
    table = GraphTable.from_graphs(
        {"num_nodes": len(graph), "edge_index": edge} for graph, edge in zip(graphs, edges, strict=True)
    )
    encoding = LapPE(K)
    return table.with_columns(encoding.compute(table).columns, encoding.layout).batch(range(4))


def with_vectors(batch, vectors: torch.Tensor):
    """Return the same batch with other eigenvectors."""
    changed = batch.clone()
    changed.lap_pe_vectors = vectors
    return changed


def random_signs(batch) -> torch.Tensor:
    """Return one sign per graph and eigenvector, repeated for every node: `[num_nodes, K]`."""
    signs = torch.randint(0, 2, (batch.num_graphs, K), generator=torch.Generator().manual_seed(7)) * 2.0 - 1.0
    return signs[batch.batch]


def drawn_signs(encoder: LapPEEncoder, batch) -> torch.Tensor:
    """Return the signs of each node's eigenvectors in a training pass, read from the input of the first map."""
    seen = []
    handle = encoder.encode.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    encoder.train()(batch)
    handle.remove()
    return torch.sign(seen[0] * batch.lap_pe_vectors)


def test_flip_graph_draws_a_sign_per_graph_and_eigenvector(batch):
    torch.manual_seed(0)
    encoder = LapPEEncoder(K, 8, model="linear")
    draws = torch.stack([drawn_signs(encoder, batch) for _ in range(200)])
    for graph in range(4):
        own = draws[:, batch.batch == graph]
        assert not ((own == 1).any(1) & (own == -1).any(1)).any()
    second, third = draws[:, 9, :4], draws[:, 13, :4]
    assert 0.3 < (second == third).float().mean() < 0.7
    assert (draws[:, :4].sum(0).abs() < 60).all()


def test_flip_batch_draws_a_sign_per_column(batch):
    torch.manual_seed(0)
    encoder = LapPEEncoder(K, 8, model="linear", sign="flip_batch")
    for _ in range(20):
        signs = drawn_signs(encoder, batch)
        assert not ((signs == 1).any(0) & (signs == -1).any(0)).any()


@pytest.mark.parametrize("sign", ["flip_graph", "flip_batch"])
def test_signs_come_from_the_global_generator_in_training_only(batch, sign):
    encoder = LapPEEncoder(K, 8, sign=sign)
    torch.manual_seed(3)
    first = encoder.train()(batch)
    assert not torch.equal(encoder(batch), first)
    torch.manual_seed(3)
    assert torch.equal(encoder(batch), first)
    before = torch.get_rng_state()
    encoder.eval()(batch)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("model", ["deepset", "linear"])
def test_absolute_features_do_not_depend_on_signs(batch, model):
    encoder = LapPEEncoder(K, 8, model=model, sign="absolute")
    flipped = with_vectors(batch, batch.lap_pe_vectors * random_signs(batch))
    assert torch.equal(encoder(flipped), encoder(batch))


def test_deepset_sums_an_mlp_of_the_valid_pairs(batch):
    encoder = LapPEEncoder(K, 8).eval()
    first, _, second, _ = encoder.encode
    graph_sizes = batch.ptr.diff()
    for node in (0, 10, 20):
        graph = int(batch.batch[node])
        expected = torch.zeros(8)
        for k in range(min(K, int(graph_sizes[graph]))):
            token = torch.stack([batch.lap_pe_vectors[node, k], batch.lap_pe_values[graph, k]])
            expected += torch.relu(second(torch.relu(first(token))))
        torch.testing.assert_close(encoder(batch)[node], expected)


@pytest.mark.parametrize("make", [lambda: LapPEEncoder(K, 8), lambda: SignNetEncoder(K, 8, hidden_dim=8, num_layers=2)])
def test_filling_never_reaches_the_features(batch, make):
    encoder = make().eval()
    filled = batch.lap_pe_vectors.clone()
    filled[9:17, 4:] = 100.0
    assert torch.equal(encoder(with_vectors(batch, filled)), encoder(batch))


@pytest.mark.parametrize("model", ["deepset", "mlp"])
@pytest.mark.parametrize("training", [False, True])
def test_signnet_does_not_depend_on_signs(batch, model, training):
    torch.manual_seed(0)
    encoder = SignNetEncoder(K, 8, hidden_dim=16, num_layers=3, model=model).train(training)
    flipped = with_vectors(batch, batch.lap_pe_vectors * random_signs(batch))
    features = encoder(batch)
    torch.testing.assert_close(encoder(flipped), features, rtol=1e-4, atol=1e-5)
    shuffled = with_vectors(batch, batch.lap_pe_vectors.roll(1, 0))
    assert (encoder(shuffled) - features).abs().max() > 1e-3


@pytest.mark.parametrize("model", ["deepset", "mlp"])
def test_signnet_equals_a_dense_loop_over_eigenvectors(batch, model):
    torch.manual_seed(0)
    encoder = SignNetEncoder(K, 8, hidden_dim=16, num_layers=3, model=model)
    encoder.train()(batch)
    encoder.eval()
    expected = []
    for graph in range(batch.num_graphs):
        nodes = slice(int(batch.ptr[graph]), int(batch.ptr[graph + 1]))
        size = nodes.stop - nodes.start
        adjacency = torch.zeros(batch.num_nodes, batch.num_nodes)
        adjacency[batch.edge_index[1], batch.edge_index[0]] = 1
        own = adjacency[nodes, nodes]
        slots = torch.zeros(size, K, 16)
        for k in range(min(K, size)):
            for sign in (1, -1):
                hidden = sign * batch.lap_pe_vectors[nodes, k : k + 1]
                for layer, conv in enumerate(encoder.phi):
                    hidden = hidden if layer == 0 else encoder.norms[layer - 1](hidden)
                    hidden = conv.nn(hidden + own @ hidden)
                slots[:, k] += hidden
        expected.append(encoder.rho(slots.sum(1) if model == "deepset" else slots.flatten(1)))
    torch.testing.assert_close(encoder(batch), torch.cat(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"model": "transformer"},
        {"sign": "random"},
        {"num_layers": 0},
        {"num_layers": 2, "model": "linear"},
        {"normalization": "sym"},
        {"num_eigenvectors": 0},
    ],
    ids=repr,
)
def test_lap_pe_encoder_refuses_bad_options(options):
    with pytest.raises(BadInput, match=next(iter(options))):
        LapPEEncoder(**options)


@pytest.mark.parametrize("options", [{"model": "sum"}, {"num_layers": 0}, {"num_post_layers": 0}], ids=repr)
def test_signnet_refuses_bad_options(options):
    with pytest.raises(BadInput, match=next(iter(options))):
        SignNetEncoder(**options)
