import pytest
import torch
import torch.nn.functional as F

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sft import SampledAttention, SFTLayer

DIM = 8


def make(norm_position="post", **options):
    torch.manual_seed(0)
    return SFTLayer(DIM, SampledAttention(DIM, 2, 3), norm_position, **options).double()


def make_layout():
    return DenseLayout.from_rows(torch.tensor([0] * 5 + [1] * 4), torch.tensor([0, 5, 9]), 5)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_layer_follows_the_equations(norm_position):
    layer, layout = make(norm_position, embedding_dropout=0.4, ffn_dropout=0.4).eval(), make_layout()
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
    layer, layout = make(**{option: 0.5}), make_layout()
    layer.attention.sampler.eval()
    x = torch.randn(9, DIM, dtype=torch.float64)
    assert not torch.equal(layer(x, layout), layer(x, layout))
    layer.eval()
    assert torch.equal(layer(x, layout), layer(x, layout))


def test_unknown_norm_positions_are_refused():
    with pytest.raises(BadInput, match="norm_position must be one of pre, post, but got 'both'"):
        make("both")
