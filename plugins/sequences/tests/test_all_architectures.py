"""The contract for every model, and independence of sequences of any length to 1e-12."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from graphbench.errors import BadInput
from graphbench.testing import ArchitectureContract, tiny_spec
from graphbench_sequences import MEGA, S4D, Luna, SequenceSequoia, SequenceTransformer

SMALL = {"hidden_dim": 16, "num_layers": 2, "num_heads": 4, "ffn_dim": 24}
TRANSFORMER = SMALL | {"qkv_dim": 8, "rank": 3, "num_features": 6}
LUNA = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "ffn_dim": 14, "num_packed": 4}
MEGA_SMALL = {"hidden_dim": 12, "num_layers": 2, "key_dim": 4, "value_dim": 10, "ffn_dim": 14, "num_averages": 3}
SEQUOIA = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "head_dim": 5, "ffn_dim": 14, "num_children": 2}
STATES = {"hidden_dim": 12, "num_layers": 2, "num_states": 4}


class Exact(ArchitectureContract):
    """The contract, with every comparison of float64 to 1e-12."""

    tolerance = 1e-12


class TestSequenceTransformer(Exact):
    architecture = SequenceTransformer
    options = TRANSFORMER | {"positions": "learned"}
    most_launches = 206


class TestLuna(Exact):
    architecture = Luna
    options = LUNA
    most_launches = 261


class TestMEGA(Exact):
    architecture = MEGA
    options = MEGA_SMALL
    most_launches = 587


class TestS4D(Exact):
    architecture = S4D
    options = STATES
    most_launches = 265


class TestSequenceSequoia(Exact):
    architecture = SequenceSequoia
    options = SEQUOIA
    most_launches = 696


#: Every option that changes the result, with a function that builds a model with it.
VARIANTS = {
    "Transformer, mean": partial(SequenceTransformer, **TRANSFORMER, pooling="mean"),
    "Linformer": partial(SequenceTransformer, **TRANSFORMER, attention="linformer"),
    "Linformer, mean": partial(SequenceTransformer, **TRANSFORMER, attention="linformer", pooling="mean"),
    "Performer": partial(SequenceTransformer, **TRANSFORMER, attention="performer"),
    "Performer, no directions": partial(
        SequenceTransformer, **TRANSFORMER | {"num_features": None}, attention="performer"
    ),
    "Performer, softmax": partial(SequenceTransformer, **TRANSFORMER, attention="performer", kernel="softmax"),
    "BigBird": partial(SequenceTransformer, **TRANSFORMER, attention="bigbird", block_size=2, num_random=1),
    "BigBird, mean": partial(SequenceTransformer, **TRANSFORMER, attention="bigbird", block_size=3, pooling="mean"),
    "Reformer": partial(SequenceTransformer, **TRANSFORMER, attention="reformer", num_buckets=4, chunk_length=3),
    "Reformer, two rounds": partial(
        SequenceTransformer, **TRANSFORMER, attention="reformer", num_buckets=4, num_hashes=2, pooling="mean"
    ),
    "Luna": partial(Luna, **LUNA),
    "Luna, mean": partial(Luna, **LUNA, pooling="mean", positions="learned", init="xavier"),
    "MEGA": partial(MEGA, **MEGA_SMALL),
    "MEGA, laplace": partial(MEGA, **MEGA_SMALL, attention="laplace", norm="batch", norm_position="pre", truncation=6),
    "S4D": partial(S4D, **STATES),
    "S4D, norms last": partial(
        S4D, **STATES, init="inv", norm="layer", norm_position="post", interaction="concatenate"
    ),
    "S4D, from one side": partial(S4D, **STATES, bidirectional=False, norm="none"),
    "Sequoia": partial(SequenceSequoia, **SEQUOIA),
    "Sequoia, top down": partial(SequenceSequoia, **SEQUOIA, level_order="top_down", pooling="cls"),
    "Sequoia, complete": partial(SequenceSequoia, **SEQUOIA, level_order="complete", positions="sinusoidal"),
    "Sequoia, interleaved": partial(SequenceSequoia, **SEQUOIA | {"num_children": 3}, level_order="interleaved"),
}
#: Lengths of sequences of one batch: short and long ones, and single tokens.
LENGTHS = (5, 1, 24, 4, 1, 13)


@pytest.mark.parametrize("paired", [False, True], ids=["documents", "pairs"])
@pytest.mark.parametrize("name", VARIANTS)
def test_each_sequence_stands_for_itself(name, paired, made, spec, pairs, batch_of):
    """Alone and with others, with random weights."""
    spec = pairs if paired else spec
    model = made(lambda: VARIANTS[name](spec))
    together, batch = model(batch_of(spec, sizes=LENGTHS)), batch_of(spec, sizes=LENGTHS)
    for graph, node in enumerate(together.node.split(batch.ptr.diff().tolist())):
        alone = model(batch_of(spec, rows=[graph], sizes=LENGTHS))
        torch.testing.assert_close(alone.node, node, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(alone.graph[0], together.graph[graph], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_finite_and_reach_all_parameters(name, pairs, batch_of):
    """For pairs in which some documents are empty."""
    torch.manual_seed(0)
    model = VARIANTS[name](pairs).double().train()
    answer = model(batch_of(pairs, sizes=LENGTHS))
    (answer.node.square().sum() + answer.graph.square().sum()).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("name", VARIANTS)
def test_order_of_tokens_counts(name, spec, batch_of):
    """Places count, not the numbers of nodes: exchanging the places of two tokens changes the answer."""
    torch.manual_seed(0)
    model, batch = VARIANTS[name](spec).double().eval(), batch_of(spec, sizes=(9,))
    batch.x[:, 0] = torch.arange(9) % 5
    before = model(batch).graph
    batch.pos[[2, 6]] = batch.pos[[6, 2]]
    assert (model(batch).graph - before).abs().max() > 1e-6


@pytest.mark.parametrize(
    "architecture", dict.fromkeys(variant.func for variant in VARIANTS.values()), ids=lambda cls: cls.__name__
)
def test_what_is_no_sequence_is_refused(architecture):
    with pytest.raises(BadInput, match="is no benchmark of sequences: its nodes have 3 coordinates"):
        architecture(tiny_spec("graph-classification", "coordinates"))


@pytest.mark.parametrize("name", VARIANTS)
def test_bfloat16_is_close_to_float32(name, spec, batch_of):
    torch.manual_seed(0)
    model = VARIANTS[name](spec).eval()
    batch = batch_of(spec, sizes=LENGTHS).apply(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)
    exact = model(batch).graph
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(batch).graph.float()
    assert (rough - exact).norm() < 0.05 * exact.norm()
