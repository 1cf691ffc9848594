"""On an Apple GPU, which has no float64 and no compressed rows, flows equal those on other devices."""

import pytest
import torch

from graphbench.contracts import devices
from graphbench.testing import tiny_batch, tiny_spec
from graphbench_sfi_former import SFiFormer, sparse_flow, sparse_flow_attention, sparse_flow_edges


@pytest.fixture
def both(monkeypatch):
    """Compute a result and its gradients as on other devices, and as if the CPU were an Apple GPU."""

    def compute(make, *inputs):
        answers = []
        for kinds in (set(), {"cpu"}):
            monkeypatch.setattr(devices, "_APPLE", kinds)
            leaves = [x.clone().requires_grad_() for x in inputs]
            output = make(*leaves)
            answers.append((output.detach(), *torch.autograd.grad(output.square().sum(), leaves)))
        return answers

    return compute


def assert_equal(answers):
    for wanted, found in zip(*answers, strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alpha", [None, 2.0])
@pytest.mark.parametrize("spread", [1.0, 40.0], ids=["ordinary", "steep"])
def test_attention(both, spread, alpha):
    tensors = spread * torch.randn(4, 2, 9, 4, generator=torch.Generator().manual_seed(0))
    value = torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(1))
    assert_equal(both(lambda *x: sparse_flow_attention(*x, penalty=0.1, alpha=alpha), *tensors, value))


@pytest.mark.parametrize("alpha", [None, 0.7])
@pytest.mark.parametrize("power", [0.0, 15.0], ids=["ordinary", "ill-conditioned"])
def test_flow(both, power, alpha):
    generator = torch.Generator().manual_seed(0)
    resistance = 10 ** (power * torch.randn(6, 8, generator=generator))
    friction = torch.rand(6, 8, generator=generator)
    assert_equal(both(lambda *x: sparse_flow(*x, penalty=0.3, alpha=alpha), resistance, friction))


def test_flow_over_edges(both):
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(4, (20,), generator=generator)
    tensors = torch.rand(2, 20, generator=generator) + 0.1
    assert_equal(both(lambda *x: sparse_flow_edges(*x, target, num_nodes=4, penalty=0.3), *tensors))


def test_model_with_its_adjacency(both):
    torch.manual_seed(0)
    model = SFiFormer(tiny_spec(kind="dense"), hidden_dim=8, num_layers=2, num_heads=2).eval()
    batch = tiny_batch(model)
    weight = next(model.parameters())

    def nodes(value):
        batch.x_dense = value
        return model(batch).node

    assert weight.dtype == torch.float32
    assert_equal(both(nodes, batch.x_dense))
