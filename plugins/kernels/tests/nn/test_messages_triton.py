"""Messages in Triton, run by its interpreter if there is no GPU, against dense matrices in float64."""

import pytest
import torch

from graphbench.testing import run_with_triton

COMMON = """
    import gc
    import weakref
    import torch
    import graphbench.nn.ops  # defines the plain forms
    from graphbench_kernels.nn.card_messages import _GatedMessages as GatedMessages, _SumOfRectified as SumOfRectified

    device = "cuda" if torch.cuda.is_available() else "cpu"
    DIGITS = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}

    def draw(*shape, seed=0, dtype=torch.float64):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)

    def ends(nodes, edges):
        drawn = torch.randint(0, nodes - 3, (2, edges), generator=torch.Generator().manual_seed(7))
        drawn[:, 1], drawn[:, 2] = drawn[:, 0], 0  # parallel edges and loops; nothing arrives at the last nodes
        return drawn.to(device)

    def incidence(ends, nodes):
        return torch.nn.functional.one_hot(ends, nodes).T.double()

    def rectified(edge_index, x, edges):
        source, target = (incidence(part, len(x)) for part in edge_index)
        return OWN * x + target @ (source.T @ x + edges).relu()

    def gated(edge_index, nodes, edges):
        source, target = (incidence(part, len(nodes)) for part in edge_index)
        own, sent, at_target, at_source = nodes.chunk(4, 1)
        raw = target.T @ at_target + source.T @ at_source + edges
        gates = raw.sigmoid()
        return own + target @ (gates * (source.T @ sent)) / (target @ gates + 1e-6), raw

    OWN = 1.3  # of the node itself, beside what it receives
    CASES = {SumOfRectified: (rectified, 1, (OWN,)), GatedMessages: (gated, 4, ())}
    SHAPES = (4, 1, 1), (23, 61, 19), (7, 25, 130)

    def as_tuple(x):
        return x if isinstance(x, tuple) else (x,)
"""

AGREES = """
    for function, (plain, maps, options) in CASES.items():
        for dtype, digits in DIGITS.items():
            for nodes, number, width in SHAPES:
                edge_index = ends(nodes, max(number, 3))[:, :number]
                given = draw(nodes, maps * width).to(dtype), draw(number, width, seed=1).to(dtype)
                if function is SumOfRectified:
                    given[0][edge_index[0, 0]], given[1][0] = 1.0, -1.0  # a message of exactly 0
                exact = [x.double().requires_grad_() for x in given]
                given = [x.requires_grad_() for x in given]
                expected = as_tuple(plain(edge_index, *exact))
                found = as_tuple(function.apply(given[0], edge_index, given[1], *options))
                upstream = [draw(*x.shape[::-1], seed=9 + i).T.to(dtype) for i, x in enumerate(expected)]  # no rows
                grads = torch.autograd.grad(found, given, upstream, retain_graph=True)
                again = torch.autograd.grad(found, given, upstream)
                true = torch.autograd.grad(expected, exact, [x.double() for x in upstream])
                for one, other in zip((*found, *grads), (*expected, *true), strict=True):
                    assert one.dtype == dtype and one.shape == other.shape
                    error = (one - other).abs().max() / other.abs().max().clamp_min(1)
                    assert error < digits, (function, dtype, nodes, width, float(error))
                assert all(torch.equal(*pair) for pair in zip(grads, again, strict=True))
    print("equal")
"""

SPECIAL = """
    for function, (plain, maps, options) in CASES.items():
        edge_index = ends(23, 61)
        x, edges = draw(23, maps * 5), draw(61, 5, seed=1)
        x[3, 0], edges[8, 1], edges[9, 4] = torch.nan, torch.nan, -torch.inf
        out = as_tuple(function.apply(x, edge_index, edges, *options))[0]
        reached = torch.zeros(23, 5, dtype=torch.bool, device=device)
        reached[edge_index[1, 8], 1] = True
        reached[3, 0] = True
        if function is SumOfRectified:
            reached[edge_index[1, edge_index[0] == 3], 0] = True
        assert torch.equal(out.isnan(), reached)

        edge_index = ends(6, 8)
        given = draw(6, maps * 2).requires_grad_(), draw(8, 2, seed=1).requires_grad_()
        call = lambda *given: function.apply(given[0], edge_index, given[1], *options)
        assert torch.autograd.gradcheck(call, given, fast_mode=True)
        assert torch.autograd.gradgradcheck(call, given, fast_mode=True)

        edge_index += 0 * edge_index  # as before, but written to
        first = as_tuple(call(*given))[0]
        edge_index[:] = edge_index.flip(0)
        assert not torch.equal(as_tuple(call(*given))[0], first)
        edge_index[1, 0] = 6
        try:
            call(*given)
        except RuntimeError:
            continue
        raise AssertionError("node 6 is not there")
    kept = weakref.ref(edge_index)
    del edge_index, given, call, out, first
    gc.collect()
    assert kept() is None, "what layers share outlives the batch"
    print("equal")
"""


ATTENTION = """
    from graphbench_kernels.nn.card_messages import _EdgeAttention

    def attended(edge_index, heads, largest, qkv, steer=None):
        source, target = (incidence(part, len(qkv)) for part in edge_index)
        q, k, v = qkv.chunk(3, 1)
        scores = (target.T @ q) * (source.T @ k) * (q.shape[1] // heads) ** -0.5 * (1.0 if steer is None else steer)
        powers = scores.unflatten(1, (heads, -1)).sum(-1).clamp(-largest, largest).exp()
        weights = powers / (target.T @ (target @ powers))
        mixed = target @ (weights.repeat_interleave(q.shape[1] // heads, 1) * (source.T @ v))
        return mixed, scores, weights

    for dtype, digits in DIGITS.items():
        for nodes, number, heads, width, steered, with_scores in (
            (7, 25, 2, 20, True, True),
            (7, 25, 1, 1, False, True),
            (5, 9, 3, 33, True, False),
            (4, 3, 1, 8, False, False),
        ):
            edge_index, largest = ends(nodes, number), 0.7
            given = [draw(nodes, 3 * heads * width)] + [draw(number, heads * width, seed=1)] * steered
            given = [x.to(dtype).requires_grad_() for x in given]
            exact = [x.detach().double().requires_grad_() for x in given]
            expected = attended(edge_index, heads, largest, *exact)
            steer = given[1] if steered else None
            mixed, scores, weights = _EdgeAttention.apply(given[0], edge_index, steer, heads, largest, with_scores)
            assert not weights.requires_grad and scores.shape == (number * with_scores, heads * width)
            shown = slice(2 if with_scores else 1)
            upstream = [draw(*x.shape[::-1], seed=9 + i).T.to(dtype) for i, x in enumerate(expected[shown])]
            grads = torch.autograd.grad((mixed, scores)[shown], given, upstream)
            true = torch.autograd.grad(expected[shown], exact, [x.double() for x in upstream])
            found = mixed, *((scores,) if with_scores else ()), weights, *grads
            for one, other in zip(found, (*expected[shown], expected[2], *true), strict=True):
                assert one.dtype == dtype and one.shape == other.shape
                error = (one - other).abs().max() / other.abs().max().clamp_min(1)
                assert error < digits, (dtype, heads, width, steered, float(error))

    edge_index = ends(6, 8)
    given = draw(6, 3 * 4).requires_grad_(), draw(8, 4, seed=1).requires_grad_()
    call = lambda qkv, steer: _EdgeAttention.apply(qkv, edge_index, steer, 2, 5.0, True)[:2]
    assert torch.autograd.gradcheck(call, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, given, fast_mode=True)
    assert not call(*given)[0][-1].any(), "nothing arrives there"
    print("equal")
"""


@pytest.mark.parametrize(
    "script",
    [pytest.param(AGREES, id="agrees"), pytest.param(SPECIAL, id="special"), pytest.param(ATTENTION, id="attention")],
)
def test_messages(script):
    assert run_with_triton(COMMON + script, interpreted=not torch.cuda.is_available()) == "equal\n"


def test_kernels_are_left_to_those_who_ask_for_equal_bits(monkeypatch):
    from graphbench_kernels.nn import card_messages

    monkeypatch.setattr(card_messages, "runs_triton", lambda device: True)
    x, index, edges = torch.zeros(3, 2), torch.zeros(2, 4, dtype=torch.int64), torch.zeros(4, 2)
    assert card_messages.fits_kernels(x, index, edges)
    assert not card_messages.fits_kernels(x, index, edges.half())
    assert not card_messages.fits_kernels(x, index, edges[:1])
    assert not card_messages.asks_for_equal_bits(x)
    torch.use_deterministic_algorithms(True)
    try:
        assert card_messages.asks_for_equal_bits(x)
    finally:
        torch.use_deterministic_algorithms(False)
