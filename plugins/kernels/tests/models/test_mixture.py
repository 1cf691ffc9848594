"""The kernel of sampled attention, against the definition in float64 and against the same layer by torch."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("numba")

from graphbench.nn import DenseLayout
from graphbench.testing import computed_by
from graphbench_sft import SampledAttention, attention
from graphbench_sft.ops import EPSILON, Operands, mix_by_maxout
from graphbench_sft.relative import DenseRelation, DistanceRelation, PairTerms, edge_relations

HEADS = 3
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


@pytest.fixture(autouse=True)
def kernels_run():
    """Run the kernels whatever the environment says."""
    with computed_by("numba"):
        yield


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def layout_of(sizes):
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    graph_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return DenseLayout.from_rows(graph_of, ptr, max(sizes))


def draw_case(sizes, slots, width, masked=True, leaks=True, pairs=True, scale=1.0, whole=False):
    """Draw float64 numbers that are exact in float32, with a layout of one block and the inputs without gradients."""
    tokens, graphs, nodes = sum(sizes), len(sizes), max(sizes)
    count = 3 * tokens if pairs else 0
    numbers = {
        "query": scale * draw(tokens, HEADS * width),
        "key": scale * draw(graphs, slots, HEADS * width, seed=1),
        "value": draw(graphs, slots, HEADS * width, seed=2),
        "leak": draw(graphs, slots, HEADS, seed=3).abs() if leaks else None,
        "mul": draw(HEADS, seed=4).abs(),
        "add": draw(HEADS, seed=5),
        "pair_mul": draw(count, HEADS, seed=6),
        "pair_add": draw(count, HEADS, seed=7),
    }
    rounded = {name: None if x is None else (x.round() if whole else x).float().double() for name, x in numbers.items()}
    generator = torch.Generator().manual_seed(8)
    graph_of = torch.repeat_interleave(torch.arange(graphs), torch.tensor(sizes))
    place = torch.cat([torch.arange(size) for size in sizes])
    picked = torch.randint(tokens, (count,), generator=generator).sort().values  # with duplicate pairs
    mask = None
    if masked:
        mask = torch.arange(slots) < torch.randint(1, slots + 1, (graphs, 1), generator=generator)
    slot = torch.randint(slots, (count,), generator=generator)
    if mask is not None:
        slot = slot % mask.sum(-1)[graph_of[picked]]
    layout = DenseLayout.from_rows(graph_of, torch.tensor([0, *sizes]).cumsum(0), nodes)
    layout = DenseLayout(layout.index, layout.mask, layout.key_bias, layout.ptr)  # one block
    return rounded, layout, mask, (graph_of * nodes + place)[picked], slot


def definition(numbers, layout, mask, row, slot):
    """Graph by graph and pair by pair."""
    out = []
    width = numbers["query"].shape[1] // HEADS
    nodes = layout.max_nodes
    for graph in range(layout.num_graphs):
        own = numbers["query"][layout.ptr[graph] : layout.ptr[graph + 1]]
        filled = slice(None) if mask is None else mask[graph]
        heads = []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            key, value = numbers["key"][graph, :, part], numbers["value"][graph, :, part]
            scores = torch.maximum(own[:, None, part], key[None]).sum(-1) / width**0.5
            mul, add = numbers["mul"][head].expand_as(scores), numbers["add"][head].expand_as(scores)
            here = row // nodes == graph
            place = row[here] % nodes, slot[here]
            mul = mul.index_put(place, numbers["pair_mul"][here, head], accumulate=True)
            add = add.index_put(place, numbers["pair_add"][here, head], accumulate=True)
            positive = F.relu(scores * mul + add)[:, filled]
            total = positive.sum(-1, keepdim=True) + EPSILON
            if numbers["leak"] is not None:
                total = total + numbers["leak"][graph, filled, head].sum()
            heads.append(positive @ value[filled] / total)
        out.append(torch.cat(heads, dim=-1))
    return torch.cat(out)


def by_kernel(numbers, layout, mask, row, slot):
    pairs = PairTerms(row, slot, numbers["pair_mul"], numbers["pair_add"])
    operands = Operands(numbers["key"], numbers["value"], numbers["leak"], mask, pairs)
    at_zero = numbers["mul"], numbers["add"]
    return mix_by_maxout(numbers["query"], layout, HEADS, [operands], at_zero)


def assert_as_defined(case, dtype):
    """Outputs and all gradients, against the definition in float64."""
    numbers, *rest = case
    found = []
    for compute, precision in ((by_kernel, dtype), (definition, torch.float64)):
        own = {name: None if x is None else x.to(precision).requires_grad_() for name, x in numbers.items()}
        out = compute(own, *rest)
        leaves = [x for x in own.values() if x is not None]
        weight = draw(*out.shape, seed=9).float().to(precision)
        found.append([out, *torch.autograd.grad(out, leaves, weight, allow_unused=True)])
    names = ["out", *(name for name, x in numbers.items() if x is not None)]
    for name, ours, exact in zip(names, *found, strict=True):
        size = float(exact.detach().abs().max()) if exact.numel() else 0.0
        error = (ours.double() - exact).abs().max() if exact.numel() else torch.zeros(())
        assert error <= TOLERANCE[dtype] * max(size, 1.0), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("sizes", "slots", "width"),
    [((70, 64, 33), 40, 16), ((20, 9, 17, 1), 75, 9), ((1,), 1, 1), ((3, 1), 2, 32), ((5, 130), 17, 48)],
)
def test_values_and_gradients_are_those_of_the_definition(dtype, sizes, slots, width):
    assert_as_defined(draw_case(sizes, slots, width), dtype)


@pytest.mark.parametrize("options", [{"masked": False}, {"leaks": False}, {"pairs": False}])
def test_what_may_be_absent(options):
    assert_as_defined(draw_case((19, 33, 4), 21, 8, **options), torch.float64)


def test_equal_numbers_share_the_gradient():
    case = draw_case((37, 18), 25, 6, whole=True)
    numbers = case[0]
    assert (numbers["query"][:18, None] == numbers["key"][1][None]).double().mean() > 0.1
    numbers["mul"].add_(0.5)  # where scores are 0 torch's own relu decides
    numbers["add"].add_(0.25)
    assert_as_defined(case, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_of_thirty_times_the_size(dtype):
    assert_as_defined(draw_case((40, 21), 33, 8, scale=30.0), dtype)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_stays_in_its_row_and_graph(bad):
    numbers, *rest = draw_case((6, 5, 7), 9, 4, masked=False)
    numbers["query"][7, 2] = bad  # the third head is that of channels 8 to 11
    own = {name: x.requires_grad_() for name, x in numbers.items()}
    out, exact = by_kernel(own, *rest), definition(own, *rest)
    torch.testing.assert_close(out, exact, equal_nan=True)
    if bad != -torch.inf:
        assert out[7, :4].isnan().all()
    others = torch.arange(18) != 7
    assert out[others].isfinite().all()
    of_query, of_key = torch.autograd.grad(out.nan_to_num().sum(), (own["query"], own["key"]))
    assert of_query[:6].isfinite().all()
    assert of_query[11:].isfinite().all()
    assert of_key[[0, 2]].isfinite().all()


def test_rows_without_a_positive_score_are_zero():
    numbers, *rest = draw_case((6, 5, 7), 9, 4, leaks=False, pairs=False)
    numbers["add"] = torch.full((HEADS,), -100.0, dtype=torch.float64)
    own = {name: None if x is None else x.requires_grad_() for name, x in numbers.items()}
    out = by_kernel(own, *rest)
    assert (out == 0).all()
    assert all((x == 0).all() for x in torch.autograd.grad(out.sum(), [own["query"], own["key"], own["value"]]))


def test_empty_slots_may_hold_anything():
    numbers, layout, mask, row, slot = draw_case((6, 5, 7), 9, 4)
    assert not mask.all()
    expected = by_kernel(numbers, layout, mask, row, slot)
    for name in ("key", "value", "leak"):
        numbers[name] = numbers[name].masked_fill(~mask.unsqueeze(-1), torch.nan).requires_grad_()
    out = by_kernel(numbers, layout, mask, row, slot)
    assert torch.equal(out, expected)
    for gradient in torch.autograd.grad(out.sum(), [numbers[name] for name in ("key", "value", "leak")]):
        assert (gradient[~mask] == 0).all()
        assert gradient.isfinite().all()


def test_threads_change_no_bit():
    found, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        numbers, *rest = draw_case((150, 140), 100, 24)
        own = {name: x.float().requires_grad_() for name, x in numbers.items()}
        out = by_kernel(own, *rest)
        found.append((out, *torch.autograd.grad(out, list(own.values()), draw(*out.shape).float())))
    torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found[0], others, strict=True))


def make_relations(kind, layout, sizes, dtype):
    tokens = sum(sizes)
    if kind == "edges":
        pairs = [torch.randint(n, (2, 3 * n)) + first for n, first in zip(sizes, layout.ptr.tolist(), strict=False)]
        edge_index = torch.cat(pairs, dim=1)
        return edge_relations(edge_index, draw(edge_index.shape[1], 2).to(dtype), layout)
    if kind == "none":
        return None
    width = 3 if kind == "places" else 2
    position = layout.to_blocks(draw(tokens, width).to(dtype))
    normal = layout.to_blocks(draw(tokens, 3, seed=1).to(dtype)) if kind == "places" else [None] * len(position)
    return tuple(map(DistanceRelation, position, normal))


@pytest.fixture
def by_both(monkeypatch):
    """Return a function that runs another with the kernel, called exactly once, and with torch's operations."""

    def run(function):
        calls = []

        def counted(*arguments):
            calls.append(arguments)
            return mix_by_maxout(*arguments)

        monkeypatch.setattr(attention, "mix_by_maxout", counted)
        ours = function()
        monkeypatch.setattr(attention, "_runs_in_one_step", lambda numbers: False)
        theirs = function()
        assert len(calls) == 1
        return ours, theirs

    return run


SIZES = (5, 1, 60, 9, 70, 4, 12, 3)


@pytest.mark.parametrize("kind", ["none", "edges", "places", "plane"])
@pytest.mark.parametrize("mode", ["training", "as_trained", "topk"])
@pytest.mark.parametrize("sampler", ["without_replacement", "straight_through", "with_replacement", "none"])
def test_layers_compute_what_torch_computes_with_the_same_random_numbers(by_both, kind, mode, sampler):
    dtype = torch.float32 if kind in ("places", "plane") else torch.float64
    torch.manual_seed(0)
    width = {"none": None, "plane": 1}.get(kind, 2)
    evaluation = "as_trained" if mode == "training" else mode
    layer = SampledAttention(
        16, 2, 7, sampler=sampler, relation_dim=width, score_dropout=0.3, evaluation=evaluation
    ).to(dtype)
    layer.train(mode == "training")
    layout = layout_of(SIZES)
    relations, x = make_relations(kind, layout, SIZES, dtype), draw(sum(SIZES), 16).to(dtype)

    def run():
        torch.manual_seed(1)
        if layer.sampler is not None:
            layer.sampler.generator.manual_seed(1)
        own = x.clone().requires_grad_()
        out = layer(own, layout, relations)
        gradients = torch.autograd.grad(
            (out * draw(*out.shape, seed=2).to(dtype)).sum(), [own, *layer.parameters()], allow_unused=True
        )
        return [out, *(gradient for gradient in gradients if gradient is not None)]

    ours, theirs = by_both(run)
    for mine, other in zip(ours, theirs, strict=True):
        size = float(other.detach().abs().max())
        assert (mine - other).abs().max() <= 10 * TOLERANCE[dtype] * max(size, 1.0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
def test_terms_of_near_and_far_places(by_both, size):
    torch.manual_seed(0)
    layer, layout = SampledAttention(16, 2, 9, relation_dim=2), layout_of((40, 40))
    layer.relative.linear.weight.data.mul_(5.0)
    position, normal = (size * draw(2, 40, 3, seed=seed).float() for seed in (0, 1))
    x = draw(80, 16).float()

    def run():
        layer.sampler.generator.manual_seed(1)
        out = layer(x, layout, (DistanceRelation(position, normal),))
        return [out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))]

    for mine, other in zip(*by_both(run), strict=True):
        assert (mine - other).abs().max() <= 2e-4 * max(float(other.detach().abs().max()), 1e-3)


def test_a_place_that_is_no_number_stays_in_its_graph():
    torch.manual_seed(0)
    layer, layout = SampledAttention(16, 2, 9, relation_dim=2), layout_of((20, 20))
    position, normal = (draw(2, 20, 3, seed=seed).float() for seed in (0, 1))
    position[1, 3, 0] = torch.nan
    out = layer(draw(40, 16).float(), layout, (DistanceRelation(position, normal),))
    assert out[:20].isfinite().all()
    assert out[23].isnan().all()


def test_what_is_left_to_torch(monkeypatch):
    asked = []
    monkeypatch.setattr(attention, "mix_by_maxout", lambda *arguments: asked.append(arguments))
    layout, x = layout_of((6, 6)), draw(12, 8).float()
    dense, far = DenseRelation(torch.zeros(2, 1, 6, 6)), torch.zeros(2, 6, 3)
    for options, relations, tokens in (
        ({"attention": "softmax_dot"}, None, x),
        ({}, (dense,), x),
        ({}, (DistanceRelation(far.clone().requires_grad_()),), x),
        ({}, (DistanceRelation(torch.zeros(2, 6, 4)),), x),
        ({}, (DistanceRelation(far.double()),), x.double()),
        ({}, None, x.bfloat16()),
    ):
        layer = SampledAttention(8, 2, 3, relation_dim=None if relations is None else 1, **options).to(tokens.dtype)
        assert layer(tokens, layout, relations).isfinite().all()
    with computed_by("torch"):
        assert SampledAttention(8, 2, 3)(x, layout).isfinite().all()
    assert not asked


@pytest.mark.parametrize("options", [{}, {"masked": False, "leaks": False}, {"pairs": False}])
def test_second_derivatives(options):
    """They use the plain form, whose outputs and first derivatives are those of the kernel."""
    case = draw_case((4, 3), 3, 2, **options)
    names = [name for name, x in case[0].items() if x is not None and x.numel()]

    def mix(*numbers):
        return by_kernel(case[0] | dict(zip(names, numbers, strict=True)), *case[1:])

    given = [case[0][name].clone().requires_grad_() for name in names]
    out = mix(*given)
    with computed_by("torch"):
        torch.testing.assert_close(mix(*given), out)
    weight = draw(*out.shape, seed=9)
    once = torch.autograd.grad(out, given, weight, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(out, given, weight, create_graph=True, allow_unused=True)
    for one, other in zip(once, again, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)
    assert torch.autograd.gradgradcheck(mix, given)


def test_the_plain_form_makes_terms_of_places():
    torch.manual_seed(0)
    layer, layout = SampledAttention(16, 2, 7, relation_dim=2, score_dropout=0.3), layout_of((6, 9, 4))
    relations, x = make_relations("places", layout, (6, 9, 4), torch.float32), draw(19, 16).float()
    seen, found = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "mix_by_maxout", lambda *given: seen.append(given) or mix_by_maxout(*given))
        layer(x, layout, relations)
    query = seen[0][0].detach().requires_grad_()
    for way in ("numba", "torch"):
        with computed_by(way):
            out = mix_by_maxout(query, *seen[0][1:])
        asked = [query, layer.relative.linear.weight]
        found.append((out, *torch.autograd.grad(out.square().sum(), asked, retain_graph=True)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
