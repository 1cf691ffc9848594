"""Influence by distance compared with closed forms, the whole Jacobian, and PyG's own measure."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import utils
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from graphbench.diagnostics import influence_by_distance, record, sample_targets, summarise_influence
from graphbench.errors import BadInput
from graphbench.nn import MultiHeadAttention


def path_of(num_nodes: int) -> Tensor:
    one = torch.arange(num_nodes - 1)
    return torch.stack([torch.cat([one, one + 1]), torch.cat([one + 1, one])])


def adjacency_of(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return A, whose row v has the messages into v."""
    adjacency = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    adjacency[edge_index[1], edge_index[0]] = 1.0
    return adjacency


class GCN(nn.Module):
    def __init__(self, num_layers: int, dim: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GCNConv(dim, dim) for _ in range(num_layers))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x, edge_index))
        return x


@pytest.mark.parametrize("power", [1, 2, 3, 5])
def test_linear_layers_on_a_path_hear_powers_of_its_adjacency(power: int) -> None:
    edge_index, generator = path_of(7), torch.Generator().manual_seed(0)
    walks = torch.linalg.matrix_power(adjacency_of(edge_index, 7) + 0.5 * torch.eye(7), power)
    weight = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    x = torch.randn(7, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 3, 5])
    heard = influence_by_distance(walks @ x @ weight, x, edge_index, targets)
    squared = influence_by_distance(walks @ x @ weight, x, edge_index, targets, norm="squared")
    for row, target in enumerate(targets.tolist()):
        for distance in range(heard.totals.shape[1]):
            there = (torch.arange(7) - target).abs() == distance
            assert heard.totals[row, distance] == pytest.approx(walks[target, there].sum() * weight.abs().sum())
            assert heard.nodes[row, distance] == there.sum()
            expected = walks[target, there].square().sum() * weight.square().sum()
            assert squared.totals[row, distance] == pytest.approx(expected)
        far = (torch.arange(7) - target).abs()
        assert heard.ranges[row] == pytest.approx((far * walks[target]).sum() / walks[target].sum())
        assert heard.uniform_ranges[row] == pytest.approx(far.double().mean())
    assert heard.shares.sum(1).tolist() == pytest.approx([1.0] * 3)


@pytest.mark.skipif(not hasattr(utils, "total_influence"), reason="PyG has no total_influence before 2.7")
def test_it_is_what_pyg_measures() -> None:
    torch.manual_seed(0)
    edge_index = torch.cat([utils.erdos_renyi_graph(14, 0.12), path_of(14)], 1)  # connected, some edges double
    model, data = GCN(3), Data(x=torch.randn(14, 5), edge_index=edge_index)
    x = data.x.clone().requires_grad_()
    heard = influence_by_distance(model(x, edge_index), x, edge_index, torch.arange(14))
    by_hop, mean_range = utils.total_influence(model, data, max_hops=14, normalize=False)
    assert heard.ranges.mean() == pytest.approx(mean_range, rel=1e-5)
    assert by_hop[: heard.totals.shape[1]].tolist() == pytest.approx(heard.totals.mean(0).tolist(), rel=1e-5, abs=1e-7)


def test_message_passing_hears_no_further_than_its_layers() -> None:
    torch.manual_seed(0)
    edge_index, x = path_of(9), torch.randn(9, 5, requires_grad=True)
    for num_layers in (1, 3):
        totals = influence_by_distance(GCN(num_layers)(x, edge_index), x, edge_index, torch.tensor([0])).totals[0]
        assert (totals[: num_layers + 1] > 0).all()
        assert totals[num_layers + 1 :].tolist() == [0.0] * (8 - num_layers)


def test_uniform_attention_hears_all_nodes_alike_also_those_without_a_path() -> None:
    x = torch.randn(6, 2, requires_grad=True)
    edge_index = path_of(4)  # nodes 4 and 5 are isolated
    heard = influence_by_distance(x.mean(0).expand(6, -1), x, edge_index, torch.tensor([0, 4]))
    assert heard.totals[0].tolist() == pytest.approx([2 / 6] * 4)
    assert heard.unreachable.tolist() == pytest.approx([2 * 2 / 6, 5 * 2 / 6])
    assert heard.unreachable_nodes.tolist() == [2, 5]
    assert heard.ranges.tolist() == pytest.approx([1.5, 0.0])
    assert heard.means[1].tolist() == pytest.approx([1 / 3, *[float("nan")] * 3], nan_ok=True)


def test_distance_follows_the_messages_of_directed_edges() -> None:
    cycle = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    x = torch.randn(4, 1, dtype=torch.float64, requires_grad=True)
    heard = influence_by_distance(adjacency_of(cycle, 4) @ x, x, cycle, torch.tensor([0]))
    assert heard.totals.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_graphs_of_a_batch_are_measured_as_alone() -> None:
    torch.manual_seed(0)
    sizes, model = (5, 1, 8), GCN(2)
    graphs = [(path_of(size), torch.randn(size, 5)) for size in sizes]
    starts = [0, 5, 6]
    together = torch.cat([edges + start for (edges, _), start in zip(graphs, starts, strict=True)], 1)
    batch = torch.repeat_interleave(torch.tensor(sizes))
    x = torch.cat([features for _, features in graphs]).requires_grad_()
    targets = torch.tensor([7, 0, 5, 13, 4])  # 2, 1 and 2 nodes of the graphs, out of order
    heard = influence_by_distance(model(x, together), x, together, targets, batch)
    for row, target in enumerate(targets.tolist()):
        graph = int(batch[target])
        own = graphs[graph][1].clone().requires_grad_()
        alone = influence_by_distance(
            model(own, graphs[graph][0]), own, graphs[graph][0], torch.tensor([target - starts[graph]])
        )
        width = alone.totals.shape[1]
        assert heard.totals[row, :width].tolist() == pytest.approx(alone.totals[0].tolist(), rel=1e-5)
        assert heard.totals[row, width:].sum() == 0
        assert heard.nodes[row].sum() == sizes[graph]


@pytest.mark.parametrize("norm", ["l1", "squared"])
def test_a_few_probes_have_the_exact_mean(norm: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    mixing = torch.randn(5, 6, 5, 3, generator=generator, dtype=torch.float64)
    outputs, edge_index, targets = torch.einsum("vcui,ui->vc", mixing, x), path_of(5), torch.tensor([0, 2])
    exact = influence_by_distance(outputs, x, edge_index, targets, norm=norm).totals
    draws = torch.stack([
        influence_by_distance(outputs, x, edge_index, targets, norm=norm, num_probes=2, generator=generator).totals
        for _ in range(600)
    ])  # fmt: skip
    error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - exact).abs() < 5 * error + 1e-12).all()
    assert (error[exact > 0] > 0).all()
    whole = influence_by_distance(outputs, x, edge_index, targets, norm=norm, num_probes=6).totals
    assert whole.tolist() == exact.tolist()


def test_targets_are_drawn_of_every_graph() -> None:
    batch = torch.tensor([0, 1, 1, 1, 3, 3])
    targets = sample_targets(batch, 2, torch.Generator().manual_seed(1))
    assert torch.bincount(batch[targets]).tolist() == [1, 2, 0, 2]
    assert len(targets.unique()) == len(targets)


def test_depths_of_attention_layers() -> None:
    """Attention with zero queries is a mean: after one layer all other nodes have the same influence."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(MultiHeadAttention(4, 2) for _ in range(2)))
    for layer in layers:
        layer.in_proj.weight.data[:8] = 0.0
    batch, edge_index, x = torch.zeros(5, dtype=torch.int64), path_of(5), torch.randn(5, 4, requires_grad=True)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = x + layer(x, batch)
            return x

    model = Model()
    with record(model) as recording:
        model(x)
    targets = torch.tensor([0])
    depths = summarise_influence(recording, [x], edge_index, batch, targets, max_distance=2)
    assert depths[0].mean("range") == 0.0
    jacobian = torch.autograd.functional.jacobian(lambda x: model(x)[0], x).abs().sum((0, 2))
    shares = (jacobian / jacobian.sum()).tolist()
    assert depths[2].mean("share_0") == pytest.approx(shares[0], rel=1e-5)
    assert depths[2].mean("share_1") == pytest.approx(shares[1], rel=1e-5)
    assert depths[2].mean("share_beyond") == pytest.approx(sum(shares[3:]), rel=1e-5)
    assert depths[2].mean("influence") == pytest.approx(float(jacobian.sum()), rel=1e-5)
    assert depths[1].mean("share_1") == pytest.approx(depths[1].mean("share_2"), rel=1e-4)
    assert depths[0].mean("uniform_range") == 2.0


def test_what_cannot_be_differentiated_is_refused() -> None:
    x, edge_index, targets = torch.randn(3, 2, requires_grad=True), path_of(3), torch.tensor([0])
    with torch.no_grad():
        outputs = 2 * x
    for bad, inputs in ((outputs, x), (2 * x, x.detach()), (x.mean(0, keepdim=True), x), (x.sum(1), x)):
        with pytest.raises(BadInput, match="outputs"):
            influence_by_distance(bad, inputs, edge_index, targets)
    with pytest.raises(BadInput, match="norm"):
        influence_by_distance(2 * x, x, edge_index, targets, norm="l2")
    with pytest.raises(BadInput, match="num_probes"):
        influence_by_distance(2 * x, x, edge_index, targets, num_probes=0)
