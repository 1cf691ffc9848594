"""Performer against sums over pairs of tokens, and its random features against the softmax that they estimate."""

from __future__ import annotations

import pytest
import torch

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences import performer
from graphbench_sequences.attention import SoftmaxAttention
from graphbench_sequences.performer import PerformerAttention, orthogonal_directions

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)
LAYOUT = DenseLayout.from_batch(graph_of)


def features(x, directions, kernel, largest):
    if directions is None:
        return torch.where(x > 0, x, 0) + 1e-3
    along = x / x.shape[-1] ** 0.25 @ directions.T
    if kernel == "relu":
        return along.clamp(min=0) + 1e-3
    half = (x / x.shape[-1] ** 0.25).square().sum(-1, keepdim=True) / 2
    return (torch.exp(along - half - largest(along)) + 1e-6) / len(directions) ** 0.5


@pytest.mark.parametrize(("kernel", "num_features"), [("relu", 6), ("relu", None), ("softmax", 6), ("softmax", 2)])
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_it_agrees_with_its_equation(made, kernel, num_features, scale):
    """Also if some features equal their lower bound."""
    attention = made(lambda: PerformerAttention(8, num_heads=2, num_features=num_features, kernel=kernel))
    x = scale * torch.randn(15, 8, dtype=torch.float64)
    found = attention(x, LAYOUT)
    directions = None if num_features is None else attention.directions.double()
    for graph in range(3):
        q, k, v = (x[graph_of == graph] @ weight.T for weight in attention.qkv_map.weight.chunk(3))
        heads = []
        for h in (slice(0, 4), slice(4, 8)):
            query = features(q[:, h], directions, kernel, lambda along: along.amax(-1, keepdim=True))
            key = features(k[:, h], directions, kernel, lambda along: along.max())
            weights = query @ key.T
            heads.append(weights @ v[:, h] / weights.sum(-1, keepdim=True))
        expected = torch.cat(heads, dim=1) @ attention.out_map.weight.T
        torch.testing.assert_close(found[graph_of == graph], expected, rtol=1e-12, atol=1e-12)


def test_many_features_approach_softmax_attention(monkeypatch):
    """Without the lower bound of features, which biases the estimate."""
    monkeypatch.setitem(performer._LEAST, "softmax", 0.0)
    torch.manual_seed(0)
    attention = PerformerAttention(8, num_heads=2, num_features=20_000, kernel="softmax").double()
    full = SoftmaxAttention(8, 2).double()
    full.load_state_dict({name: value for name, value in attention.state_dict().items() if name != "directions"})
    x = 0.4 * torch.randn(15, 8, dtype=torch.float64)  # the estimate's variance grows with exp(|q + k|^2 / sqrt(d))
    expected = full(x, LAYOUT)
    assert (attention(x, LAYOUT) - expected).norm() < 0.05 * expected.norm()


def test_directions_are_orthogonal_and_as_long_as_gaussian_ones():
    torch.manual_seed(0)
    directions = orthogonal_directions(4_000, 4).double()
    blocks = directions.view(1_000, 4, 4)
    products = blocks @ blocks.transpose(1, 2)
    assert (products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))).abs().max() < 1e-5
    assert directions.square().sum(1).mean() == pytest.approx(4, rel=0.05)
    assert directions.mean(0).abs().max() < 0.06, "no direction is preferred"
    assert blocks.mean(0).abs().max() < 0.12, "nor any by its place in a block"


def test_without_directions_nothing_is_sampled_or_saved():
    attention = PerformerAttention(8, num_heads=2, num_features=None)
    before = torch.get_rng_state()
    torch.manual_seed(0)
    other = PerformerAttention(8, num_heads=2, num_features=None)
    torch.set_rng_state(before)
    assert attention.directions is None
    assert set(attention.state_dict()) == {"qkv_map.weight", "out_map.weight"}
    other.load_state_dict(attention.state_dict())
    x = torch.randn(15, 8)
    assert torch.equal(other(x, LAYOUT), attention(x, LAYOUT))


def test_softmax_needs_directions():
    with pytest.raises(BadInput, match="num_features must be a number for kernel: softmax, such as 256, but got None"):
        PerformerAttention(8, num_heads=2, num_features=None, kernel="softmax")


def test_padding_far_from_the_origin_does_no_harm(made):
    """Keys of a short document are small compared with those of a long one, which has its own largest exponent."""
    attention = made(lambda: PerformerAttention(8, num_heads=2, num_features=6, kernel="softmax"))
    x = torch.randn(15, 8, dtype=torch.float64)
    x[6:] *= 40
    found = attention(x, LAYOUT)
    alone = attention(x[:5], DenseLayout.from_batch(torch.zeros(5, dtype=torch.long)))
    assert found.isfinite().all()
    torch.testing.assert_close(found[:5], alone, rtol=1e-12, atol=1e-12)
