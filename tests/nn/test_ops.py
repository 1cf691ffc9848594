"""Operations by kernels and by plain torch, compared with dense matrices in float64, and under torch's transforms."""

import pytest
import torch
from half_sums import HALF, half_sums
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as pyg

from graphbench import nn as ours
from graphbench.contracts import kernels
from graphbench.nn import (
    DenseLayout,
    attend_within_graphs,
    gated_messages,
    sum_neighbours,
    sum_rectified,
    sum_rows,
)
from graphbench.nn.convolution import LoopedGATConv
from graphbench.nn.ops import edge_attention
from graphbench.testing import computed_by

NODES, EDGES, WIDTH = 23, 61, 19


@pytest.fixture(params=["numba", "torch"], autouse=True)
def way(request):
    """Run every test with the loops and with torch's operations."""
    with computed_by(request.param):
        yield request.param


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture
def edge_index():
    """Return edges with parallel edges, loops and nodes without incoming edges."""
    ends = torch.randint(0, NODES - 3, (2, EDGES), generator=torch.Generator().manual_seed(7))
    ends[:, 1], ends[:, 2] = ends[:, 0], 5
    return ends


def incidence(ends):
    """Return the matrix `[T, E]` that is 1 where an edge has its end."""
    return torch.nn.functional.one_hot(ends, NODES).T.double()


def assert_agree(found, expected, inputs, exact):
    """Compare outputs and gradients of all inputs, with upstream gradients whose rows are not contiguous."""
    found, expected = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
    upstream = [draw(*x.shape[::-1], seed=9 + i).T for i, x in enumerate(expected)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, **tolerance(one))
    ours = torch.autograd.grad(found, inputs, [u.to(found[0].dtype) for u in upstream])
    for one, other in zip(ours, torch.autograd.grad(expected, exact, upstream), strict=True):
        torch.testing.assert_close(one.double(), other, **tolerance(one))


def tolerance(x):
    return {"rtol": 1e-12, "atol": 1e-12} if x.dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}


def both(dtype, *tensors):
    """Return leaves in this precision and, for the reference, in double."""
    given = [x.to(dtype).requires_grad_() for x in tensors]
    return given, [x.detach().double().requires_grad_() for x in given]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_neighbours_are_a_product_with_the_adjacency(dtype, weighted, edge_index):
    inputs, exact = both(dtype, draw(NODES, WIDTH), *([draw(EDGES, seed=1)] if weighted else []))
    source, target = (incidence(ends) for ends in edge_index)
    weight = exact[1] if weighted else torch.ones(EDGES, dtype=torch.float64)
    for own in (0.0, 1.5):
        expected = own * exact[0] + target @ (weight[:, None] * (source.T @ exact[0]))
        assert_agree(sum_neighbours(inputs[0], edge_index, *inputs[1:], own=own), expected, inputs, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_rectified_messages(dtype, edge_index):
    x, edges = draw(NODES, WIDTH), draw(EDGES, WIDTH, seed=1)
    x[edge_index[0, 4]], edges[4] = 1.0, -1.0  # a message of exactly 0
    inputs, exact = both(dtype, x, edges)
    source, target = (incidence(ends) for ends in edge_index)
    for own in (0.0, 1.5):
        expected = own * exact[0] + target @ (source.T @ exact[0] + exact[1]).relu()
        assert_agree(sum_rectified(inputs[0], edge_index, inputs[1], own), expected, inputs, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_gated_messages(dtype, scale, edge_index):
    inputs, exact = both(dtype, draw(NODES, 4 * WIDTH) * scale, draw(EDGES, WIDTH, seed=1) * scale)
    source, target = (incidence(ends) for ends in edge_index)
    own, sent, at_target, at_source = exact[0].chunk(4, 1)
    raw = target.T @ at_target + source.T @ at_source + exact[1]
    gates = raw.sigmoid()
    expected = own + target @ (gates * (source.T @ sent)) / (target @ gates + 1e-6)
    found = gated_messages(inputs[0], edge_index, inputs[1])
    if dtype == torch.float64 or scale == 1:
        assert_agree(found, (expected, raw), inputs, exact)
    else:  # gates of exp(-50) vanish beside 1e-6 in any precision
        torch.testing.assert_close(found[0].double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 3, 50])
def test_sums_of_rows_of_a_table(dtype, columns):
    (table,), (exact,) = both(dtype, draw(11, WIDTH))
    rows = torch.randint(0, 11, (40, columns), generator=torch.Generator().manual_seed(1))
    expected = torch.nn.functional.one_hot(rows, 11).sum(1).double() @ exact
    assert_agree(sum_rows(rows, table), expected, [table], [exact])
    for wrong in (-1, 11):
        rows[7, columns - 1] = wrong
        with pytest.raises((IndexError, RuntimeError)):
            sum_rows(rows, table)


def test_embeddings_of_many_columns_are_never_in_memory_together(monkeypatch):
    """Nodes with word counts have a column for each of 500 or more words."""
    shapes, embedding = [], torch.nn.functional.embedding
    monkeypatch.setattr(torch.nn.functional, "embedding", lambda *a: shapes.append(a[0].shape) or embedding(*a))
    sum_rows(torch.zeros(5, 500, dtype=torch.int64), torch.ones(1, 4))
    assert sum(shape[1] for shape in shapes) == 500
    assert max(shape.numel() for shape in shapes) <= 5 * 16


def test_nan_reaches_its_neighbours_alone(edge_index):
    x, edges = draw(NODES, WIDTH, dtype=torch.float32), draw(EDGES, WIDTH, seed=1, dtype=torch.float32)
    x[3, 2], edges[8, 1], edges[9, 4] = torch.nan, torch.nan, -torch.inf
    inputs = [x.requires_grad_(), edges.requires_grad_()]
    found = sum_rectified(x, edge_index, edges)
    expected = torch.zeros_like(x).index_add(0, edge_index[1], (x[edge_index[0]] + edges).relu())
    torch.testing.assert_close(found, expected, equal_nan=True)
    gradients = (torch.autograd.grad(y, inputs, torch.ones_like(x)) for y in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_no_edges_and_no_nodes():
    none = torch.empty(2, 0, dtype=torch.int64)
    for nodes in (0, 3):
        x = draw(nodes, 4).requires_grad_()
        out = sum_neighbours(x, none) + sum_rectified(x, none, draw(0, 4))
        assert torch.equal(out, torch.zeros(nodes, 4, dtype=torch.float64))
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(grad, torch.zeros_like(x))


@pytest.mark.parametrize("wrong", [NODES, -1])
@pytest.mark.parametrize("end", [0, 1])
def test_an_edge_to_a_node_that_is_not_there_is_refused(wrong, end, edge_index):
    edge_index[end, 11] = wrong
    x, edges = draw(NODES, WIDTH), draw(EDGES, WIDTH)
    calls = (
        lambda: sum_neighbours(x, edge_index),
        lambda: sum_rectified(x, edge_index, edges),
        lambda: gated_messages(draw(NODES, 4 * WIDTH), edge_index, edges),
    )
    for call in calls:
        with pytest.raises((IndexError, RuntimeError)):
            call()


def test_threads_change_no_bit(edge_index, way):
    if way == "torch":
        pytest.skip("torch's own sums depend on its threads")
    found, before = [], torch.get_num_threads()
    ends = torch.randint(0, 900, (2, 9000), generator=torch.Generator().manual_seed(1))
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        nodes, edges = draw(900, 4 * 70).requires_grad_(), draw(9000, 70, seed=1).requires_grad_()
        out, raw = gated_messages(nodes, ends, edges)
        found.append((out, raw, *torch.autograd.grad(out.square().sum() + raw.sum(), (nodes, edges))))
    torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


@pytest.mark.parametrize("name", ["GCNConv", "GINConv", "GINEConv"])
@pytest.mark.parametrize("learned", [True, False])
def test_convolutions_are_those_of_pyg(name, learned, edge_index):
    """Compare names of weights, outputs and gradients, including that of eps if it is learned."""
    arguments = {
        "GCNConv": ((WIDTH, 7), {"normalize": False}),
        "GINConv": ((torch.nn.Linear(WIDTH, 7),), {"train_eps": learned, "eps": 0.25}),
        "GINEConv": ((torch.nn.Linear(WIDTH, 7),), {"train_eps": learned, "eps": 0.25, "edge_dim": 5}),
    }[name]
    theirs = getattr(pyg, name)(*arguments[0], **arguments[1]).double()
    mine = getattr(ours, f"{name}olution")(*arguments[0], **arguments[1]).double()
    mine.load_state_dict(theirs.state_dict())
    x = draw(NODES, WIDTH).requires_grad_()
    extra = {"GCNConv": (draw(EDGES, seed=3),), "GINConv": (), "GINEConv": (draw(EDGES, 5, seed=3),)}[name]
    results = []
    for layer in (mine, theirs):
        out = layer(x, edge_index, *extra)
        results.append((out, *torch.autograd.grad(out.square().sum(), (x, *layer.parameters()))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["GINConv", "GINEConv"])
def test_convolutions_take_pairs_of_nodes_as_those_of_pyg(name, edge_index):
    theirs, mine = getattr(pyg, name)(torch.nn.Identity()), getattr(ours, f"{name}olution")(torch.nn.Identity())
    pair, extra = (draw(NODES, WIDTH), draw(NODES, WIDTH, seed=1)), [draw(EDGES, WIDTH, seed=3)][: name == "GINEConv"]
    for size in (None, (NODES, NODES)):
        torch.testing.assert_close(mine(pair, edge_index, *extra, size), theirs(pair, edge_index, *extra, size))


def test_what_does_not_fit_is_told_as_by_pyg(edge_index):
    with pytest.raises(ValueError, match="edge_dim"):
        ours.GINEConvolution(torch.nn.Identity())(draw(NODES, WIDTH), edge_index, draw(EDGES, 5))


def test_gradients_through_a_checkpoint(edge_index):
    """A checkpoint lets a backward pass read saved tensors only once."""
    nodes, edges = draw(NODES, 4 * WIDTH).requires_grad_(), draw(EDGES, WIDTH, seed=1).requires_grad_()
    found = []
    for call in (gated_messages, lambda *given: checkpoint(gated_messages, *given, use_reentrant=False)):
        out, raw = call(nodes, edge_index, edges)
        found.append(torch.autograd.grad(out.square().sum() + raw.sum(), (nodes, edges)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_has_another_shape_is_broadcast_or_refused_as_by_torch(edge_index):
    """Torch broadcasts one row to all edges and refuses too few rows; loops would read beyond them."""
    x, row = draw(NODES, WIDTH), draw(1, WIDTH, seed=1)
    expected = torch.zeros_like(x).index_add_(0, edge_index[1], (x[edge_index[0]] + row).relu())
    torch.testing.assert_close(sum_rectified(x, edge_index, row), expected)
    for call in (
        lambda: sum_rectified(x, edge_index, draw(EDGES - 1, WIDTH)),
        lambda: sum_rectified(x, edge_index, draw(EDGES, WIDTH - 1)),
        lambda: sum_neighbours(x, edge_index, draw(EDGES - 1)),
        lambda: gated_messages(draw(NODES, 4 * WIDTH), edge_index, draw(EDGES - 1, WIDTH)),
        lambda: gated_messages(draw(NODES, 4 * WIDTH), edge_index, draw(EDGES, WIDTH - 1)),
    ):
        with pytest.raises(RuntimeError):
            call()


ENDS = torch.tensor([[0, 1, 2, 2, 0, 3, 3], [1, 0, 0, 1, 1, 1, 3]])
LAYOUT = DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))
#: Operation -> a function of tensors with gradients, and their shapes.
CASES = {
    "edge_attention": (lambda qkv, e: edge_attention(qkv, ENDS, e, 2, 5.0, True)[:2], [(4, 12), (7, 4)]),
    "gated_messages": (lambda x, e: gated_messages(x, ENDS, e), [(4, 12), (7, 3)]),
    "packed_attention": (
        lambda qkv, bias: attend_within_graphs(qkv, LAYOUT, 2, LAYOUT.block_biases(bias)),
        [(4, 12), (2, 2, 3, 3)],
    ),
    "sum_neighbours": (lambda x, w: sum_neighbours(x, ENDS, w, 0.5), [(4, 3), (7,)]),
    "sum_rectified": (lambda x, e: sum_rectified(x, ENDS, e, 0.5), [(4, 3), (7, 3)]),
    "sum_rows": (lambda table: sum_rows(ENDS.T, table).square(), [(4, 3)]),
}


def test_every_operation_of_layers_has_a_case():
    encodings = {"laplacian_eigenvectors", "random_walks", "shortest_paths"}
    named = {name.removeprefix("graphbench::") for name in kernels._PLAIN if name.startswith("graphbench::")}
    assert named - encodings <= CASES.keys()


class Layer(torch.nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    def forward(self, *given):
        return self.compute(*given)


@pytest.fixture(params=sorted(CASES))
def case(request):
    """Return an operation and its operands in float32."""
    compute, shapes = CASES[request.param]
    return compute, [draw(*shape, seed=number, dtype=torch.float32) for number, shape in enumerate(shapes)]


def test_first_and_second_derivatives(case):
    compute, given = case[0], [x.double().requires_grad_() for x in case[1]]
    assert torch.autograd.gradcheck(compute, given)
    assert torch.autograd.gradgradcheck(compute, given)


def test_second_derivatives_in_single_precision_are_those_of_double(case):
    """Attention kernels compute in float32 only."""

    def derived(dtype):
        given = [x.to(dtype).requires_grad_() for x in case[1]]
        out = sum(x.pow(3).sum() for x in tree_leaves(case[0](*given)))
        grads = torch.autograd.grad(out, given, create_graph=True)
        return [*grads, *torch.autograd.grad(sum(x.square().sum() for x in grads), given)]

    for single, double in zip(derived(torch.float32), derived(torch.float64), strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3 * float(double.detach().abs().max()))


def test_a_compiled_program_and_an_exported_one(case):
    """Both contain only torch's own operations, so that a program loads without graphbench."""
    compute, given = case[0], [x.requires_grad_() for x in case[1]]
    expected = compute(*given)
    compiled = torch.compile(Layer(compute), backend="aot_eager", fullgraph=True)(*given)
    for one, other in zip(tree_leaves(compiled), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    program = torch.export.export(Layer(compute), tuple(x.detach() for x in given), strict=False)
    assert not [node for node in program.graph.nodes if "graphbench" in str(node.target)]
    for one, other in zip(tree_leaves(program.module()(*given)), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_fake_tensors_transforms_and_inference(case):
    compute, given = case
    expected = tree_leaves(compute(*given))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = tree_leaves(compute(*(mode.from_tensor(x) for x in given)))
    assert [(x.shape, x.dtype) for x in fake] == [(x.shape, x.dtype) for x in expected]
    with torch.inference_mode():
        for one, other in zip(tree_leaves(compute(*(x.clone() for x in given))), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    total = lambda *x: sum(out.pow(2).sum() for out in tree_leaves(compute(*x)))  # noqa: E731
    found = torch.func.grad(total, tuple(range(len(given))))(*given)
    leaves = [x.clone().requires_grad_() for x in given]
    for one, other in zip(found, torch.autograd.grad(total(*leaves), leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_autocast_computes_what_the_plain_form_does_there(case):
    compute, given = case
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = tree_leaves(compute(*given))
        with computed_by("torch"):
            expected = tree_leaves(compute(*given))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", HALF)
def test_no_sum_over_edges_is_in_half_precision(edge_index, dtype):
    x, qkv, four, edges = (draw(rows, width, dtype=dtype) for rows, width in ((23, 4), (23, 12), (23, 16), (EDGES, 4)))
    loops = LoopedGATConv(4, 2, heads=2, edge_dim=4).to(dtype)
    calls = {
        "sum_neighbours": lambda: sum_neighbours(x, edge_index),
        "sum_rectified": lambda: sum_rectified(x, edge_index, edges, own=1.0),
        "gated_messages": lambda: gated_messages(four, edge_index, edges),
        "edge_attention": lambda: edge_attention(qkv, edge_index, edges, 2, 5.0, True),
        "pooling by mean": lambda: ours.Pooling("mean")(x, torch.zeros(NODES, dtype=torch.int64), 1),
        "pooling by sum": lambda: ours.Pooling("add")(x, torch.zeros(NODES, dtype=torch.int64), 1),
    }
    for name, call in calls.items():
        with half_sums() as found:
            results = tree_leaves(call())
        assert not found, f"{name}: {found}"
        assert {part.dtype for part in results} == {dtype}, name
    with half_sums() as found:  # PyG sums the messages; the means of edges are ours
        loops(x, edge_index, edges)
    assert not [name for name in found if "index_add" in name]


def test_fused_attention_of_large_graphs_has_second_derivatives_when_it_is_asked_for_them(way):
    """Kernels bring their own; torch has them in its backend MATH."""
    layout = DenseLayout.from_batch(torch.zeros(130, dtype=torch.int64))
    qkv = draw(130, 6, dtype=torch.float32).requires_grad_()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = attend_within_graphs(qkv, layout, 1)
        (grad,) = torch.autograd.grad(out.pow(3).sum(), qkv, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), qkv)
    assert second.isfinite().all()
    assert second.abs().max() > 0
