from __future__ import annotations

import shutil

import pytest
import torch
import torch.nn.functional as F

from graphbench import BenchmarkSpec, Features
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, RWSEEncoder
from graphbench.testing import ArchitectureContract, tiny_batch, tiny_spec, tiny_table
from graphbench_sft import SFT, SampledAttention, SFTLayer

SMALL = {"hidden_dim": 16, "num_layers": 2, "num_heads": 4, "num_samples": 2}


class TestSFT(ArchitectureContract):
    architecture = SFT
    options = SMALL
    most_launches = 791


class TestSFTWithEnoughSamplesForAll(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"num_samples": 75, "norm_position": "pre"}
    most_launches = 789


class TestAbsoluteSFT(ArchitectureContract):
    architecture = SFT
    most_launches = 586

    def make_model(self, spec):
        return SFT(spec, **SMALL, relative="none", positional_encoders=[RWSEEncoder(4, 4)])


class TestSFTWithSoftmax(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"attention": "softmax_dot", "embedding_dropout": 0.1}
    most_launches = 687


class TestSFTWithoutLeak(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"attention": "maxout_relu", "sampler": "none"}
    most_launches = 525


class TestSFTWithReplacement(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"sampler": "with_replacement"}
    most_launches = 641


class TestStraightThroughSFT(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"sampler": "straight_through", "temperature": 0.5}
    most_launches = 761


class TestSFTByTopK(ArchitectureContract):
    architecture = SFT
    options = SMALL | {"evaluation": "topk"}
    most_launches = 791


class TestSFTOnNodes(ArchitectureContract):
    architecture = SFT
    options = SMALL
    spec = tiny_spec("node-classification")
    most_launches = 765


def make(task="graph-regression", **options):
    torch.manual_seed(0)
    return SFT(tiny_spec(task), **(SMALL | options))


def test_a_graph_representation_is_for_graph_tasks():
    for task in ("graph-regression", "graph-classification", "graph-multilabel"):
        model = make(task)
        assert model(tiny_batch(model)).graph.shape == (4, 16)
    for task in ("node-classification", "link-ranking"):
        model = make(task)
        assert model(tiny_batch(model)).graph is None


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_parameter_count_of_a_layer():
    spec = BenchmarkSpec("P", "graph-regression", Features((7,)), Features((4, 3), dense=2), "MAE", False, "L1")
    d, heads, r = 16, 4, 4 + 3 + 2 + 1
    (layer,) = SFT(spec, hidden_dim=d, num_heads=heads, num_layers=1).layers
    attention = 4 * (d**2 + d) + heads * (d + 1) + 2 * heads * (r + 1) + (d + 1)
    assert count(layer) == attention + (4 * d**2 + 4 * d) + (4 * d**2 + d) + 4 * d
    plain = SFT(spec, hidden_dim=d, num_heads=heads, num_layers=1, relative="none", attention="softmax_dot")
    assert count(layer) - count(plain.layers[0]) == heads * (d + 1) + 2 * heads * (r + 1)


@pytest.mark.parametrize("task", ["graph-regression", "node-classification"])
def test_dropped_tokens_reach_no_other_token(task):
    model = make(task, token_drop=0.5, score_dropout=0.0, ffn_dropout=0.0, relative="none").train()
    batch = tiny_batch(model)
    torch.manual_seed(3)
    kept = model._draw_visible(batch)
    assert 0 < kept.sum() < len(kept)
    outs = []
    for shift in (0.0, 5.0):
        changed = batch.clone()
        changed.x_dense = batch.x_dense + shift * ~kept.unsqueeze(-1)
        torch.manual_seed(3)
        for layer in model.layers:
            layer.attention.sampler.generator.manual_seed(1)
        outs.append(model(changed))
    torch.testing.assert_close(outs[0].node[kept], outs[1].node[kept])
    assert not torch.allclose(outs[0].node[~kept], outs[1].node[~kept])
    if task == "graph-regression":
        torch.testing.assert_close(outs[0].graph, outs[1].graph)


def test_no_graph_loses_all_its_tokens():
    model = make(token_drop=0.95)
    batch = tiny_table(model.spec, sizes=[1, 2, 30, 1]).batch(range(4))
    for seed in range(20):
        torch.manual_seed(seed)
        kept = model._draw_visible(batch)
        assert (torch.zeros(4).index_add(0, batch.batch, kept.float()) > 0).all()


def test_relative_information_is_all_that_tells_equal_nodes_apart():
    spec = tiny_spec(kind="none")
    torch.manual_seed(0)
    relative, absolute = (SFT(spec, **SMALL | {"num_samples": 9}, relative=r).eval() for r in ("edges", "none"))
    batch = tiny_table(spec, sizes=[9]).batch([0])
    assert absolute(batch).node.std(0).max() < 1e-5
    assert relative(batch).node.std(0).max() > 1e-3


def test_edges_matter_in_their_direction():
    model = make().eval()
    batch = tiny_batch(model)
    before = model(batch).node
    half = batch.clone()
    keep = batch.edge_index[0] < batch.edge_index[1]
    half.edge_index, half.edge_attr = batch.edge_index[:, keep], batch.edge_attr[keep]
    half.edge_dense = batch.edge_dense[keep]
    assert not torch.allclose(model(half).node, before)
    flipped = half.clone()
    flipped.edge_index = half.edge_index.flip(0)
    assert not torch.allclose(model(flipped).node, model(half).node)


def test_random_draws_of_a_training_step_can_be_repeated():
    model, batch = make().train(), tiny_batch(make())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    outs = []
    for _ in range(2):
        model.load_state_dict(state)
        torch.manual_seed(5)
        outs.append(model(batch).node)
    assert torch.equal(*outs)
    torch.manual_seed(5)
    assert not torch.equal(model(batch).node, outs[0])


def test_evaluation_mixes_as_training_does_unless_topk_is_asked_for():
    """With 30 nodes and 10 slots every slot has a partner, and a column shows the token with the larger share."""
    batch = tiny_table(tiny_spec(), sizes=[30]).batch([0])
    outs, columns = [], []
    for options in ({}, {"evaluation": "as_trained"}, {"evaluation": "topk"}):
        model = make(num_samples=10, **options).eval()
        with record(model) as traces:
            outs.append(model(batch).node)
        columns.append([set(trace.columns[0].tolist()) for trace in traces])
    assert torch.equal(outs[0], outs[1]), "as_trained is the default"
    assert not torch.allclose(outs[1], outs[2])
    assert columns[1] != columns[2]
    assert columns[1][0] != columns[1][1], "layers sample independently"


@pytest.mark.parametrize("task", ["graph-regression", "node-classification"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_default_types_train(task, dtype):
    """As with `trainer.precision: bf16-true` and `64-true`, weights and new tensors are not float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        for readout in ("softmax", "sampled_max"):
            model = make(task, token_drop=0.4, readout=readout, num_samples=2).to(dtype).train()
            out = model(tiny_batch(model))
            (out.node if out.graph is None else out.graph).square().sum().backward()
            assert out.node.dtype == dtype
            assert out.graph is None or out.graph.dtype == dtype
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            assert gradients
            assert all(gradient.isfinite().all() for gradient in gradients)
            assert model.eval()(tiny_batch(model)).node.isfinite().all()
    finally:
        torch.set_default_dtype(before)


def test_bad_options_of_sft_are_refused():
    for options, message in (
        ({"token_drop": 1.0}, "token_drop must be at least 0 and below 1"),
        ({"token_drop": None}, "token_drop must be at least 0 and below 1, but got None"),
        ({"num_samples": None}, "num_samples must be an integer of at least 1, but got None"),
        ({"num_samples": 2.5}, "num_samples must be an integer of at least 1, but got 2.5"),
        ({"readout_samples": 0}, "readout_samples must be an integer of at least 1"),
        ({"evaluation": "all"}, "evaluation must be one of as_trained, topk, but got 'all'"),
        ({"places_in_tokens": True}, "places_in_tokens needs nodes with a position, but tiny-graph-regression-both"),
        ({"norm_position": "middle"}, "norm_position must be one of pre, post"),
        ({"num_samples": 0}, "num_samples must be an integer of at least 1"),
        ({"readout": "sum"}, "readout must be one of softmax, sampled_max"),
        ({"relative": "all"}, "relative must be one of edges, distances, positions, none"),
    ):
        with pytest.raises(BadInput, match=message):
            make(**options)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_model_agrees_and_takes_other_batches():
    model = make().eval()
    compiled = torch.compile(model, dynamic=True)
    table = tiny_table(model.spec, sizes=[5, 9, 3, 7])
    for graphs in ([0, 1, 2, 3], [1, 3], [2, 0]):
        batch = table.batch(graphs)
        torch.testing.assert_close(compiled(batch).graph, model(batch).graph, rtol=1e-4, atol=1e-5)


DIM = 8


def make_layer(norm_position="post", **options):
    torch.manual_seed(0)
    return SFTLayer(DIM, SampledAttention(DIM, 2, 3), norm_position, **options).double()


def make_layout():
    return DenseLayout.from_rows(torch.tensor([0] * 5 + [1] * 4), torch.tensor([0, 5, 9]), 5)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_layer_follows_the_equations(norm_position):
    layer, layout = make_layer(norm_position, embedding_dropout=0.4, ffn_dropout=0.4).eval(), make_layout()
    x = torch.randn(9, DIM, dtype=torch.float64)

    def feed_forward(y):
        return layer.ffn.contract(F.gelu(layer.ffn.expand(y)))

    if norm_position == "pre":
        y = x + layer.attention(layer.attention_norm(x), layout)
        expected = y + feed_forward(layer.ffn_norm(y))
    else:
        y = layer.attention_norm(x + layer.attention(x, layout))
        expected = layer.ffn_norm(y + feed_forward(y))
    torch.testing.assert_close(layer(x, layout), expected)
    assert layer.ffn.expand.out_features == 4 * DIM


@pytest.mark.parametrize("option", ["embedding_dropout", "ffn_dropout"])
def test_each_dropout_of_a_layer_is_active_in_training_only(option):
    layer, layout = make_layer(**{option: 0.5}), make_layout()
    layer.attention.sampler.eval()
    x = torch.randn(9, DIM, dtype=torch.float64)
    assert not torch.equal(layer(x, layout), layer(x, layout))
    layer.eval()
    assert torch.equal(layer(x, layout), layer(x, layout))


def test_unknown_norm_positions_are_refused():
    with pytest.raises(BadInput, match="norm_position must be one of pre, post, but got 'both'"):
        make_layer("both")
