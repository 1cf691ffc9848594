import copy
import io
from itertools import permutations

import pytest
import torch
import torch.nn.functional as F

from graphbench.errors import BadInput
from graphbench_sft import DifferentiableSampler
from graphbench_sft.sampler import _log_softplus, gumbel, scramble, uniform

DIM = 4
MODES = ("without_replacement", "straight_through", "with_replacement")


def make(num_samples, mode="without_replacement", dim=DIM, temperature=1.0, evaluation="as_trained"):
    torch.manual_seed(0)
    return DifferentiableSampler(dim, num_samples, mode, temperature, evaluation).double()


def tokens(*shape, seed=0):
    return torch.randn(*shape, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ragged(sizes):
    return torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]


def with_scores(sampler, scores):
    """Tokens of width 1 that are their own importance."""
    torch.nn.init.ones_(sampler.score.weight)
    torch.nn.init.zeros_(sampler.score.bias)
    return scores.unsqueeze(-1)


def successive_inclusion(scores, k):
    """Return the probability that each token is among k drawn one by one with odds exp(score), by enumeration."""
    odds = scores.exp().tolist()
    inclusion = [0.0] * len(odds)
    for order in permutations(range(len(odds)), k):
        probability, left = 1.0, sum(odds)
        for token in order:
            probability *= odds[token] / left
            left -= odds[token]
        for token in order:
            inclusion[token] += probability
    return torch.tensor(inclusion, dtype=torch.float64)


@pytest.mark.parametrize(("mode", "compiled"), [(MODES[0], False), (MODES[1], False), (MODES[0], True)])
def test_inclusion_frequencies_are_those_of_successive_sampling(mode, compiled):
    draws, k = 20_000, 3
    scores = torch.tensor([1.5, 0.7, 0.0, -0.4, -1.0, -2.5], dtype=torch.float64)
    sampler = make(k, mode, dim=1)

    def draw(x):
        return sampler(x).index

    if compiled:
        draw = torch.compile(draw, backend="aot_eager", fullgraph=True)
    index = draw(with_scores(sampler, scores).expand(draws, -1, -1))
    frequency = torch.bincount(index.flatten(), minlength=6) / draws
    expected = successive_inclusion(scores, k)
    assert ((frequency - expected).abs() < 4.5 * (expected * (1 - expected) / draws).sqrt() + 1e-9).all()


def test_inclusion_frequencies_agree_with_a_reference_gumbel_top_k_in_ragged_graphs():
    draws, k, n = 6000, 4, 12
    scores = torch.linspace(-1, 2, n, dtype=torch.float64)
    generator = torch.Generator().manual_seed(5)
    sampler = make(k, dim=1)
    x = with_scores(sampler, scores).expand(2 * draws, -1, -1)
    mask = ragged([n, 7]).repeat(draws, 1)
    index = sampler(x, mask).index.view(draws, 2, k)
    for graph, size in enumerate((n, 7)):
        noise = -(-torch.rand(draws, size, dtype=torch.float64, generator=generator).log()).log()
        reference = (scores[:size] + noise).topk(k).indices
        ours, theirs = (torch.bincount(i.flatten(), minlength=size) / draws for i in (index[:, graph], reference))
        spread = (2 * theirs * (1 - theirs) / draws).sqrt()
        assert ((ours - theirs).abs() < 4.5 * spread + 2e-3).all()


def test_draws_with_replacement_follow_the_softmax():
    draws, k = 4000, 5
    scores = torch.tensor([1.0, 0.0, -1.0, 0.5], dtype=torch.float64)
    sampler = make(k, "with_replacement", dim=1)
    sample = sampler(with_scores(sampler, scores).expand(draws, -1, -1))
    frequency = torch.bincount(sample.index.flatten(), minlength=4) / (draws * k)
    expected = scores.softmax(0)
    assert ((frequency - expected).abs() < 4.5 * (expected * (1 - expected) / (draws * k)).sqrt()).all()


def test_partners_are_uniform_among_the_others():
    draws, k, n = 20_000, 2, 6
    sampler = make(k, dim=1)
    scores = torch.tensor([9.0, 8.0, -8.0, -9.0, -10.0, -7.0], dtype=torch.float64)  # 0 and 1 are always drawn
    sample = sampler(with_scores(sampler, scores).expand(draws, -1, -1))
    assert (sample.index.sort(-1).values == torch.tensor([0, 1])).all()
    for slot in range(k):
        frequency = torch.bincount(sample.partner[:, slot], minlength=n)[2:] / draws
        assert ((frequency - 0.25).abs() < 4.5 * (0.25 * 0.75 / draws) ** 0.5).all()


def test_which_tokens_go_without_partner_is_random():
    draws, k = 8000, 3
    sampler = make(k, dim=1)
    scores = torch.tensor([9.0, 8.0, 7.0, -9.0], dtype=torch.float64)  # one token is left for three
    sample = sampler(with_scores(sampler, scores).expand(draws, -1, -1))
    paired = sample.partner != sample.index
    assert (paired.sum(-1) == 1).all()
    frequency = torch.bincount(sample.index[paired], minlength=3)[:3] / draws
    assert ((frequency - 1 / 3).abs() < 4.5 * (2 / 9 / draws) ** 0.5).all()


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("k", [1, 3, 5, 9, 20])
def test_exactly_k_distinct_tokens_and_no_padding(mode, training, k):
    sizes = [5, 1, 9, 4, 3]
    sampler = make(k, mode).train(training)
    x, mask = tokens(len(sizes), max(sizes)), ragged(sizes)
    x[~mask] = torch.nan  # padding that is read anywhere would spread
    sample = sampler(x, mask)
    filled = torch.ones_like(sample.index, dtype=torch.bool) if sample.mask is None else sample.mask
    for graph, size in enumerate(sizes):
        drawn = sample.index[graph][filled[graph]]
        assert len(drawn) == min(k, size) == len(drawn.unique())
        assert drawn.max() < size
        if sample.partner is not None:
            partner = sample.partner[graph][filled[graph]]
            others = partner[partner != drawn]
            assert len(others) == min(len(drawn), size - len(drawn)) == len(others.unique())
            assert not torch.isin(others, drawn).any()
            assert others.numel() == 0 or others.max() < size
    assert sample.tokens.isfinite().all()
    assert (sample.tokens[~filled] == 0).all()


def test_mixtures_are_those_of_the_equation():
    sampler = make(3, temperature=0.5)
    x = tokens(4, 10)
    state = sampler.generator.get_state()
    sample = sampler(x)
    sampler.generator.set_state(state)
    z = x @ sampler.score.weight[0] + sampler.score.bias + sampler._gumbel(x[..., 0])
    strength = F.softplus(z) ** 2
    for graph in range(4):
        for slot in range(3):
            i, j = sample.index[graph, slot], sample.partner[graph, slot]
            p = strength[graph, i] / (strength[graph, i] + strength[graph, j])
            torch.testing.assert_close(sample.weight[graph, slot], p)
            torch.testing.assert_close(sample.tokens[graph, slot], p * x[graph, i] + (1 - p) * x[graph, j])
    assert (sample.weight > 0.5).all()  # the drawn token has the higher score of the two


@pytest.mark.parametrize("mask", [None, ragged([7, 4])], ids=["full", "ragged"])
def test_gradients_agree_with_finite_differences_for_fixed_noise(mask):
    sampler = make(3)
    x = tokens(2, 7).requires_grad_()

    def draw(x, weight, bias):
        sampler.generator.manual_seed(3)
        return torch.func.functional_call(sampler, {"score.weight": weight, "score.bias": bias}, (x, mask)).tokens

    weight, bias = sampler.score.weight.detach().requires_grad_(), sampler.score.bias.detach().requires_grad_()
    assert torch.autograd.gradcheck(draw, (x, weight, bias))


def test_straight_through_is_hard_forward_and_soft_backward():
    soft, hard = make(3), make(3, "straight_through")
    hard.load_state_dict(soft.state_dict())
    x = tokens(2, 9)
    gradients = []
    for sampler in (soft, hard):
        own = x.clone().requires_grad_()
        sample = sampler(own)
        (sample.tokens * tokens(2, 3, seed=1)).sum().backward()
        gradients.append((own.grad, sampler.score.weight.grad))
    torch.testing.assert_close(gradients[0], gradients[1])
    assert torch.equal(sample.tokens, x.gather(1, sample.index.unsqueeze(-1).expand(-1, -1, DIM)))


def test_gradients_with_replacement_are_soft_and_divided_by_k():
    k = 4
    sampler = make(k, "with_replacement")
    x, mask, weight = tokens(2, 6).requires_grad_(), ragged([6, 4]), tokens(2, k, seed=1)
    state = sampler.generator.get_state()
    sample = sampler(x, mask)
    actual = torch.autograd.grad((sample.tokens * weight).sum(), (x, sampler.score.weight))
    sampler.generator.set_state(state)
    noise = sampler._gumbel(x[..., 0], (2, k, 6))
    strength = F.softplus(sampler.score(x).squeeze(-1).unsqueeze(1) + noise) * mask.unsqueeze(1)
    soft = (strength / strength.sum(-1, keepdim=True)) @ x
    expected = torch.autograd.grad((soft * weight).sum() / k, (x, sampler.score.weight))
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert sample.index.shape == (2, k)
    assert (sample.index[1] < 4).all()
    assert torch.equal(sample.tokens, x.gather(1, sample.index.unsqueeze(-1).expand(-1, -1, DIM)))


@pytest.mark.parametrize("mode", MODES)
def test_topk_is_the_plain_top_k(mode):
    sampler = make(3, mode, evaluation="topk").eval()
    x, mask = tokens(3, 8), ragged([8, 2, 5])
    sample = sampler(x, mask)
    scores = sampler.score(x).squeeze(-1)
    for graph, size in enumerate((8, 2, 5)):
        best = scores[graph, :size].topk(min(3, size)).indices
        assert torch.equal(sample.index[graph, : len(best)], best)
        assert torch.equal(sample.tokens[graph, : len(best)], x[graph, best])
    assert torch.equal(sampler(x, mask).tokens, sample.tokens)
    assert torch.equal(sampler(x[1:2, :2]).tokens[0], sample.tokens[1, :2])  # alone as in the batch


def test_of_equal_importance_topk_takes_the_lowest_names_or_else_the_first():
    sampler = make(2, evaluation="topk").eval()
    x = torch.ones(1, 50, DIM, dtype=torch.float64)
    assert sampler(x).index.tolist() == [[0, 1]]
    names = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert sampler(x, names=names.unsqueeze(0)).index.tolist() == [names.argsort()[:2].tolist()]
    x[0, 7] += 0.1 * sampler.score.weight[0].detach()  # the most important one comes first, whatever its name
    assert sampler(x, names=names.unsqueeze(0)).index[0, 0] == 7


@pytest.mark.parametrize("mode", MODES[:2])
def test_evaluation_as_trained_includes_tokens_as_often_as_training(mode):
    graphs, k = 20_000, 3
    scores = torch.tensor([1.5, 0.7, 0.0, -0.4, -1.0, -2.5], dtype=torch.float64)
    sampler = make(k, mode, dim=1).eval()
    names = scramble(scramble(torch.arange(graphs))[:, None] + torch.arange(6))
    sample = sampler(with_scores(sampler, scores).expand(graphs, -1, -1), names=names)
    frequency = torch.bincount(sample.index.flatten(), minlength=6) / graphs
    expected = successive_inclusion(scores, k)
    assert ((frequency - expected).abs() < 4.5 * (expected * (1 - expected) / graphs).sqrt() + 1e-9).all()


def test_partners_of_evaluation_as_trained_are_uniform():
    graphs, k, n = 8000, 2, 6
    sampler = make(k, dim=1).eval()
    scores = torch.tensor([50.0, 40.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    names = scramble(scramble(torch.arange(graphs))[:, None] + torch.arange(n))
    sample = sampler(with_scores(sampler, scores).expand(graphs, -1, -1), names=names)
    for slot in range(k):
        frequency = torch.bincount(sample.partner[:, slot], minlength=n)[2:] / graphs
        assert ((frequency - 0.25).abs() < 4.5 * (0.25 * 0.75 / graphs) ** 0.5).all()


def test_mixtures_of_evaluation_are_those_of_the_equation():
    sampler = make(3, temperature=0.5).eval()
    x, names = tokens(4, 10), scramble(torch.arange(40)).view(4, 10)
    sample = sampler(x, names=names)
    strength = F.softplus(sampler.score(x).squeeze(-1) + gumbel(names)) ** 2
    for graph in range(4):
        assert len(torch.cat([sample.index[graph], sample.partner[graph]]).unique()) == 6
        i, j = sample.index[graph], sample.partner[graph]
        p = strength[graph, i] / (strength[graph, i] + strength[graph, j])
        torch.testing.assert_close(sample.weight[graph], p)
        torch.testing.assert_close(sample.tokens[graph], p[:, None] * x[graph, i] + (1 - p[:, None]) * x[graph, j])


@pytest.mark.parametrize("evaluation", ["as_trained", "topk"])
@pytest.mark.parametrize("mode", MODES)
def test_evaluation_repeats_alone_and_beside_larger_graphs(mode, evaluation):
    sampler = make(3, mode, evaluation=evaluation).eval()
    x, mask = tokens(3, 8), ragged([8, 2, 5])
    sample = sampler(x, mask)
    state = sampler.generator.get_state()
    assert torch.equal(sampler(x, mask).tokens, sample.tokens)
    assert torch.equal(sampler.generator.get_state(), state)
    for graph, size in enumerate((8, 2, 5)):
        alone = sampler(x[graph : graph + 1, :size]).tokens[0]
        assert torch.equal(alone, sample.tokens[graph, : len(alone)])


def test_evaluation_with_replacement_draws_each_slot_anew():
    graphs, k = 20_000, 4
    sampler = make(k, "with_replacement", dim=1).eval()
    scores = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
    names = scramble(scramble(torch.arange(graphs))[:, None] + torch.arange(3))
    index = sampler(with_scores(sampler, scores).expand(graphs, -1, -1), names=names).index
    expected = scores.softmax(0)
    for slot in range(k):
        frequency = torch.bincount(index[:, slot], minlength=3) / graphs
        assert ((frequency - expected).abs() < 4.5 * (expected * (1 - expected) / graphs).sqrt()).all()
    both = ((index[:, 0] == 0) & (index[:, 1] == 0)).double().mean()
    assert abs(both - expected[0] ** 2) < 4.5 * (0.25 / graphs) ** 0.5


def test_draws_continue_after_loading():
    sampler, x = make(3), tokens(2, 12)
    sampler(x)
    buffer = io.BytesIO()
    torch.save(sampler.state_dict(), buffer)
    expected = [sampler(x).index for _ in range(3)]
    torch.manual_seed(99)
    fresh = DifferentiableSampler(DIM, 3).double()
    buffer.seek(0)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    torch.manual_seed(7)  # the module's draws do not depend on the global generator
    for index in expected:
        assert torch.equal(fresh(x).index, index)


def test_copies_draw_the_same_and_seeds_differ():
    sampler, x = make(3), tokens(1, 40)
    twin = copy.deepcopy(sampler)
    assert torch.equal(sampler(x).index, twin(x).index)
    torch.manual_seed(1)
    other = DifferentiableSampler(DIM, 3).double()
    other.score.load_state_dict(sampler.score.state_dict())
    assert not torch.equal(sampler(x).index, other(x).index)


def test_a_score_without_choice_still_gets_a_gradient():
    sampler = make(10)
    sampler(tokens(2, 4)).tokens.sum().backward()
    assert torch.equal(sampler.score.weight.grad, torch.zeros(1, DIM, dtype=torch.float64))


def test_log_softplus_at_both_ends():
    score = torch.tensor([-500.0, -40.0, -29.0, 0.0, 30.0, 1e4], dtype=torch.float64, requires_grad=True)
    value = _log_softplus(score)
    exact = torch.tensor([-500.0, -40.0, -29.0, 0.0, 30.0, 1e4], dtype=torch.float64)
    exact[2:] = torch.log1p(exact[2:].exp()).log()
    exact[-1] = exact.new_tensor(1e4).log()
    torch.testing.assert_close(value.detach(), exact, rtol=1e-9, atol=1e-9)
    value.sum().backward()
    assert score.grad.isfinite().all()
    torch.testing.assert_close(score.grad[:2], torch.ones(2, dtype=torch.float64))


def test_sampler_trains_under_bfloat16():
    torch.manual_seed(0)
    sampler = DifferentiableSampler(DIM, 3)
    x = tokens(2, 9).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sample = sampler(x, ragged([9, 5]))
    sample.tokens.float().sum().backward()
    assert sampler.score.weight.grad.isfinite().all()
    assert sampler.score.weight.grad.any()


def test_a_single_graph_needs_no_batch_axis():
    sampler = make(3).eval()
    x = tokens(8)
    assert torch.equal(sampler(x).tokens, sampler(x.unsqueeze(0)).tokens[0])


def test_bad_options_of_the_sampler_are_refused():
    for options, message in (
        ({"num_samples": 0}, "num_samples must be an integer of at least 1, but got 0"),
        ({"num_samples": None}, "num_samples must be an integer of at least 1, but got None"),
        ({"num_samples": 2.5}, "num_samples must be an integer of at least 1, but got 2.5"),
        ({"num_samples": 1, "evaluation": "best"}, "evaluation must be one of as_trained, topk, but got 'best'"),
        ({"num_samples": 1, "temperature": None}, "temperature must be above 0 and below inf, but got None"),
        ({"num_samples": 1, "mode": "sometimes"}, "one of without_replacement, straight_through, with_replacement"),
        ({"num_samples": 1, "temperature": 0.0}, "temperature must be above 0 and below inf, but got 0.0"),
    ):
        with pytest.raises(BadInput, match=message):
            DifferentiableSampler(DIM, **options)
    with pytest.raises(BadInput, match=r"mask must be bool \[2, 5\]"):
        make(3)(tokens(2, 5), torch.ones(2, 4, dtype=torch.bool))


def test_equal_noise_does_not_make_the_order_of_tokens_matter():
    names, order = torch.arange(20_000)[None], torch.randperm(20_000, generator=torch.Generator().manual_seed(0))
    assert uniform(names).unique().numel() < 20_000, "no two tokens have the same noise"
    sampler = DifferentiableSampler(1, 10_000).eval()
    torch.nn.init.zeros_(sampler.score.weight)  # else rounding of the scores could depend on the order
    x = names.float().unsqueeze(-1)
    assert torch.equal(sampler(x, names=names).tokens, sampler(x[:, order], names=names[:, order]).tokens)
