import inspect
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, MultiHeadAttention, attend, attention, attention_weights, ops
from graphbench.registry import entry_points
from graphbench.registry.configurations import configurations
from graphbench.testing.pretend import on_pretended_device

DIM, HEADS = 12, 3


def pair(dropout=0.0, **options):
    """Return our attention and PyTorch's with the same weights."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(DIM, HEADS, dropout).to(**options)
    reference = nn.MultiheadAttention(DIM, HEADS, dropout, batch_first=True, **options)
    nn.init.normal_(reference.in_proj_bias)
    nn.init.normal_(reference.out_proj.bias)
    with torch.no_grad():
        ours.in_proj.weight.copy_(reference.in_proj_weight)
        ours.in_proj.bias.copy_(reference.in_proj_bias)
    ours.out_proj.load_state_dict(reference.out_proj.state_dict())
    return ours, reference


def tokens(batch, dtype=torch.float32):
    return torch.randn(batch.num_nodes, DIM, generator=torch.Generator().manual_seed(2)).to(dtype)


def reference_output(reference, x, layout, bias=None):
    dense = layout.to_dense(x)
    padding = torch.zeros_like(dense[..., 0]).masked_fill(~layout.mask, -torch.inf)
    if bias is not None:
        bias = bias.flatten(0, 1)
    out, _ = reference(dense, dense, dense, key_padding_mask=padding, attn_mask=bias, need_weights=False)
    return layout.to_ragged(out)


def random_bias(layout, heads=HEADS):
    shape = (layout.num_graphs, heads, layout.max_nodes, layout.max_nodes)
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def listen(module):
    records = []
    module._recorder = records.append
    return records


def test_parameter_count_is_that_of_torch():
    ours, reference = pair()
    count = sum(p.numel() for p in ours.parameters())
    assert count == sum(p.numel() for p in reference.parameters()) == 4 * DIM**2 + 4 * DIM


def test_initial_weights_have_the_scale_of_torch():
    torch.manual_seed(0)
    ours, reference = MultiHeadAttention(96, 4), nn.MultiheadAttention(96, 4)
    assert ours.in_proj.weight.std().item() == pytest.approx(reference.in_proj_weight.std().item(), rel=0.02)
    assert ours.out_proj.weight.std().item() == pytest.approx(reference.out_proj.weight.std().item(), rel=0.02)
    assert not ours.in_proj.bias.any()
    assert not ours.out_proj.bias.any()


@pytest.mark.parametrize("training", [False, True])
def test_output_agrees_with_torch(batch, training):
    ours, reference = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    torch.testing.assert_close(
        ours.train(training)(x, layout), reference_output(reference, x, layout), atol=1e-6, rtol=1e-5
    )


def test_output_with_bias_agrees_with_torch(batch):
    ours, reference = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    bias = random_bias(layout)
    torch.testing.assert_close(
        ours(x, layout, bias), reference_output(reference, x, layout, bias), atol=1e-6, rtol=1e-5
    )


def test_gradients_agree_with_torch(batch):
    ours, reference = pair(dtype=torch.float64)
    layout, x = DenseLayout.from_batch(batch), tokens(batch, torch.float64).requires_grad_()
    (grad_ours,) = torch.autograd.grad(ours(x, layout).square().sum(), x)
    (grad_reference,) = torch.autograd.grad(reference_output(reference, x, layout).square().sum(), x)
    torch.testing.assert_close(grad_ours, grad_reference, atol=1e-11, rtol=1e-9)


def test_bias_of_one_head_serves_all(batch):
    ours, _ = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    bias = random_bias(layout, 1)
    shared = ours(x, layout, bias.expand(-1, HEADS, -1, -1))
    torch.testing.assert_close(ours(x, layout, bias), shared, atol=1e-6, rtol=1e-5)


def test_bias_in_padding_is_ignored(batch):
    ours, _ = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    bias = random_bias(layout)
    absent = ~(layout.mask[:, None, :, None] & layout.mask[:, None, None, :])
    spoilt = bias.masked_fill(absent, 1e4)
    assert torch.equal(ours(x, layout, bias), ours(x, layout, spoilt))


def test_graphs_do_not_see_each_other(table, batch):
    ours, _ = pair()
    x = tokens(batch)
    alone = [
        ours(x[batch.ptr[g] : batch.ptr[g + 1]], DenseLayout.from_batch(table.batch([g])))
        for g in range(batch.num_graphs)
    ]
    torch.testing.assert_close(ours(x, DenseLayout.from_batch(batch)), torch.cat(alone), atol=1e-6, rtol=1e-5)


def test_one_block_and_many_agree(batch):
    ours, _ = pair()
    x, cut = tokens(batch), DenseLayout.from_batch(batch)
    whole = replace(cut, cut=None)
    assert len(cut.blocks) > len(whole.blocks) == 1
    torch.testing.assert_close(ours(x, cut), ours(x, whole), atol=1e-6, rtol=1e-5)


def test_listening_changes_nothing(batch):
    ours, _ = pair(dropout=0.5)
    ours.eval()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    quiet = ours(x, layout)
    listen(ours)
    assert torch.equal(ours(x, layout), quiet)


def test_listening_leaves_random_numbers_alone(batch):
    ours, _ = pair(dropout=0.5)
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    torch.manual_seed(4)
    quiet = ours(x, layout)
    listen(ours)
    torch.manual_seed(4)
    assert torch.equal(ours(x, layout), quiet)


@pytest.mark.parametrize("with_bias", [False, True])
def test_trace_explains_the_output(batch, with_bias):
    ours, _ = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    records = listen(ours)
    out = ours(x, layout, random_bias(layout) if with_bias else None)
    (trace,) = records
    constant = ours.out_proj(ours.in_proj.bias[2 * DIM :])
    for graph, weights in enumerate(trace.attention):
        rows = slice(batch.ptr[graph], batch.ptr[graph + 1])
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        mixed = torch.einsum("hij,jho->io", weights, trace.values[rows])
        torch.testing.assert_close(mixed + constant, out[rows], atol=1e-6, rtol=1e-5)


def test_trace_names_its_graphs(batch):
    ours, _ = pair()
    records = listen(ours)
    out = ours(tokens(batch), DenseLayout.from_batch(batch))
    (trace,) = records
    assert torch.equal(trace.tokens, out)
    assert torch.equal(trace.batch, batch.batch)
    assert trace.num_nodes.tolist() == batch.ptr.diff().tolist()
    assert [tuple(matrix.shape) for matrix in trace.attention] == [(HEADS, n, n) for n in batch.ptr.diff().tolist()]


@pytest.mark.slow
def test_dropout_keeps_the_expectation(batch):
    ours, _ = pair(dropout=0.5)
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    expected = ours.eval()(x, layout)
    ours.train()
    torch.manual_seed(0)
    draws = torch.stack([ours(x, layout) for _ in range(2000)])
    error = (draws.mean(0) - expected).abs() / (draws.std(0) / 2000**0.5 + 1e-9)
    assert error.max() < 5


def test_dropout_drops_its_share():
    """With equal logits and values of one, the output is the kept share of the weights."""
    torch.manual_seed(0)
    zeros = torch.zeros(1, 1, 1000, 1)
    kept = attend(zeros, zeros, torch.ones_like(zeros), dropout=0.3) * 0.7
    assert kept.mean().item() == pytest.approx(0.7, abs=0.003)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.99])
def test_numbers_are_dropped_with_the_probability_that_was_asked_for(p, dtype):
    """Also if the type has fewer bits than p; kept values and gradients are multiplied by 1 / (1 - p)."""
    torch.manual_seed(0)
    count = 1_000_000
    x = torch.ones(count, dtype=dtype, requires_grad=True)
    dropped = ops.drop_at_random(x, p)
    share = (dropped == 0).double().mean().item()
    assert abs(share - p) < 5 * (p * (1 - p) / count) ** 0.5
    expected = torch.tensor([0.0, 1 / (1 - p)], dtype=torch.float64)
    torch.testing.assert_close(dropped.unique().double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped)


@pytest.mark.parametrize("bias", [None, torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(1))])
def test_weights_mix_the_values_as_the_fused_kernel_does(bias):
    q, k, v = torch.randn(3, 4, 2, 5, 6, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(attention_weights(q, k, bias) @ v, attend(q, k, v, bias), atol=1e-12, rtol=1e-10)


#: Fused kernels of `scaled_dot_product_attention` on CUDA, after torch's `sdp_utils.cpp`: for each type, the number
#: that must divide the widths of queries and values. Flash attention pads to its multiple itself, and takes no bias.
HALF = {torch.float16: 8, torch.bfloat16: 8}
DISPATCHER = {"efficient": {torch.float32: 4, **HALF}, "flash": HALF, "cudnn": HALF}
#: Head widths of recipes that no fused kernel accepted in half precision.
UNEVEN = {"gps/cifar10": 13, "gps/cluster": 6, "sat/cluster": 6, "graphormer/zinc": 10, "gps/coco-sp": 12}


@pytest.fixture(scope="module")
def widths():
    """Map each recipe to the width of its attention heads, if it has heads."""
    found = {}
    for name, (configuration,) in configurations().items():
        chosen = (configuration.content().get("model") or {}).get("architecture")
        if chosen and not configuration.is_overlay:
            chosen = chosen if isinstance(chosen, dict) else {"class_path": chosen}
            architecture = entry_points.load("architectures", chosen["class_path"].rpartition(".")[2])
            options = {option.name: option.default for option in inspect.signature(architecture).parameters.values()}
            options |= chosen.get("init_args", {})
            if {"hidden_dim", "num_heads"} <= options.keys():
                found[name] = options["hidden_dim"] // options["num_heads"]
    return found


@pytest.fixture
def fused(monkeypatch):
    """Record the widths of queries, keys and values in calls of fused attention, and the scale."""
    seen, run = [], F.scaled_dot_product_attention

    def attend_and_note(q, k, v, *options, **named):
        seen.append(((q.shape[-1], k.shape[-1], v.shape[-1]), named.get("scale", q.shape[-1] ** -0.5)))
        return run(q, k, v, *options, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend_and_note)
    return seen


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_card_is_given_heads_that_its_fused_kernels_take(dtype, autocast, widths, fused, monkeypatch):
    if autocast:  # which the pretended device lacks
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device != "cpu")
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: dtype)
    assert UNEVEN.items() <= widths.items()
    generator = torch.Generator().manual_seed(0)
    for width in sorted({*widths.values(), 1, 7}):
        q, k, v = torch.randn(3, 1, 2, 5, width, generator=generator)
        with on_pretended_device() as card:
            moved = [x.to(card, torch.float32 if autocast else dtype) for x in (q, k, v)]
            numbers = attend(*moved).float().cpu()
        close = 1e-6 if dtype == torch.float32 else 3e-2
        torch.testing.assert_close(numbers, attend(q, k, v), rtol=close, atol=close)
        given, scale = fused[-1]
        assert scale == width**-0.5
        for kernel, multiples in DISPATCHER.items():
            multiple = multiples.get(dtype, 1)
            assert all(one % multiple == 0 for one in given), (kernel, width, given)
            assert max(given) < width + 8, "more zeros than a kernel asks for"


@pytest.mark.parametrize("bias", [None, torch.randn(1, 2, 5, 6, generator=torch.Generator().manual_seed(1)).double()])
def test_zeros_beside_heads_change_neither_values_nor_gradients(bias):
    draw = torch.Generator().manual_seed(0)
    shapes = (4, 2, 5, 13), (4, 2, 6, 13), (4, 2, 6, 10)
    leaves = [torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True) for shape in shapes]
    found = []
    for multiple in (1, 8):
        out = ops._attend_in_padded_heads(*leaves, bias, 0.0, multiple)
        assert out.shape == (4, 2, 5, 10)
        found.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-12, atol=1e-12)


def test_a_processor_pads_nothing(fused):
    attend(*torch.zeros(3, 1, 1, 200, 13))
    assert fused[0][0] == (13, 13, 13)


def test_bfloat16_autocast_is_close(batch):
    ours, _ = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = ours(x, layout)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), ours(x, layout), atol=0.1, rtol=0.1)


def test_heads_must_divide_the_width():
    with pytest.raises(BadInput, match="num_heads=5 and width 12"):
        MultiHeadAttention(12, 5)
    for none in (0, -3, 2.0):
        with pytest.raises(BadInput, match=f"num_heads must be an integer of at least 1, but got {none}"):
            MultiHeadAttention(12, none)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_attention_dropout_must_be_a_probability_below_one(dropout):
    with pytest.raises(BadInput, match=f"below 1, but got {dropout}"):
        MultiHeadAttention(12, 3, dropout)


def test_layers_can_share_a_prepared_bias(batch):
    ours, _ = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    bias = random_bias(layout)
    assert torch.equal(ours(x, layout, layout.block_biases(bias)), ours(x, layout, bias))


def test_gradients_reach_the_bias_but_not_its_padding(batch):
    ours, _ = pair()
    layout, x = DenseLayout.from_batch(batch), tokens(batch)
    bias = random_bias(layout).requires_grad_()
    ours(x, layout, bias).square().sum().backward()
    present = layout.mask[:, None, :, None] & layout.mask[:, None, None, :]
    several = present & (batch.ptr.diff() > 1)[:, None, None, None]
    assert bias.grad.masked_select(several).abs().min() > 0
    assert not bias.grad.masked_select(~present).any()


def test_packed_attention_is_asked_for_by_the_layer_and_missed_on_cards_without_triton(monkeypatch):
    seen = []
    monkeypatch.setattr(attention, "packed_attention", lambda qkv, *options: seen.append(options[-1]) or qkv[:, :8])
    for packed in (False, True):
        MultiHeadAttention(8, 2, packed=packed)(torch.randn(5, 8), torch.tensor([0, 0, 0, 1, 1]))
    assert seen == [False, True]
    monkeypatch.setattr(attention, "runs_triton", lambda device: False)
    with pytest.warns(UserWarning, match="cuda:0"):
        attention._check_card(torch.device("cuda:0"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention._check_card(torch.device("cpu"))
