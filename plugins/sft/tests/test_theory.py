"""Claims of section 4.4 of the paper for a layer without sampling, as far as numbers can show them.

Theorem B.6: within an orthant, where neither a maximum nor a ReLU switches, every output is a ratio of affine functions
of the weights with a positive denominator, and so pseudoconvex: a slope that is not negative leads nowhere lower.
Theorem B.9: the expected squared norm of the gradient grows like n for W_V and like a constant for W_Q.
"""

import pytest
import torch
from torch.func import functional_call

from graphbench.nn import DenseLayout
from graphbench_sft import SampledAttention, maxout_scores
from graphbench_sft.relative import DenseRelation

TOKENS, DIM, HEADS, WIDTH = 3, 4, 1, 2  # of several heads the output is a sum of ratios, for which this does not hold
WEIGHTS = {
    "queries": ("query_map.weight", "query_map.bias"),
    "keys": ("key_map.weight", "key_map.bias"),
    "additive relative terms": ("relative.linear.weight", "relative.linear.bias"),
    "bias of the leak": ("leak_map.bias",),
}


class Probe:
    """Return one output of a random layer as a function of its weights, and the orthant of these weights."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.layer = SampledAttention(DIM, HEADS, TOKENS, sampler="none", relation_dim=WIDTH).double().eval()
        self.layout = DenseLayout.from_rows(torch.zeros(TOKENS, dtype=torch.int64), torch.tensor([0, TOKENS]), TOKENS)
        self.relations = [DenseRelation(torch.randn(1, WIDTH, TOKENS, TOKENS, dtype=torch.float64))]
        self.x = torch.randn(TOKENS, DIM, dtype=torch.float64)
        self.parameters = {name: value.detach() for name, value in self.layer.named_parameters()}

    def output(self, parameters):
        return functional_call(self.layer, parameters, (self.x, self.layout, self.relations))[0, 0]

    def orthant(self, parameters):
        """Return the operand that each maximum takes, and the sign of each score."""
        query, key = (
            (self.x @ parameters[f"{name}_map.weight"].T + parameters[f"{name}_map.bias"])
            .unflatten(-1, (HEADS, -1))
            .transpose(0, 1)
            for name in ("query", "key")
        )
        weight, bias = parameters["relative.linear.weight"], parameters["relative.linear.bias"]
        mapped = torch.einsum("or,rij->oij", weight, self.relations[0].values[0]) + bias.view(-1, 1, 1)
        multiply, add = mapped.chunk(2)
        scores = maxout_scores(query, key) * torch.nn.functional.softplus(multiply) + add
        return torch.cat([(query.unsqueeze(2) > key.unsqueeze(1)).flatten(), (scores > 0).flatten()])

    def step(self, names, scale):
        step = {name: scale * torch.randn_like(self.parameters[name]) for name in names}
        for name in names:
            if name.startswith("relative"):
                step[name][:HEADS] = 0  # the multiplicative half passes a softplus, which is not affine
        return step


def slopes(names, scale, seeds=400):
    """`(slope, change, same orthant)` of one output from random weights to others."""
    for seed in range(seeds):
        probe = Probe(seed)
        step = probe.step(names, scale)
        leaves = {name: probe.parameters[name].clone().requires_grad_() for name in names}
        start = probe.output(probe.parameters | leaves)
        gradients = torch.autograd.grad(start, list(leaves.values()))
        moved = probe.parameters | {name: probe.parameters[name] + step[name] for name in names}
        slope = sum((gradient * step[name]).sum() for gradient, name in zip(gradients, names, strict=True))
        same = torch.equal(probe.orthant(probe.parameters), probe.orthant(moved))
        yield float(slope), float(probe.output(moved) - start.detach()), same


@pytest.mark.parametrize(
    "weights", [name if name == "queries" else pytest.param(name, marks=pytest.mark.slow) for name in WEIGHTS]
)
def test_outputs_are_pseudoconvex_within_an_orthant(weights):
    checked = 0
    for slope, change, same in slopes(WEIGHTS[weights], scale=0.03):
        if same and slope >= 0:
            checked += 1
            assert change >= -1e-12
    assert checked >= 20


@pytest.mark.slow
def test_outputs_are_not_pseudoconvex_across_orthants():
    found = [change for slope, change, same in slopes(WEIGHTS["queries"], scale=0.5) if not same and slope >= 0]
    assert min(found) < -1e-3


def gradient_norms(tokens, dim, mean=0.0, draws=8):
    """Expected squared norms of the Jacobians of W_V and W_Q, `E |J^T u|^2 = |J|^2` of normal u; He initialisation."""
    norms = torch.zeros(2, dtype=torch.float64)
    layout = DenseLayout.from_rows(torch.zeros(tokens, dtype=torch.int64), torch.tensor([0, tokens]), tokens)
    for seed in range(draws):
        torch.manual_seed(seed)
        layer = SampledAttention(dim, 1, tokens, sampler="none").double().eval()
        for linear in (layer.query_map, layer.key_map, layer.value_map):
            torch.nn.init.normal_(linear.weight, std=(2 / dim) ** 0.5)
            torch.nn.init.zeros_(linear.bias)
        torch.nn.init.eye_(layer.out_map.weight)
        out = layer(torch.randn(tokens, dim, dtype=torch.float64) + mean, layout)
        gradients = torch.autograd.grad(
            (out * torch.randn_like(out)).sum(), (layer.value_map.weight, layer.query_map.weight)
        )
        norms += torch.stack([gradient.square().sum() for gradient in gradients]) / draws
    return norms


def exponent(values, tokens):
    """Slope of the logarithms: the power of n."""
    x, y = torch.tensor(tokens).double().log(), torch.stack(list(values)).log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def test_gradient_of_the_value_map_grows_with_the_tokens():
    """Of tokens with a common mean; without one, their mixture shrinks while they are fewer than channels."""
    tokens = (16, 32, 64, 128, 256)
    assert 0.9 < exponent([gradient_norms(n, 32, mean=1.0)[0] for n in tokens], tokens) < 1.1


@pytest.mark.slow
def test_gradient_of_the_query_map_stays_level_while_tokens_are_fewer_than_channels():
    """With far more tokens than channels it does grow: the part of the value that follows the score adds up."""
    few, many = (8, 16, 32, 64), (128, 512, 1024)
    assert abs(exponent([gradient_norms(n, 192)[1] for n in few], few)) < 0.2
    assert exponent([gradient_norms(n, 8, draws=4)[1] for n in many], many) > 0.5
