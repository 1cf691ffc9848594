import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench.nn import BatchNorm, make_norm


@pytest.mark.parametrize("momentum", [0.1, None])  # None: all batches count alike, as weight averaging sets it
def test_batch_norm_is_that_of_torch(momentum):
    ours, reference, x = BatchNorm(4, momentum=momentum), nn.BatchNorm1d(4, momentum=momentum), torch.randn(7, 4)
    assert torch.equal(ours(2 * x), reference(2 * x))
    assert torch.equal(ours(x), reference(x))
    assert torch.equal(ours.running_var, reference.running_var)
    assert torch.equal(ours.eval()(x), reference.eval()(x))


@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_without_variance_uses_running_statistics(rows):
    norm, x = BatchNorm(4), torch.randn(rows, 4)
    norm(torch.randn(50, 4) * 3 + 1)
    before = norm.running_mean.clone()
    trained = norm(x)
    assert torch.equal(norm.running_mean, before)
    torch.testing.assert_close(trained, norm.eval()(x))


@pytest.mark.parametrize(("name", "kind"), [("batch", BatchNorm), ("layer", nn.LayerNorm), ("none", nn.Identity)])
def test_norms_by_name(name, kind):
    assert type(make_norm(name, 4)) is kind


def test_unknown_norm_is_an_error():
    with pytest.raises(BadInput, match="'instance'"):
        make_norm("instance", 4)
