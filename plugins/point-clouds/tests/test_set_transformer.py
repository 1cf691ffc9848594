"""Set Transformer against its equations, head by head."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from graphbench.errors import BadInput
from graphbench_point_clouds import SetTransformer
from graphbench_point_clouds.set_transformer import AttentionBlock, InducedBlock

DIM, HEADS = 6, 2


def mab(x, y, block):
    """One set after the other."""
    q, k, v = block.query(x), block.key(y), block.value(y)
    mixed = torch.empty_like(q)
    for part in torch.arange(DIM).chunk(HEADS):
        mixed[:, part] = (q[:, part] @ k[:, part].T / DIM**0.5).softmax(1) @ v[:, part]
    h = q + mixed
    return h + block.out(h).relu()


def test_attention_divides_by_the_root_of_the_whole_width(made):
    block = made(lambda: AttentionBlock(3, DIM, HEADS, 4), scale=0.8)
    x, y = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 7, 4, dtype=torch.float64)
    found = block(x, y)
    for row in range(2):
        torch.testing.assert_close(found[row], mab(x[row], y[row], block), rtol=1e-10, atol=1e-10)


def test_points_see_each_other_through_inducing_points(made):
    layer = made(lambda: InducedBlock(3, DIM, HEADS, 4), scale=0.8)
    x = torch.randn(1, 5, 3, dtype=torch.float64)
    expected = mab(x[0], mab(layer.inducing, x[0], layer.gather), layer.spread)
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-10, atol=1e-10)


def test_a_seed_pools_each_cloud(spec, cut, made):
    model = made(lambda: SetTransformer(spec, DIM, num_heads=HEADS, num_inducing=4), scale=0.8)
    batch = cut(spec, (9, 3, 9))
    found = model(batch).graph
    for cloud in range(3):
        x = batch.pos[batch.ptr[cloud] : batch.ptr[cloud + 1]][None]
        for layer in model.layers:
            x = layer(x)
        torch.testing.assert_close(found[cloud], mab(model.seed, x[0], model.pool)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("count", "bound"), [(16, (6 / 4352) ** 0.5), (1, (6 / 512) ** 0.5)])
def test_learned_points_start_within_the_released_bounds(spec, count, bound):
    """Xavier's bound for a tensor [1, count, 256]: the fan-in is count times 256, the fan-out 256."""
    torch.manual_seed(0)
    models = [SetTransformer(spec, 256, num_inducing=count) for _ in range(4)]
    values = torch.cat([(m.layers[0].inducing if count > 1 else m.seed).detach().flatten() for m in models])
    assert stats.kstest(values.numpy(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 0.001
    assert values.abs().max() <= bound


def test_heads_divide_the_width(spec):
    with pytest.raises(BadInput, match="num_heads=4 and hidden_dim=6"):
        SetTransformer(spec, 6)
