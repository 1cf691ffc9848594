"""Operations that count as kernels compute the same as their plain forms."""

import pytest
import torch

from graphbench.nn import ops
from graphbench.testing import computed_by
from graphbench.testing.counted_kernels import counted_as_kernels
from graphbench.testing.pretend import counted_work, in_fork, on_pretended_device

pytestmark = pytest.mark.fresh_process
ENDS = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
CALLS = {
    "sum_rectified": (lambda x, e, ends: ops.sum_rectified(x, ends, e, 1.5), (3, 4), (4, 4)),
    "edge_attention": (lambda x, e, ends: ops.edge_attention(x, ends, e, 2, 5.0, True), (3, 12), (4, 4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_numbers_and_gradients_are_those_of_the_plain_form(name):
    with computed_by("numba"):  # skips without the package
        pass
    call, *shapes = CALLS[name]
    draw = torch.Generator().manual_seed(0)
    given = [torch.randn(shape, generator=draw) for shape in shapes]

    def results(device):
        leaves = [x.to(device).requires_grad_() for x in given]
        found = call(*leaves, ENDS.to(device))
        found = [x for x in (found if isinstance(found, tuple) else (found,)) if x.requires_grad]
        return [*found, *torch.autograd.grad(sum((x * x).sum() for x in found), leaves)]

    def count():
        with on_pretended_device() as card:
            with counted_as_kernels({f"graphbench::{name}": (3, 20)}), counted_work() as work:
                numbers = [x.cpu() for x in results(card)]
            with counted_work() as plain:
                results(card)
        assert work.launches.pop(f"graphbench::{name}") == 23
        assert "index_select" not in work.launches
        assert f"graphbench::{name}" not in plain.launches
        for one, other in zip(numbers, results("cpu"), strict=True):
            torch.testing.assert_close(one, other)
        return "equal"

    assert in_fork(count) == "equal"
