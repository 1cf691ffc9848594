"""A step's budget counts what a card would wait for and launch."""

import pytest
import torch
from torch import nn

from graphbench import Architecture, Representation
from graphbench.testing import ArchitectureContract, tiny_spec
from graphbench.testing.budget import counted_steps


class Linear(Architecture):
    """One linear map of a column of ones, and what a test adds."""

    def __init__(self, spec, extra=lambda x: x):
        super().__init__(spec, dim=4)
        self.map, self.extra = nn.Linear(1, 4), extra

    def forward(self, batch):
        return Representation(node=self.extra(self.map(torch.ones(len(batch.batch), 1, device=batch.batch.device))))


class Plain(ArchitectureContract):
    architecture = Linear
    extra = staticmethod(lambda x: x)

    def make_model(self, spec):
        return Linear(tiny_spec("node-regression"), self.extra)


class Exponential(Plain):
    extra = staticmethod(lambda x: x.exp())


class Viewed(Plain):
    extra = staticmethod(lambda x: x.view(-1, 2, 2).transpose(1, 2).transpose(1, 2).view(-1, 4))


class Reading(Plain):
    extra = staticmethod(lambda x: x if float(x.sum()) > 1e9 else -x)


class Mixing(Plain):
    extra = staticmethod(lambda x: x + torch.zeros(4))


def work(contract):
    return counted_steps(__file__)[contract.__name__]


def test_launches_of_an_operation_are_those_of_its_forward_and_backward():
    (waits, plain), (_, more) = work(Plain), work(Exponential)
    assert waits == {}
    assert more["exp"] == 1
    assert more["mul"] == plain.get("mul", 0) + 1, "the gradient of exp is one product"
    assert sum(more.values()) == sum(plain.values()) + 2


def test_views_cost_nothing():
    assert work(Viewed) == work(Plain)


def test_a_number_that_is_read_is_a_wait():
    waits, _ = work(Reading)
    assert sum(waits.values()) == 1
    assert "test_budget.py" in next(iter(waits)), "with the line that reads it"


def test_a_tensor_left_on_the_processor_is_an_error():
    assert "on one device" in work(Mixing)


@pytest.mark.parametrize(("most", "fits"), [(9, False), (10, True), (12, True), (13, False)])
def test_a_budget_is_neither_exceeded_nor_left_loose(most, fits):
    check = ArchitectureContract()._check_budget
    if fits:
        check("most_launches", most, {"mm": 6, "add": 4})
    else:
        with pytest.raises(AssertionError, match="most_launches"):
            check("most_launches", most, {"mm": 6, "add": 4})
