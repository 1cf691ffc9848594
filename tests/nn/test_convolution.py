import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops

from graphbench.nn import GraphConvolution, count_nodes, gcn_edges
from graphbench.nn.convolution import LoopedGATConv, loop_edges

#: A directed graph with a duplicate self-loop, a duplicate edge and a node without edges.
EDGES = torch.tensor([[0, 1, 1, 2, 2, 2, 3], [1, 0, 1, 1, 1, 2, 2]])
EDGES = torch.cat([EDGES, torch.tensor([[2], [2]])], dim=1)
NUM_NODES = 5


def matrix(index, weight):
    return torch.zeros(NUM_NODES, NUM_NODES, dtype=weight.dtype).index_put_(
        (index[1], index[0]), weight, accumulate=True
    )


@pytest.mark.parametrize("self_loops", [True, False])
def test_the_matrix_is_that_of_kipf_and_welling(self_loops):
    adjacency = torch.zeros(NUM_NODES, NUM_NODES, dtype=torch.float64)
    for source, target in EDGES.t().tolist():
        adjacency[target, source] += 1
    if self_loops:
        adjacency.fill_diagonal_(1.0)
    scale = adjacency.sum(1).pow(-0.5).nan_to_num(posinf=0.0)
    expected = scale[:, None] * adjacency * scale
    torch.testing.assert_close(matrix(*gcn_edges(EDGES, NUM_NODES, torch.float64, self_loops)), expected)


@pytest.mark.parametrize("edges", [EDGES, EDGES[:, :0]])
def test_it_is_that_of_pyg(edges):
    expected = gcn_norm(edges, None, NUM_NODES, add_self_loops=True, dtype=torch.float64)
    actual = gcn_edges(edges, NUM_NODES, torch.float64)
    torch.testing.assert_close(matrix(*actual), matrix(*expected))


def test_degrees_are_counted_beyond_what_bfloat16_can():
    hub = torch.stack([torch.arange(1, 400), torch.zeros(399, dtype=torch.int64)])
    index, weight = gcn_edges(hub, 400, torch.bfloat16)
    assert weight.dtype == torch.bfloat16
    assert float(weight[index[0] == 5][0]) == pytest.approx(400**-0.5, rel=1e-2)  # bfloat16 has no 257


def test_the_layer_has_pygs_weights_and_answers():
    ours, theirs = GraphConvolution(3, 4).double(), GCNConv(3, 4).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(NUM_NODES, 3, dtype=torch.float64)
    torch.testing.assert_close(ours(x, EDGES), theirs(x, EDGES))


def test_counts_are_those_of_bincount():
    index = torch.tensor([3, 0, 3, 1])
    assert count_nodes(index, 6).equal(index.bincount(minlength=6))


LOOPS = torch.tensor([[0, 1, 1, 2, 3, 1, 3], [1, 0, 1, 1, 3, 2, 3]])  # one loop at 1, two at 3, none at 0 and 4


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_looped_attention_is_that_of_pyg(edge_dim):
    """Compare outputs and gradients with PyG's `GATConv`, which replaces loops by one loop per node."""
    torch.manual_seed(0)
    ours = LoopedGATConv(4, 2, heads=3, edge_dim=edge_dim).double()
    theirs = GATConv(4, 2, heads=3, edge_dim=edge_dim).double()
    theirs.load_state_dict(ours.state_dict())
    x, vectors = torch.randn(5, 4, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    edges = (LOOPS,) if edge_dim is None else (LOOPS, vectors)
    results = []
    for conv in (ours, theirs):
        nodes = x.clone().requires_grad_()
        out = conv(nodes, *edges)
        results.append((out, *torch.autograd.grad(out.square().sum(), [nodes, *conv.parameters()])))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_loop_edges_are_those_of_pyg_beside_the_spare_node():
    looped = loop_edges(LOOPS, 5)
    expected, _ = add_remaining_self_loops(LOOPS, num_nodes=5)
    assert torch.equal(looped[:, looped[0] < 5], expected)
    assert (looped[:, looped[0] == 5] == 5).all()
