"""`torch.func.grad` and `vmap` over the weights of an ensemble work with all architectures but those named here."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, vmap

from graphbench import registry
from graphbench.testing import tiny_table
from graphbench.testing.model_case import ModelCase, all_specs, loss_of, make_batch

#: What PyTorch refuses, and why; both lists only ever get shorter. `docs/layers.md` names them.
NO_GRAD = {
    "DFiFormer": "sparse matrices of the flow's solver",
    "SFiFormer": "sparse matrices of the flow's solver",
}
NO_VMAP = {
    "Positions": "it has no weights",
    "SFT": "members scatter into one tensor",
    "Sequoia": "it reads the memory of a tensor",
    **NO_GRAD,
}
OPTIONS = {"PointNetPlusPlus": {"radius": 4.0}}
#: Architectures with a custom backward pass that take about a second; `make test-slow` runs the others.
QUICK = ("DeepGraph", "GraphMamba", "Graphormer", "SAT")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in registry.architectures()]
)
def test_gradients_and_members_are_those_of_autograd_and_of_a_loop(name):
    case = ModelCase()
    case.architecture, case.options = registry.load("architectures", name), OPTIONS.get(name, {})
    spec, model = next((spec, model) for spec in all_specs() if (model := case._try_model(spec)) is not None)
    model = model.double().eval()
    batch = make_batch(model, tiny_table(spec))
    batch = batch.apply(lambda values: values.double() if values.is_floating_point() else values)
    weights = {name: values.detach() for name, values in model.named_parameters()}
    others = [weights, {name: 1.1 * values for name, values in weights.items()}]

    def loss(own):
        return loss_of(functional_call(model, (own, dict(model.named_buffers())), (batch,)))

    if name in NO_GRAD:
        with pytest.raises(RuntimeError):
            grad(loss)(weights)
    elif weights:
        leaves = {name: values.clone().requires_grad_() for name, values in weights.items()}
        expected = torch.autograd.grad(loss(leaves), list(leaves.values()), materialize_grads=True, allow_unused=True)
        found = grad(loss)(weights)
        for one, other in zip(leaves, expected, strict=True):
            torch.testing.assert_close(found[one], other, msg=lambda text, one=one: f"{one}: {text}")
    together = {name: torch.stack([one[name] for one in others]) for name in weights}
    if name in NO_VMAP:
        with pytest.raises((RuntimeError, ValueError)):
            vmap(loss)(together)
    else:
        torch.testing.assert_close(vmap(loss)(together), torch.stack([loss(one) for one in others]))
