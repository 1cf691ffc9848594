"""SFT on point clouds and sequences: contracts, rotations, two documents per graph."""

from dataclasses import replace

import pytest
import torch

from graphbench import Features, GraphTable
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.testing import ArchitectureContract, tiny_spec, tiny_table
from graphbench_sft import SFT
from graphbench_sft.inputs import NORMALS, longest_document, split_documents

SMALL = {"hidden_dim": 16, "num_layers": 2, "num_heads": 4, "num_samples": 2}
CLOUD = replace(
    tiny_spec("graph-classification", "coordinates"), node=Features(dense=3, names=NORMALS), edge=Features()
)
PARTS = replace(
    tiny_spec("node-classification", "coordinates"),
    node=Features((4,), dense=3, names=("category", *NORMALS)),
    edge=Features(),
)
SEQUENCE = replace(
    tiny_spec("graph-classification", "categorical"), node=Features((9,), names=("token",)), coordinates=1
)
TOWERS = replace(SEQUENCE, node=Features((9, 2), names=("token", "tower")), edge=Features())


class TestSFTOnDistances(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"relative": "distances", "readout": "sampled_max", "readout_samples": 4}
    most_launches = 783


class TestSFTOnRotatedParts(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"relative": "distances", "num_samples": 30}  # of equal tokens a smaller sample takes the first
    spec = PARTS
    most_launches = 689


class TestAbsoluteSFTOnPoints(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"relative": "none", "readout": "sampled_max"}
    spec = CLOUD
    most_launches = 655


class TestSFTOnPositions(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"relative": "positions", "norm_position": "pre"}
    spec = SEQUENCE
    most_launches = 724


class TestAbsoluteSFTOnSequences(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"relative": "none"}
    spec = SEQUENCE
    most_launches = 584


class TestSFTOnTowers(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"relative": "positions", "num_samples": 30}
    spec = TOWERS
    most_launches = 744


def make(spec, **options):
    torch.manual_seed(0)
    return SFT(spec, **(SMALL | options)).eval()


def random_rotation(generator):
    q, r = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    q = q * r.diagonal().sign()
    return q * q.det().sign()


@pytest.mark.parametrize("task", ["graph-classification", "node-classification"])
def test_no_rotation_changes_the_relative_variant(task):
    spec = CLOUD if task == "graph-classification" else PARTS
    options = {"hidden_dim": 32, "num_samples": 64, "readout": "sampled_max", "readout_samples": 128}
    model, absolute = make(spec, relative="distances", **options), make(spec, relative="none", **options)
    batch = tiny_table(spec, sizes=[256, 200]).batch([0, 1])
    before = model(batch)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        rotation = random_rotation(generator).float()
        assert torch.linalg.det(rotation) == pytest.approx(1.0, abs=1e-5)
        turned = batch.clone()
        turned.pos, turned.x_dense = batch.pos @ rotation, batch.x_dense @ rotation
        after = model(turned)
        torch.testing.assert_close(after.node, before.node, rtol=0, atol=1e-4)
        if task == "graph-classification":
            torch.testing.assert_close(after.graph, before.graph, rtol=0, atol=1e-4)
        assert (absolute(turned).node - absolute(batch).node).abs().max() > 0.01


def test_places_matter_to_the_relative_variant():
    model, batch = make(CLOUD, relative="distances", num_samples=9), tiny_table(CLOUD, sizes=[9]).batch([0])
    stretched = batch.clone()
    stretched.pos = 2 * batch.pos
    assert not torch.allclose(model(stretched).node, model(batch).node)


def test_the_order_of_a_sequence_matters():
    for relative in ("positions", "none"):
        model = make(SEQUENCE, relative=relative, num_samples=9)
        batch = tiny_table(SEQUENCE, sizes=[9]).batch([0])
        batch.pos = torch.arange(9.0).unsqueeze(1)
        turned = batch.clone()
        turned.pos = batch.pos.flip(0)
        assert not torch.allclose(model(turned).graph, model(batch).graph)


def test_places_in_tokens_join_what_the_scores_know():
    """Figure 6: coordinates in the tokens and pair terms together."""
    options = {"num_samples": 9}
    batch = tiny_table(CLOUD, sizes=[9]).batch([0])
    moved, turned = batch.clone(), batch.clone()
    moved.pos = batch.pos + 1.0  # no distance changes
    turned.pos, turned.x_dense = batch.pos.flip(1), batch.x_dense.flip(1)
    invariant = make(CLOUD, relative="distances", **options)
    both = make(CLOUD, relative="distances", places_in_tokens=True, **options)
    for other in (moved, turned):
        torch.testing.assert_close(invariant(other).node, invariant(batch).node, rtol=0, atol=1e-4)
        assert (both(other).node - both(batch).node).abs().max() > 0.01
    both.node_encoder.encoder.features.linear.weight.data.zero_()  # the tokens know nothing: the scores still do
    stretched = batch.clone()
    stretched.pos = 2 * batch.pos
    assert not torch.allclose(both(stretched).node, both(batch).node)
    torch.testing.assert_close(both(moved).node, both(batch).node, rtol=0, atol=1e-4)


def test_places_in_tokens_of_sequences_are_sinusoids_beside_relative_terms():
    batch = tiny_table(SEQUENCE, sizes=[9]).batch([0])
    relative, both = (make(SEQUENCE, relative="positions", places_in_tokens=p, num_samples=9) for p in (False, True))
    assert both.node_encoder.encoder.features.linear.in_features - 16 == 9
    assert relative.node_encoder.encoder.features.linear.in_features == 9
    later = batch.clone()
    later.pos = batch.pos + 3.0
    assert not torch.allclose(both.node_encoder(later), both.node_encoder(batch))
    assert torch.equal(relative.node_encoder(later), relative.node_encoder(batch))


@pytest.mark.parametrize("evaluation", ["as_trained", "topk"])
def test_what_a_sequence_samples_first_is_not_its_beginning(evaluation):
    """In the first layer importance depends only on the kind of a token; with one kind all importances are equal."""
    size, k = 400, 40
    spec = replace(SEQUENCE, node=Features((1,), names=("token",)))
    batch = tiny_table(spec, sizes=[size]).batch([0])
    batch.pos = torch.arange(float(size)).unsqueeze(1)
    model = make(spec, relative="positions", num_samples=k, evaluation=evaluation)
    with record(model) as traces:
        model(batch)
    columns = next(iter(traces)).columns[0]
    assert len(columns.unique()) == k
    quarters = torch.bincount(columns // (size // 4), minlength=4)
    assert (quarters >= 3).all(), "10 are expected in each"


def test_numbering_a_sequence_anew_samples_the_same_positions():
    size, k = 60, 10
    batch = tiny_table(SEQUENCE, sizes=[size]).batch([0])
    batch.pos = torch.arange(float(size)).unsqueeze(1)
    batch.edge_index = batch.edge_index[:, :0]
    order = torch.randperm(size)
    other = batch.clone()
    other.pos, other.x = batch.pos[order], batch.x[order]
    for evaluation in ("as_trained", "topk"):
        model = make(SEQUENCE, relative="positions", num_samples=k, evaluation=evaluation)
        torch.testing.assert_close(model(other).node, model(batch).node[order], rtol=1e-4, atol=1e-5)


def make_documents():
    """Return two graphs whose documents have 3 and 2, and 1 and 4 tokens."""
    graphs = []
    for first, second in ((3, 2), (1, 4)):
        size = first + second
        x = torch.stack([torch.arange(size) + size, torch.arange(size) // first > 0], 1).clamp(max=8).long()
        x[:, 1] = torch.arange(size) >= first
        graphs.append({"num_nodes": size, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "x": x})
        graphs[-1] |= {"pos": torch.randn(size, 1), "y": torch.zeros(1, 1, dtype=torch.int64)}
    return GraphTable.from_graphs(graphs)


def test_documents_are_graphs_of_their_own():
    batch = make_documents().batch([0, 1])
    batch.longest_document = longest_document(batch, TOWERS)
    documents, order = split_documents(batch, TOWERS)
    assert documents.ptr.tolist() == [0, 3, 5, 6, 10]
    assert (documents.num_graphs, documents.max_nodes) == (4, 4)
    assert order.tolist() == list(range(10))
    assert batch.num_graphs == 2


def test_a_document_is_read_alone_and_its_tower_is_no_feature():
    model, batch = make(TOWERS, relative="positions"), make_documents().batch([0, 1])
    before, other = model(batch), batch.clone()
    other.x = batch.x.clone()
    other.x[3:5, 0] = 0  # the second document of the first graph
    after = model(other)
    assert torch.equal(after.node[:3], before.node[:3])
    assert not torch.allclose(after.graph[0], before.graph[0])
    torch.testing.assert_close(after.graph[1], before.graph[1])
    swapped = batch.clone()
    swapped.x = batch.x.clone()
    swapped.x[:, 1] = 1 - batch.x[:, 1]
    torch.testing.assert_close(model(swapped).node, before.node)
    assert not torch.allclose(model(swapped).graph, before.graph)


def test_traces_show_two_documents_as_one_graph():
    model, batch = make(TOWERS, relative="positions"), make_documents().batch([0, 1])
    with record(model) as traces:
        model(batch)
    trace = next(iter(traces))
    assert trace.num_nodes.tolist() == [5, 5]
    first, second = trace.attention
    assert first.shape == (4, 5, 4)
    assert second.shape == (4, 5, 3)
    assert (first[:, :3, 2:] == 0).all()
    assert (first[:, 3:, :2] == 0).all()
    assert sorted(trace.columns[0][2:].tolist()) == [3, 4]
    assert trace.columns[1][0] == 0


def test_towers_refuse_edges():
    with pytest.raises(BadInput, match="two documents per graph"):
        make(TOWERS)
