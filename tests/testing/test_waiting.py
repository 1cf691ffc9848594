import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from graphbench.contracts import Representation
from graphbench.testing.pretend import counted_work, in_fork, on_pretended_device
from graphbench.testing.waiting import check_reads_nothing

GRAPH = Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0, 1], [1, 0]]))


def in_a_fork(action):
    """Return the traceback of a forked process; "" if it succeeds."""
    return in_fork(lambda: action() or "")


class Model(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.map, self.step = nn.Linear(2, 2), step

    def forward(self, batch):
        return Representation(node=self.step(self.map(batch.x), batch))


def run(step):
    """Return the model after the check."""
    model = Model(step)
    check_reads_nothing(model, Batch.from_data_list([GRAPH, GRAPH]), lambda made: made.node.sum())
    return model


@pytest.mark.parametrize(
    "step",
    [
        lambda x, batch: x[batch.edge_index[0]],
        lambda x, batch: x.new_zeros(len(x), 2).index_add(0, batch.batch, x),
        lambda x, batch: torch.where(x > 0, x, 0),
    ],
)
def test_shapes_may_be_read(step):
    assert run(step).map.weight.grad.is_meta, "the gradient is computed without values"


@pytest.mark.parametrize(
    "step",
    [
        lambda x, batch: x * int(batch.batch.max()),
        lambda x, batch: x[batch.x[:, 0] > 0],
        lambda x, batch: x if (x > 0).any() else -x,
        lambda x, batch: x[batch.edge_index[0].unique()],
        lambda x, batch: x * torch.bincount(batch.batch)[0],
        lambda x, batch: x * batch.x.tolist()[0][0],
    ],
)
def test_numbers_may_not(step):
    with pytest.raises(AssertionError, match="a step reads from its device"):
        run(step)


def test_gradients_may_not_read_either():
    class Reading(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * float(grad.sum())

    with pytest.raises(AssertionError, match="a step reads from its device"):
        run(lambda x, batch: Reading.apply(x))


def test_autocast_is_off_there_and_as_before_behind_it():
    def step(x, batch):
        assert not torch.is_autocast_enabled("meta")
        with torch.autocast("meta", enabled=False):
            return x

    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(step)
        assert torch.is_autocast_enabled("cpu")
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("step", "waits"),
    [
        (lambda x: x @ x + x[x.long().flatten().clamp(0, 0)].sum(), 0),
        (lambda x: torch.full((), 3.0, device=x.device) * x, 0),
        (lambda x: x.to("cpu", non_blocking=True), 0),
        (lambda x: torch.zeros(2, 2).to(x.device, non_blocking=True) + x, 0),
        (lambda x: float(x.sum()), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x if (x > 0).any() else -x, 1),
        (lambda x: torch.tensor(3.0, device=x.device) * x, 1),
        (lambda x: torch.zeros(2, 2).to(x.device) + x, 1),
        (lambda x: x.unique(), 1),
        (lambda x: torch.repeat_interleave(x[0], x[0].abs().long()), 1),
    ],
)
def test_waits_for_a_pretended_card_are_counted(step, waits):
    def count():
        with on_pretended_device() as device:
            x = torch.randn(2, 2).to(device)
            with counted_work() as work:
                step(x)
            assert work.waits.total() == waits, work

    assert in_a_fork(count) == ""


def test_a_pretended_card_and_the_processor_do_not_mix():
    def mix():
        with on_pretended_device() as device, pytest.raises(RuntimeError, match="on one device"):
            torch.ones(2).to(device) + torch.ones(2)

    assert in_a_fork(mix) == ""
