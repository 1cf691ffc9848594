"""Which tasks read values back from the device in a training step, found on torch's meta device."""

from typing import get_args
from unittest import mock

import pytest
import torch
from torch import nn

from graphbench import Architecture, BenchmarkModule, Representation
from graphbench.contracts.spec import TaskName
from graphbench.testing import tiny_spec, tiny_table
from graphbench.testing.waiting import without_autocast


class Rows(Architecture):
    def __init__(self, spec):
        super().__init__(spec, 4)
        self.map = nn.Linear(spec.node.dense, 4)

    def forward(self, batch):
        return Representation(node=self.map(batch.x_dense))


def step_on_meta(task):
    spec = tiny_spec(task, "both")
    model = BenchmarkModule(spec, Rows).train().to("meta")
    batch = tiny_table(spec).batch(range(3)).to("meta")
    with without_autocast(), mock.patch.object(model, "log_dict"):
        model.training_step(batch, 0).backward()
    return model


@pytest.mark.parametrize("name", get_args(TaskName))
def test_a_training_step_reads_nothing_or_its_task_says_why(name):
    """Run the network, the loss and the metrics of the training split."""
    reason = BenchmarkModule(tiny_spec(name, "both"), Rows).task.waits_for_device
    if reason:
        with pytest.raises((RuntimeError, NotImplementedError)):
            step_on_meta(name)
        return
    assert step_on_meta(name).architecture.map.weight.grad.is_meta
    assert torch.get_default_device().type == "cpu"
