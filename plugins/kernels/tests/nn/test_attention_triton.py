"""Packed attention in Triton, run by its interpreter if there is no GPU, against the definition in float64."""

import pytest
import torch

from graphbench.testing import run_with_triton

COMMON = """
    import dataclasses
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder
    from graphbench.nn import DenseLayout
    from graphbench_kernels.nn.attention import Packing
    from graphbench_kernels.nn.attention_triton import Dropout, kept_factors
    from graphbench_kernels.nn.card_attention import attend_packed

    device = "cuda" if torch.cuda.is_available() else "cpu"
    DIGITS = {torch.float32: 3e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}
    multiply = InterpreterBuilder.create_dot

    def create_dot(self, a, b, *others):
        # The interpreter holds bfloat16 as integers, and would multiply those.
        if a.dtype == tl.bfloat16:
            a, b = self.create_fp_ext(a, tl.float32), self.create_fp_ext(b, tl.float32)
        return multiply(self, a, b, *others)

    InterpreterBuilder.create_dot = create_dot

    def draw(*shape, seed=0, dtype=torch.float32):
        numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return numbers.to(device, dtype)

    def layout_of(sizes):
        graph_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        return dataclasses.replace(DenseLayout.from_batch(graph_of.to(device)), cut=None)  # one block, as on cards

    def packed(sizes, heads, qkv, bias=None, p=0.0):
        *packing, padding = layout_of(sizes).packing
        return attend_packed(qkv, Packing(*packing), padding, bias, heads, p)

    def defined(sizes, heads, qkv, bias=None, factors=None):
        parts, most = [], max(sizes)
        if bias is not None:
            bias = bias.expand(len(sizes), heads, most, most)
        for graph, rows in enumerate(qkv.split(sizes)):
            n = len(rows)
            q, k, v = rows.unflatten(1, (3, heads, -1)).permute(1, 2, 0, 3)
            logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
            weights = (logits if bias is None else logits + bias[graph, :, :n, :n]).softmax(-1)
            weights = weights if factors is None else weights * factors[graph, :, :n, :n]
            parts.append((weights @ v).transpose(0, 1).flatten(1))
        return torch.cat(parts)

    def factors_of(sizes, heads, p, seed):
        torch.manual_seed(seed)
        drawn = int(torch.randint(1 << 31, ()))
        torch.manual_seed(seed)
        return kept_factors(layout_of(sizes).ptr, max(sizes), heads, Dropout(p, drawn)).double()

    def check(sizes, heads, width, dtype, shape=None, p=0.0):
        qkv, upstream = draw(sum(sizes), 3 * heads * width), draw(sum(sizes), heads * width, seed=3).to(dtype)
        given = [qkv] if shape is None else [qkv, draw(*shape, seed=2)]
        given = [x.to(dtype).requires_grad_() for x in given]
        exact = [x.detach().double().requires_grad_() for x in given]
        factors = factors_of(sizes, heads, p, 5) if p else None
        out = packed(sizes, heads, *given, **({"p": p} if p else {}))
        true = defined(sizes, heads, *exact, **({"factors": factors} if p else {}))
        found = out, *torch.autograd.grad(out, given, upstream)
        expected = true, *torch.autograd.grad(true, exact, upstream.double())
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == dtype and one.shape == other.shape
            error = (one - other).abs().max() / other.abs().max().clamp_min(1)
            assert error < DIGITS[dtype], (sizes, heads, width, dtype, shape, p, float(error))
"""

AGREES = """
    for dtype in DIGITS:
        check((1, 15, 16, 17), 2, 8, dtype)
        check((17, 1, 3), 1, 52, dtype, (3, 1, 17, 17))
        check((15, 129), 2, 32, dtype, (2, 2, 129, 129))
        check((16, 5), 3, 128, dtype, (2, 3, 16, 16), 0.3)
        check((17, 33), 2, 20, dtype, (1, 2, 1, 33), 0.3)
        check((1, 1), 1, 64, dtype, (2, 1, 1, 1))
    print("equal")
"""

# A thousand rows in narrow heads: the interpreter takes minutes for wide ones. Wide heads have smaller tiles, so 129
# rows fill several.
LARGE = """
    sizes = (1, 15, 16, 17, 129, 1000)
    for dtype, narrow, others in zip(DIGITS, (8, 16, 32), ((24, 128), (96,), (64,)), strict=True):
        for width in others:
            check(sizes[:-1], 1, width, dtype)
        check(sizes, 1, narrow, dtype)
    check(sizes, 1, 8, torch.float32, (len(sizes), 1, 1000, 1000), 0.1)
    check(sizes, 1, 16, torch.float16, (1, 1, 1, 1000), 0.1)
    print("equal")
"""

DROPOUT = """
    sizes, heads, p = (150, 3, 90), 2, 0.3
    qkv = draw(sum(sizes), 3 * heads * 8)
    factors = factors_of(sizes, heads, p, seed=7)
    kept = factors > 0
    assert torch.equal(factors[kept], torch.full_like(factors[kept], 1 / (1 - p)).float().double())
    # Shares of a whole, of each head, of rows and of columns lie within five standard deviations of 1 - p.
    for part in (kept, kept[:, :1], kept[:, 1:], *kept[0, 0, :9], *kept[0, 0].T[:9]):
        share, deviation = float(part.double().mean()), (p * (1 - p) / part.numel()) ** 0.5
        assert abs(share - (1 - p)) < 5 * deviation, (share, part.shape)
    # Neither graphs nor heads nor neighbours go together.
    numbers = kept.double() - (1 - p)
    pairs = (numbers[0, 0], numbers[0, 1]), (numbers[0, 0], numbers[2, 0]), (numbers[0, 0, 1:], numbers[0, 0, :-1])
    for one, other in (*pairs, (numbers[0, 0, :, 1:], numbers[0, 0, :, :-1]), (numbers[0, 0], numbers[0, 0].T)):
        correlation = float((one * other).mean()) / (p * (1 - p))
        assert abs(correlation) < 6 / one.numel() ** 0.5, correlation
    assert not torch.equal(factors, factors_of(sizes, heads, p, seed=8))

    rows = qkv.clone().requires_grad_()
    torch.manual_seed(7)
    out = packed(sizes, heads, rows, p=p)
    first, second = (torch.autograd.grad(out.square().sum(), rows, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    torch.manual_seed(7)
    assert torch.equal(packed(sizes, heads, qkv, p=p), out)
    assert not torch.equal(packed(sizes, heads, qkv, p=p), out)
    print("equal")
"""

SECOND = """
    sizes, heads = (5, 1, 17), 2
    for p in (0.0, 0.3):
        factors = factors_of(sizes, heads, p, seed=5) if p else None
        def derived(compute, dtype):
            given = draw(23, 3 * heads * 8, dtype=dtype).requires_grad_(), draw(3, heads, 17, 17, seed=2, dtype=dtype)
            given[1].requires_grad_()
            grads = torch.autograd.grad(compute(*given).pow(3).sum(), given, create_graph=True)
            return *grads, *torch.autograd.grad(sum(x.square().sum() for x in grads), given)
        layout = layout_of(sizes)
        found = derived(lambda qkv, bias: packed(sizes, heads, qkv, *layout.block_biases(bias), p=p), torch.float32)
        expected = derived(lambda qkv, bias: defined(sizes, heads, qkv, bias, factors), torch.float64)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))
    print("equal")
"""

SPECIAL = """
    sizes, heads = (5, 40, 1, 16), 2
    rows, firsts = draw(62, 3 * heads * 8), [0, 5, 45, 46]
    whole = packed(sizes, heads, rows)
    # To the bit on a card; the interpreter multiplies by NumPy, which rounds by where a matrix lies in memory.
    limit = 0 if device == "cuda" else 1e-6
    for first, size in zip(firsts, sizes, strict=True):  # whatever shares the batch
        own = rows[first : first + size]
        alone = packed((size, 3), heads, torch.cat([own, rows[:3]]))[:size]
        torch.testing.assert_close(alone, whole[first : first + size], rtol=0, atol=limit)

    spoiled = rows.clone()
    spoiled[7, 0], spoiled[50, 2 * heads * 8 + 8] = torch.nan, torch.inf
    assert torch.equal(packed(sizes, heads, spoiled).isfinite(), defined(sizes, heads, spoiled).isfinite())

    bias = torch.zeros(4, 1, 40, 40, device=device)
    bias[..., 0] = -torch.inf  # the graph of one node has no key then
    rows[firsts, 2 * heads * 8 :] = 1e30  # values of hidden keys
    rows.requires_grad_()
    for p in (0.0, 0.5):
        out = packed(sizes, heads, rows, bias, p)
        assert out.abs().max() < 1e3 and not out[45].any()
        assert torch.autograd.grad(out.sum(), rows)[0].isfinite().all()

    rows = draw(62, 3 * heads * 8)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert packed(sizes, heads, rows).dtype == torch.bfloat16
    turned = draw(3 * heads * 8, 62).T  # not contiguous
    assert torch.equal(packed(sizes, heads, turned), packed(sizes, heads, turned.contiguous()))
    print("equal")
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(AGREES, id="agrees"),
        pytest.param(DROPOUT, id="dropout"),
        pytest.param(SECOND, id="second"),
        pytest.param(SPECIAL, id="special"),
        pytest.param(LARGE, id="large", marks=pytest.mark.slow),
    ],
)
def test_packed_attention(script):
    assert run_with_triton(COMMON + script, interpreted=not torch.cuda.is_available()) == "equal\n"
