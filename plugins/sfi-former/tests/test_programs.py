"""Flows in programs of torch.compile, one operation each, against the same calls outside of programs."""

import pytest
import torch
from packaging.version import Version

from graphbench.errors import BadInput
from graphbench_sfi_former import sparse_flow, sparse_flow_attention

pytestmark = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.13"),
    reason="torch.compiler.is_exporting() is true in compiled programs of PyTorch 2.10, which so hold no operation",
)
OPERATIONS = torch.ops.graphbench_sfi_former
MASK = torch.tensor([True, True, False, True, True]).expand(2, 1, 1, 5)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attend(scale, dropout=0.0, alpha=0.1, mask=MASK):
    """A function of Q, K, Q~, K~, V, penalty; two graphs, three heads, four queries, five keys."""
    torch.manual_seed(0)
    tensors = [numbers(2, 3, n, 4, seed=seed) * scale for seed, n in enumerate((4, 5, 4, 5, 5))]
    penalty = torch.tensor([0.25, 0.2]).view(2, 1, 1, 1)
    return lambda *given: sparse_flow_attention(*given, alpha, mask, dropout=dropout), [*tensors, penalty]


def flow(alpha=None, mask=None):
    """A function of resistances, frictions and the penalty."""
    tensors = [numbers(2, 4, 5, seed=seed).exp() for seed in (0, 1)]
    return lambda *given: sparse_flow(*given, alpha, mask), [*tensors, torch.tensor(0.3)]


CASES = {
    "attention": attend(1.0),
    "dropout": attend(1.0, dropout=0.5),
    "hard constraint": attend(1.0, alpha=None, mask=None),
    "weights with gradients": attend(1.0, alpha=torch.tensor(0.1)),
    "steep rows": attend(20.0, dropout=0.5),
    "flow": flow(),
    "masked flow": flow(0.1, MASK[0, 0]),
}


def results(function, tensors):
    """The result and the gradients of all tensors, with the same draws each time."""
    torch.manual_seed(3)
    leaves = [x.clone().requires_grad_() for x in tensors]
    made = function(*leaves)
    (made * numbers(*made.shape, seed=9)).sum().backward()
    return [made.detach(), *(x.grad for x in leaves)]


def assert_program_is_equal(function, tensors):
    program = torch.compile(function, backend="aot_eager", fullgraph=True)
    for found, expected in zip(results(program, tensors), results(function, tensors), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("case", CASES)
def test_programs_compute_what_is_computed_outside_of_them(case):
    function, tensors = CASES[case]
    assert_program_is_equal(function, tensors)


def test_programs_draw_dropout_anew_in_every_call():
    function, tensors = CASES["dropout"]
    program = torch.compile(function, backend="aot_eager", fullgraph=True)
    assert not torch.equal(program(*tensors), program(*tensors))


def test_half_precision_is_computed_in_float32_by_programs_as_well():
    function, tensors = CASES["attention"]

    def under_autocast(*given):
        with torch.autocast("cpu", torch.bfloat16):
            return function(*(x @ torch.eye(4) for x in given[:5]), given[5])

    assert_program_is_equal(under_autocast, tensors)


def test_programs_refuse_what_is_refused_outside_of_them():
    function, tensors = CASES["attention"]
    program = torch.compile(function, backend="eager", fullgraph=True)
    with pytest.raises(BadInput, match="penalty"):
        program(*tensors[:5], -tensors[5])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_shapes_and_types_of_the_operation_are_known_beforehand(dropout):
    _, (*projections, penalty) = CASES["attention"]
    alpha, seed = torch.tensor(0.1), torch.tensor(7) if dropout else None
    given = (*(x.requires_grad_() for x in projections), penalty, alpha, MASK, dropout, seed)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_dynamic")
    passed = torch.library.opcheck(OPERATIONS.attend_in_program.default, given, test_utils=checks)
    assert passed == dict.fromkeys(checks, "SUCCESS")
