"""Pooling of documents to one vector, and of pairs to one answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench.testing import tiny_spec
from graphbench_sequences import MEGA, S4D, Luna, SequenceSequoia, SequenceTransformer
from graphbench_sequences.model import PairReadout, SequenceModel, longest_document
from graphbench_sequences.tokens import Documents


class Double(nn.Module):
    """A layer that doubles tokens."""

    def forward(self, x, layout):
        return 2 * x


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_documents_are_read_out(pooling, made, spec, batch_of):
    model = made(lambda: SequenceModel(spec, 8, [Double()], nn.LayerNorm(8), pooling=pooling, positions="learned"))
    batch, norm = batch_of(spec), model.final_norm
    answer = model(batch)
    token, table = model.token_encoder.encoder.features.table, model.positions.table
    nodes, shift = torch.empty(batch.num_nodes, 8, dtype=torch.float64), int(pooling == "cls")
    for graph in range(batch.num_graphs):
        rows = (batch.batch == graph).nonzero()[:, 0]
        for place, row in enumerate(rows[batch.pos[rows, 0].argsort()].tolist()):
            nodes[row] = norm(2 * (token[batch.x[row, 0]] + table[place + shift]))
        expected = norm(2 * (model.cls[0] + table[0])) if pooling == "cls" else nodes[rows].mean(0)
        torch.testing.assert_close(answer.graph[graph], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(answer.node, nodes, rtol=1e-12, atol=1e-12)


def exact_gelu(x):
    return x * (1 + torch.erf(x / 2**0.5)) / 2


@pytest.mark.parametrize(("activation", "act"), [("relu", lambda x: x.clamp(min=0)), ("gelu", exact_gelu)])
@pytest.mark.parametrize("interaction", ["concatenate", "NLI"])
def test_pairs_meet_in_one_vector(interaction, activation, act):
    torch.manual_seed(0)
    readout, documents = PairReadout(3, interaction, activation), torch.randn(4, 3)
    for graph in range(2):
        a, b = documents[2 * graph], documents[2 * graph + 1]
        parts = [a, b] if interaction == "concatenate" else [a, b, a * b, a - b]
        expected = act(readout.linear.weight @ torch.cat(parts) + readout.linear.bias)
        torch.testing.assert_close(readout(documents)[graph], expected)


@pytest.mark.parametrize(
    ("architecture", "relu"),
    [(SequenceTransformer, True), (SequenceSequoia, True), (Luna, False), (MEGA, False), (S4D, False)],
)
def test_pairs_meet_as_in_the_code_of_each_model(pairs, batch_of, architecture, relu):
    """ReLU in the arena's and Sequoia's models, whose vectors have no negative number; GELU in Luna, MEGA and S4."""
    torch.manual_seed(0)
    model = architecture(pairs, hidden_dim=16, num_layers=1).double().eval()
    graph = model(batch_of(pairs)).graph
    assert graph.min() >= -0.17, "GELU is never below"
    assert (graph.min() == 0) == relu


def test_documents_of_a_pair_do_not_see_each_other(made, pairs, batch_of):
    """This holds for tokens; the vectors of documents are joined at the end."""
    model = made(lambda: SequenceModel(pairs, 8, [Sum()], None, pooling="mean"))
    batch = batch_of(pairs, sizes=(9,))
    before, first = model(batch), batch.x[:, 1] == 0
    batch.x[(~first).nonzero()[0], 0] = (batch.x[(~first).nonzero()[0], 0] + 1) % 9
    after = model(batch)
    assert torch.equal(after.node[first], before.node[first])
    assert not torch.equal(after.node[~first], before.node[~first])
    assert not torch.equal(after.graph, before.graph)


class Sum(nn.Module):
    """A layer that gives every token the sum of its document."""

    def forward(self, x, layout):
        return layout.to_ragged(layout.to_dense(x).sum(1, keepdim=True).expand(-1, layout.max_nodes, -1))


def test_node_tasks_have_no_vectors_of_documents(made, batch_of):
    spec = tiny_spec("node-classification", "sequence")
    assert made(lambda: SequenceModel(spec, 8, [Double()], None))(batch_of(spec)).graph is None


def test_longer_sequences_than_there_is_room_for_are_refused(spec, batch_of):
    model = SequenceModel(spec, 8, [Double()], None, max_length=8).double()
    with pytest.raises(BadInput, match=r"max_length must be at least .* but got 8 and a sequence of 9 tokens"):
        model(batch_of(spec))
    assert model(batch_of(spec, sizes=(8,))).node.shape == (8, 8)


def test_length_is_that_of_the_benchmark_unless_it_is_given(spec):
    assert SequenceModel(spec, 8, [], None, positions="learned").positions.table.shape[0] == spec.max_nodes + 1
    with pytest.raises(BadInput, match=r"max_length must be given: .* does not specify the length"):
        longest_document(replace(spec, max_nodes=None), None)


def test_an_unknown_activation_is_refused():
    with pytest.raises(BadInput, match="activation must be one of relu, gelu, but got 'silu'"):
        PairReadout(3, activation="silu")


@pytest.mark.parametrize("option", ["pooling", "interaction", "positions", "tokens"])
def test_unknown_names_are_refused(spec, option):
    with pytest.raises(BadInput, match=f"{option} must be one of"):
        SequenceModel(spec, 8, [], None, **{option: "other"})


def test_the_longest_document_decides_and_not_the_pair(pairs, batch_of):
    batch = batch_of(pairs)
    longest = Documents.of(batch, 1).max_length
    assert longest < batch.max_nodes
    SequenceModel(pairs, 8, [], None, max_length=longest).double()(batch)
