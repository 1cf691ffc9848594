"""The contract for every model, independence of graphs to 1e-12, and memory linear in the nodes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphbench.diagnostics import record, summarise_ranks
from graphbench.nn import LapPEEncoder, RWSEEncoder
from graphbench.testing import ArchitectureContract, tiny_table
from graphbench_large_graphs import (
    GCNII,
    AdvDIFFormer,
    DIFFormer,
    NAGphormer,
    NodeFormer,
    Polynormer,
    SGFormer,
    TunedGNN,
    difformer,
)

#: Nodes of each graph of the fixture `batch`.
SIZES = (5, 1, 9, 4)
SMALL = {"hidden_dim": 16, "num_layers": 2}
HEADS = SMALL | {"num_heads": 4}


class Exact(ArchitectureContract):
    """The contract, with every comparison of float64 to 1e-12: OpenGT's and PyG's models mix graphs of a batch."""

    tolerance = 1e-12


class TestSGFormer(Exact):
    architecture = SGFormer
    most_launches = 459

    def make_model(self, spec):
        return SGFormer(spec, **HEADS, positional_encoders=[LapPEEncoder(3, 4), RWSEEncoder(4, 2)])


class TestPolynormer(Exact):
    architecture = Polynormer
    most_launches = 440

    def make_model(self, spec):
        return Polynormer(spec, **HEADS, positional_encoders=[RWSEEncoder(4, 2)])


class TestNodeFormer(Exact):
    architecture = NodeFormer
    options = HEADS
    most_launches = 1140


class TestDIFFormer(Exact):
    architecture = DIFFormer
    options = HEADS
    most_launches = 344


class TestDIFFormerWithSigmoid(Exact):
    architecture = DIFFormer
    options = HEADS | {"form": "sigmoid", "value_map": True, "graph_weight": 0.8, "norm": "batch"}
    most_launches = 222


class TestAdvDIFFormer(Exact):
    architecture = AdvDIFFormer
    options = HEADS
    most_launches = 545


class TestNAGphormer(Exact):
    architecture = NAGphormer
    most_launches = 268

    def make_model(self, spec):
        return NAGphormer(spec, **HEADS, positional_encoders=[LapPEEncoder(3, 4)])


class TestGCNII(Exact):
    architecture = GCNII
    options = SMALL
    most_launches = 137


class TestTunedGNN(Exact):
    architecture = TunedGNN
    options = HEADS | {"layer": "GAT", "norm": "layer", "input_map": False, "jumping": True}
    most_launches = 193


#: Every option that changes the result, with a function that builds a model with it.
VARIANTS = {
    "SGFormer, norms of single queries": partial(SGFormer, **HEADS, normalisation="node", aggregation="concatenate"),
    "Polynormer, no ReLU": partial(Polynormer, **HEADS, relu=False, beta=None, pre_norm=True, qk_shared=False),
    "Polynormer, first stage": partial(Polynormer, **HEADS, global_layers=0),
    "NodeFormer, one adjacency": partial(NodeFormer, **HEADS, bias_order=1, bias="identity", concatenate=True),
    "NodeFormer, no adjacency": partial(NodeFormer, **HEADS, bias_order=0, activation=True),
    "DIFFormer, a share of edges": partial(DIFFormer, **HEADS, value_map=True, graph_weight=0.3, norm="batch"),
    "DIFFormer, sigmoid, no edges": partial(DIFFormer, **HEADS, form="sigmoid", use_graph=False, norm="none"),
    "AdvDIFFormer, order 1": partial(AdvDIFFormer, **HEADS, order=1, norm="layer", residual=False),
    "GCNII*": partial(GCNII, **SMALL, shared_weights=False),
    "GCNII, no identity": partial(GCNII, **SMALL, theta=None, input_map=False),
    "TunedGNN, GCN": partial(TunedGNN, **SMALL),
    "TunedGNN, GraphSAGE": partial(TunedGNN, **SMALL, layer="GraphSAGE", norm="none", residual=False),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_graph_stands_for_itself(name, made, spec, batch):
    """Alone and with others to 1e-12, with random weights and statistics of norms."""
    model = made(lambda: VARIANTS[name](spec))
    together = model(batch).node
    table = tiny_table(spec, sizes=SIZES)
    for graph, nodes in enumerate(together.split(batch.ptr.diff().tolist())):
        alone = table.batch([graph]).apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
        torch.testing.assert_close(model(alone).node, nodes, rtol=1e-12, atol=1e-12)


LINEAR = {
    "SGFormer": partial(SGFormer, hidden_dim=8),
    "Polynormer": partial(Polynormer, hidden_dim=8, num_layers=1, num_heads=2),
    "NodeFormer": partial(NodeFormer, hidden_dim=8, num_layers=1, num_heads=1, num_features=8, num_samples=2),
    "DIFFormer": partial(DIFFormer, hidden_dim=8, num_layers=2),
    "AdvDIFFormer": partial(AdvDIFFormer, hidden_dim=8, num_layers=1),
    "NAGphormer": partial(NAGphormer, hidden_dim=8, num_heads=2, num_hops=3),
    "GCNII": partial(GCNII, hidden_dim=8, num_layers=2),
    "TunedGNN": partial(TunedGNN, hidden_dim=8, num_layers=2, layer="GAT"),
}


class LargestTensor(TorchDispatchMode):
    """Count the numbers in the largest tensor that any operation returns, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and not leaf.is_sparse:
                held = leaf.untyped_storage().nbytes() // leaf.element_size()  # a view has no more than its base
                self.numbers = max(self.numbers, min(leaf.numel(), held))
        return out


def largest_tensor(model, batch) -> int:
    with LargestTensor() as seen:
        model(batch).node.square().sum().backward()
    return seen.numbers


@pytest.mark.parametrize("name", LINEAR)
def test_no_tensor_of_a_training_step_grows_faster_than_the_nodes(name, spec, one_graph):
    """20,000 nodes: a matrix of all pairs would have 400 million numbers."""
    torch.manual_seed(0)
    model = LINEAR[name](spec).train()
    half, whole = (largest_tensor(model, one_graph(n)) for n in (10_000, 20_000))
    assert 20_000 <= whole <= 2.1 * half
    assert whole < 500 * 20_000


@pytest.mark.parametrize("name", ["Polynormer", "NodeFormer", "DIFFormer", "AdvDIFFormer"])
def test_diagnostics_of_tokens_need_no_matrix_of_all_pairs(name, spec, one_graph):
    """A recording holds what the matrices are computed from, not the matrices."""
    model, batch = LINEAR[name](spec).eval(), one_graph(2000)
    with torch.no_grad(), record(model) as recording, LargestTensor() as seen:
        model(batch)
        summarise_ranks(recording, batch.edge_index)
    assert seen.numbers < 2000**2 / 8
    shown = [trace.attention for trace in recording if trace.attention is not None]
    assert {tuple(matrix.shape[1:]) for matrices in shown for matrix in matrices} == {(2000, 2000)}


def test_sigmoid_weights_are_computed_in_chunks(spec, one_graph, monkeypatch):
    """Quadratic in time, not in memory."""
    monkeypatch.setattr(difformer, "_CHUNK_WEIGHTS", 2**15)
    model = DIFFormer(spec, hidden_dim=8, num_layers=1, form="sigmoid").train()
    half, whole = (largest_tensor(model, one_graph(n)) for n in (1000, 2000))
    assert whole <= 2.1 * half
    assert whole < 2000**2 / 8


@pytest.mark.parametrize("name", LINEAR)
def test_dropout_is_active_in_training_only(name, spec, batch):
    torch.manual_seed(0)
    model = LINEAR[name](spec, dropout=0.5).double()
    assert not torch.equal(model(batch).node, model(batch).node)
    model.eval()
    assert torch.equal(model(batch).node, model(batch).node)


@pytest.mark.parametrize("name", LINEAR)
def test_bfloat16_is_close_to_float32(name, spec, one_graph):
    torch.manual_seed(0)
    model, batch = LINEAR[name](spec).eval(), one_graph(200)
    exact = model(batch).node
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(batch).node.float()
    assert (rough - exact).norm() < 0.05 * exact.norm()
