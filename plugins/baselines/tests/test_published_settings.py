"""Settings of shipped recipes against the commands and schedules of the released code."""

from __future__ import annotations

import pytest
import torch

import graphbench_baselines
from graphbench.training.optim import Schedule


def published_sat_rate(step: int, rate: float) -> float:
    """SAT's own formula: linear from 1e-6 over 5,000 steps, then as the inverse root of the step."""
    return 1e-6 + step * (rate - 1e-6) / 5_000 if step < 5_000 else rate * (5_000 / step) ** 0.5


@pytest.mark.parametrize(("name", "rate", "steps"), [("zinc", 1e-3, 158_000), ("cluster", 5e-4, 62_600)])
def test_sat_trains_at_the_published_rate(recipe, name, rate, steps):
    model = recipe(f"sat/{name}").config["model"]
    schedule = Schedule(**model["schedule"])
    assert model["optimizer"]["init_args"]["lr"] == rate
    for step in [*range(0, 6_000, 50), *range(6_000, steps, 1_000)]:
        assert rate * schedule.factor_at(step, steps) == pytest.approx(published_sat_rate(step, rate), abs=1e-6)


def published_graphormer_rate(step: int, warmup: int, total: int) -> float:
    """Graphormer's polynomial decay of power 1 from 2e-4 to 1e-9, whose steps count from 1."""
    count = step + 1
    if count <= warmup:
        return 2e-4 * count / warmup
    return (2e-4 - 1e-9) * (1 - (count - warmup) / (total - warmup)) + 1e-9


@pytest.mark.parametrize(
    ("names", "hops", "warmup", "total"),
    [
        (["graphormer/zinc"], 20, 40_000, 400_000),
        (["graphormer/pcqm4m-fairseq"], 5, 60_000, 1_000_000),
        (["graphormer/pcqm4mv2-fairseq"], 5, 60_000, 1_000_000),
        (["graphormer/zinc", "graphormer/overlays/zinc-x2"], 5, 60_000, 400_000),
        (["graphormer/zinc", "graphormer/overlays/zinc-x4"], 5, 60_000, 400_000),
    ],
)
def test_graphormer_reads_the_published_hops_at_the_published_rate(recipe, names, hops, warmup, total):
    found = recipe(*names)
    assert found.options["max_hops"] == hops
    schedule = Schedule(**found.config["model"]["schedule"])
    for step in range(0, total, 997):
        expected = published_graphormer_rate(step, warmup, total)
        assert 2e-4 * schedule.factor_at(step, total) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", [f"{model}/{data}" for model in ("classic", "gt") for data in ("zinc", "cluster")])
def test_tables_of_node_types_start_standard_normal(recipe, name):
    """As `torch.nn.Embedding` in the code of "Benchmarking Graph Neural Networks" and of GT; six deviations wide."""
    table = node_features(recipe(name)).table
    assert abs(table.var() - 1) < 6 * (2 / table.numel()) ** 0.5


@pytest.mark.parametrize(("name", "types"), [("pattern", 3), ("cluster", 7)])
def test_map_of_node_types_of_sat_is_the_published_one(recipe, name, types):
    """On the block models SAT uses `torch.nn.Linear` without bias on one-hot types: uniform within 1 / sqrt(types)."""
    linear = node_features(recipe(f"sat/{name}")).linear
    assert linear.bias is None
    assert linear.in_features == types
    assert linear.weight.abs().max() <= types**-0.5
    assert linear.weight.abs().max() > 0.9 * types**-0.5


def node_features(found):
    """Draw a new encoder of node features for a recipe's model."""
    torch.manual_seed(0)
    model = getattr(graphbench_baselines, found.config["model"]["architecture"]["class_path"])
    options = found.options | {"num_layers": 1, "positional_encoders": None}
    return model(found.spec, **options).node_encoder.features
