"""Settings that tables of equal budget share, and their records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphbench.experiments.budget import PREFIX, add_records, outside_budget, ranked, record_file, shared_options
from graphbench.experiments.records import Record, read_file
from graphbench.registry.configurations import configurations, facts


def record(name: str, val: float | None, seed: int = 0, by: str = "") -> Record:
    return Record("e", name, ("equal-budget/zinc",), seed, "MAE", 0.5, val=val, higher_is_better=False, by=by)


@pytest.mark.parametrize("name", [name for name in configurations() if name.startswith(PREFIX)])
def test_a_table_has_everything_but_the_architecture(name):
    (one,) = configurations()[name]
    said = facts(one)
    assert "architecture" not in one.content()["model"]
    assert said.benchmark
    assert said.expected.parameters == 100_000
    assert said.expected.epochs == one.content()["trainer"]["max_epochs"]


def test_a_model_keeps_to_depth_heads_dropout_and_size():
    given = {"hidden_dim": 64, "num_layers": 4, "num_heads": 4, "attention_dropout": 0.0, "kind": "a"}
    assert outside_budget(given, 110_000, 100_000) == []
    assert len(outside_budget({**given, "num_heads": 8, "attention_dropout": 0.1}, 120_000, 100_000)) == 3
    assert shared_options(["kind"], 8) == {}, "a model without depth or width has none to share"


def test_models_stand_by_their_mean_score_and_persons_apart():
    runs = [record("B", 0.2, 1), record("B", 0.4), record("A", 0.25), record("A", 0.1, by="Ada"), record("C", None)]
    assert [(one.name, one.by, one.seed) for one in ranked(runs)] == [
        ("A", "Ada", 0), ("A", "", 0), ("B", "", 0), ("B", "", 1), ("C", "", 0),
    ]  # fmt: skip


def test_a_run_that_is_sent_again_replaces_itself_alone(tmp_path):
    path = record_file(tmp_path, "equal-budget/zinc")
    add_records([record("A", 0.3), record("A", 0.3, by="Ada")], path)
    add_records([replace(record("A", 0.2, by="Ada"), test=0.1)], path)
    assert [(one.by, one.test) for one in read_file(path)] == [("Ada", 0.1), ("", 0.5)]
