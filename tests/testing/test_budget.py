"""A step's budget counts the waits and launches of a CUDA device."""

from pathlib import Path

import pytest
import torch
import torchgen
import yaml
from torch import nn

from graphbench import Architecture, Representation
from graphbench.testing import ArchitectureContract, tiny_spec
from graphbench.testing.budget import check_budget, counted_steps
from graphbench.testing.pretend import NOT_ON_APPLE

_TABLE = "packaged/ATen/native/native_functions.yaml"


class Linear(Architecture):
    """One linear map of a column of ones, followed by an operation of the test."""

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


class Doubling(Plain):
    extra = staticmethod(lambda x: x.double().float())


class Segmented(Plain):
    extra = staticmethod(lambda x: torch.segment_reduce(x, "max", lengths=torch.ones_like(x[:, 0]).long()))


def work(contract):
    counted = counted_steps(__file__)[contract.__name__]
    assert not counted["failed"]
    return counted["waits"], counted["launches"]


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
    assert "test_budget.py" in next(iter(waits)), "names the line that reads it"


def test_a_tensor_left_on_the_processor_is_an_error():
    assert "on one device" in counted_steps(__file__)["Mixing"]["failed"]


@pytest.mark.parametrize(("contract", "lacks"), [(Doubling, "float64"), (Segmented, "segment_reduce")])
def test_what_apple_gpus_lack_fails_there_alone(contract, lacks):
    counted = counted_steps(__file__)
    assert counted[contract.__name__]["failed"] == ""
    assert lacks in counted[contract.__name__]["failed_on_apple"]
    assert counted["Plain"]["failed_on_apple"] == ""


def test_operations_that_apple_gpus_lack_are_those_of_pytorch():
    """PyTorch's table says which devices have a kernel for an operation; `torchgen` contains it."""
    table = yaml.load((Path(torchgen.__file__).parent / _TABLE).read_text(), Loader=yaml.CSafeLoader)
    kernels = {}
    for operation in table:
        name = operation["func"].partition("(")[0].partition(".")[0]
        if "structured_delegate" not in operation:  # otherwise another operation has its kernels
            devices = ", ".join(operation.get("dispatch", {"CompositeImplicitAutograd": ""}))
            kernels.setdefault(name, set()).update(devices.split(", "))
    for name in NOT_ON_APPLE:
        assert {"CPU", "CUDA"} <= kernels[name], name
        assert not {"MPS", "CompositeImplicitAutograd", "CompositeExplicitAutograd"} & kernels[name], name


@pytest.mark.parametrize(("most", "fits"), [(9, False), (10, True), (12, True), (13, False)])
def test_a_budget_is_neither_exceeded_nor_left_loose(most, fits):
    if fits:
        check_budget("most_launches", most, {"mm": 6, "add": 4})
    else:
        with pytest.raises(AssertionError, match="most_launches"):
            check_budget("most_launches", most, {"mm": 6, "add": 4})
