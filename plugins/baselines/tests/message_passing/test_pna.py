"""PNA against PyG's convolution and loops, and the shipped configurations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import PNAConv
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, VarAggregation

from graphbench.errors import BadInput
from graphbench_baselines import PNA
from graphbench_baselines.message_passing.pna import aggregate


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


class Deviation(VarAggregation):
    """That of the paper; PyG's `StdAggregation` sets deviations below the root of 1e-5 to zero and adds nothing."""

    def forward(self, *arguments, **options):
        return (super().forward(*arguments, **options).relu() + 1e-5).sqrt()


def test_aggregates_are_those_of_loops():
    generator = torch.Generator().manual_seed(0)
    messages = torch.randn(9, 2, 3, dtype=torch.float64, generator=generator)
    target = torch.tensor([0, 0, 0, 2, 2, 4, 4, 4, 4])
    expected = torch.zeros(5, 2, 12, dtype=torch.float64)
    for node in (0, 2, 4):
        got = messages[target == node]
        deviation = (got.var(0, correction=0) + 1e-5).sqrt()
        expected[node] = torch.cat([got.mean(0), got.max(0).values, got.min(0).values, deviation], dim=-1)
    assert_close(aggregate(messages, target, torch.tensor([3, 0, 2, 0, 4])), expected)


@pytest.mark.parametrize("divide", [True, False])
@pytest.mark.parametrize("edges", [True, False])
def test_a_layer_is_the_convolution_of_pyg(spec, batch, divide, edges):
    """`x + LeakyReLU(conv(x))` with PyG's weights, without a norm and in graphs that count as one node each."""
    torch.manual_seed(0)
    aggregators = [MeanAggregation(), MaxAggregation(), MinAggregation(), Deviation()]
    scalers = ["identity", "amplification", "attenuation"]
    options = {"edge_dim": 5 if edges else None, "towers": 3, "divide_input": divide}
    conv = PNAConv(12, 12, aggregators, scalers, torch.tensor([0, 2, 5, 1]), **options).double()
    delta = float(conv.aggr_module.avg_deg_log)
    assert delta == pytest.approx((2 * math.log(2) + 5 * math.log(3) + math.log(4)) / 8, abs=1e-6)
    layer = (
        PNA(
            spec,
            hidden_dim=12,
            num_layers=2,
            out_dim=12,
            num_towers=3,
            edge_features=edges,
            edge_features_dim=5,
            divide_input=divide,
            mean_log_degree=delta,
            norm="none",
        )
        .double()
        .layers[0]
    )
    width = 4 if divide else 12
    for number, (before, after) in enumerate(zip(conv.pre_nns, conv.post_nns, strict=True)):
        theirs, bias = before[0].weight.data, before[0].bias.data.clone()
        parts = [theirs[:, width : 2 * width], theirs[:, :width]]  # PyG reads [x_i, x_j, C e + c]
        if edges:
            parts.append(theirs[:, 2 * width :] @ conv.edge_encoder.weight)
            bias += theirs[:, 2 * width :] @ conv.edge_encoder.bias
        layer.message.weight.data[number] = torch.cat(parts, dim=1)
        layer.message.bias.data[number] = bias
        layer.update.weight.data[number] = after[0].weight
        layer.update.bias.data[number] = after[0].bias
    layer.mix.load_state_dict(conv.lin.state_dict())
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch.num_nodes, 12, dtype=torch.float64, generator=generator)
    edge = torch.randn(batch.edge_index.shape[1], 5, dtype=torch.float64, generator=generator) if edges else None
    model = PNA(spec, mean_log_degree=delta)
    around = replace(model._neighbourhoods(batch, x), per_size=torch.ones(len(x), 1, dtype=torch.float64))
    received = around.num_received > 0  # elsewhere the deviation is 0, and not the root of 1e-5
    assert_close(layer(x, edge, around)[received], (x + F.leaky_relu(conv(x, batch.edge_index, edge)))[received])


def test_rows_are_scaled_by_the_root_of_the_size_of_their_graph(spec, batch):
    sizes = torch.tensor([5, 1, 9, 4, 12, 3]).double()
    expected = torch.cat([torch.full((int(n), 1), float(n) ** -0.5, dtype=torch.float64) for n in sizes])
    x = torch.zeros(batch.num_nodes, 1, dtype=torch.float64)
    assert_close(PNA(spec, mean_log_degree=1.0)._neighbourhoods(batch, x).per_size, expected)


def test_where_the_width_changes_nothing_is_carried(spec):
    model = PNA(spec, hidden_dim=10, out_dim=5, num_layers=3, mean_log_degree=1.0)
    assert [layer.residual for layer in model.layers] == [True, True, False]


def test_without_scalers_aggregates_stand_alone(spec):
    with_, without = (PNA(spec, scalers=scalers, mean_log_degree=1.0).layers[0].update for scalers in (True, False))
    assert (with_.weight.shape[-1], without.weight.shape[-1]) == (13 * 14, 5 * 14)


def test_delta_is_that_of_the_mean_degree_where_none_is_given(spec):
    described = replace(spec, mean_nodes=10.0, mean_edges=80.0)
    assert PNA(described).mean_log_degree == pytest.approx(math.log(9))
    with pytest.raises(BadInput, match="mean_log_degree"):
        PNA(spec)


@pytest.mark.parametrize("options", [{"hidden_dim": 72}, {"out_dim": 64}])
def test_towers_divide_both_widths(spec, options):
    with pytest.raises(BadInput, match=f"num_towers must divide {next(iter(options))}"):
        PNA(spec, mean_log_degree=1.0, **options)


def test_maps_start_as_small_as_the_authors(spec):
    """Uniform within `sqrt(6 / (d_in + d_out)) / d_in`, biases 0."""
    torch.manual_seed(0)
    for layer in PNA(spec, mean_log_degree=1.0).layers:
        for part, (fan_in, fan_out) in (
            (layer.message, (2 * 14 + 50, 14)),
            (layer.update, (13 * 14, layer.update.weight.shape[1])),
            (layer.mix, layer.mix.weight.shape),
        ):
            largest = math.sqrt(6 / (fan_in + fan_out)) / fan_in
            assert 0.9 * largest < part.weight.abs().max() <= largest
            assert not part.bias.any()


#: Parameters of the authors' code, head included.
RELEASED = {"zinc": 95_111, "no-bonds": 94_995, "layers-16": 369_235}


@pytest.mark.parametrize("name", RELEASED)
def test_configurations_have_the_parameters_of_the_released_code(recipe, name):
    found = recipe("pna/zinc", *([] if name == "zinc" else [f"pna/overlays/{name}"]))
    expected = found.config["expected"]
    told = expected if name == "zinc" else expected["variants"][name]
    assert found.parameters == told["parameters"] == RELEASED[name]


def test_delta_of_the_recipe_is_that_of_the_training_atoms(recipe):
    """Atoms of the published 10,000 molecules by their number of bonds."""
    atoms = {1: 41_130, 2: 117_278, 3: 70_152, 4: 3_104}
    mean = sum(count * math.log(bonds + 1) for bonds, count in atoms.items()) / sum(atoms.values())
    assert recipe("pna/zinc").options["mean_log_degree"] == pytest.approx(mean, abs=1e-6)
