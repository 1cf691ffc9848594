"""Memory of steps compared with hand counts, and shapes that depend on values."""

from __future__ import annotations

import json

import pytest
import torch

from graphbench import Representation
from graphbench.contracts import Architecture
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec, tiny_table
from graphbench.testing.memory import Ledger, step_memory
from graphbench.testing.pretend import PretendedTensor, in_fork, on_pretended_device, watched_tensors
from graphbench.training.module import BenchmarkModule

pytestmark = pytest.mark.fresh_process
NODES, DIM = 60, 8


class Chain(Architecture):
    """Applies `exp` repeatedly: each keeps its result, `[NODES, DIM]`, for the backward pass."""

    def __init__(self, spec, depth: int = 5):
        super().__init__(spec, DIM)
        self.depth = depth
        self.weight = torch.nn.Parameter(torch.zeros(DIM))

    def forward(self, batch):
        x = self.weight.expand(batch.num_nodes, DIM)
        for _ in range(self.depth):
            x = x.exp()
        return Representation(x)


def kept(depth: int, numbers: bool = False) -> dict[str, int]:
    def count():
        module = BenchmarkModule(tiny_spec(), lambda spec: Chain(spec, depth))
        memory = step_memory(module, tiny_table(tiny_spec(), sizes=[20, 20, 20]).batch([0, 1, 2]), numbers=numbers)
        weights = sum(weight.numel() for weight in module.parameters())
        return json.dumps(memory.parts | {"kept": memory.saved, "weights": weights})

    return json.loads(in_fork(count))


@pytest.mark.parametrize("numbers", [pytest.param(False, marks=pytest.mark.slow), True])
def test_each_layer_keeps_its_result(numbers):
    assert kept(9, numbers)["kept"] - kept(4, numbers)["kept"] == 5 * NODES * DIM * 4


def test_adam_has_two_numbers_and_a_gradient_for_each_weight():
    parts = kept(3)
    assert 0 < parts["gradients"] <= 4 * parts["weights"]  # some may be allocated after the peak
    assert 0 <= parts["optimizer state"] - 2 * 4 * parts["weights"] < 100  # the step counts


def test_fused_attention_keeps_no_weights():
    def count():
        ledger = Ledger()
        with on_pretended_device(), watched_tensors(ledger.note):
            q = PretendedTensor(torch.empty(2, 4, 256, 8, device="meta")).requires_grad_()
            before = sum(size for _, size in ledger.events)
            out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
            left = sum(size for _, size in ledger.events) - before
        del out
        return str(left)

    rows = 2 * 4 * 256
    assert rows * 8 * 4 <= int(in_fork(count)) <= rows * (8 + 2) * 4  # the result and one number for each row


def test_known_numbers_decide_shapes_and_unknown_ones_are_named():
    def count():
        with on_pretended_device():
            known = PretendedTensor(torch.tensor([0, 3, 0, 4]))
            unknown = PretendedTensor(torch.empty(4, device="meta"))
            assert known.nonzero().shape == (2, 1)
            assert (unknown * known)[known > 0].shape == (2,)
            view = known[:2]
            known.copy_(unknown)
            for tensor in (unknown, known, view):
                with pytest.raises(BadInput, match=r"nonzero at .*test_memory.py"):
                    tensor.nonzero()
        return "done"

    assert in_fork(count) == "done"
