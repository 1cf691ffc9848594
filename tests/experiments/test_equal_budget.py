"""The table of all models at one budget: its models, the options they share, and a failure that stops no other."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from scripts import load_script

from graphbench import registry
from graphbench.experiments import CommandFailed, trainings
from graphbench.experiments.records import read_records

PATH = Path(__file__).parents[2] / "experiments" / "equal_budget.py"


@pytest.fixture(scope="module")
def script():
    return load_script(PATH)


def test_every_registered_architecture_is_in_the_table_but_those_for_other_data(script):
    classes = {name for name, _ in script.models().values()}
    of_clouds = {n for n, record in registry.architectures().items() if record.distribution == script.POINT_CLOUDS}
    assert classes == set(registry.architectures()) - set(script.OTHERS) - of_clouds
    assert {"GT", "GT (full=True)", "GNNPlus (layer=GCN)"} <= set(script.models())


def test_models_share_depth_heads_and_no_dropout(script):
    given = script.options("Graphormer", "zinc", {}, 48)
    assert (given["hidden_dim"], given["ffn_dim"], given["num_layers"], given["num_heads"]) == (48, 48, 4, 4)
    dropouts = {option: value for option, value in given.items() if "dropout" in option}
    assert len(dropouts) == 4
    assert set(dropouts.values()) == {0.0}
    assert "num_heads" not in script.options("GCN", "zinc", {}, 48)


@pytest.mark.parametrize("model", ["GCN", "GPS"])
def test_the_width_is_the_nearest_multiple_of_four(script, model):
    name, variant = script.models()[model]
    width = script.width_for(name, "zinc", variant, 40_000)
    counts = {
        near: script.parameters(name, "zinc", script.options(name, "zinc", variant, near))
        for near in (width - 4, width, width + 4)
    }
    assert width % 4 == 0
    assert min(counts, key=lambda near: abs(counts[near] - 40_000)) == width
    assert abs(counts[width] - 40_000) < 5_000


def test_a_model_that_fails_is_named_and_the_others_have_rows_and_records(script, tmp_path, monkeypatch, caplog):
    def command(*words):
        if words[0] == "test":
            return
        folder = Path(words[-1])
        if "GAT" in folder.name:
            raise CommandFailed("fit", 2)
        folder.mkdir(parents=True)
        val = 0.3 if "GIN" in folder.name else 0.4
        scores = {
            "metric": "MAE", "higher_is_better": False, "data": "local", "parameters": 9, "epochs": 1, "steps": 3,
            "benchmark": "ZINC", "val": {"val/MAE": val}, "test": {"test/MAE": 0.5},
        }  # fmt: skip
        (folder / "results.json").write_text(json.dumps(scores))

    monkeypatch.setattr(trainings, "graphbench", command)
    monkeypatch.setattr(script, "width_for", lambda *_: 16)
    words = ["--output", str(tmp_path), "--data", "zinc", "--models", "GAT", "GCN", "GIN", "--seeds", "0", "1"]
    assert (
        script.main([*words, "--epochs", "1", "--data.init_args.source=pyg", "--trainer.enable_progress_bar=false"])
        == 1
    )
    assert caplog.messages[-1] == "Failed: zinc-GAT-16-1, seed 1"
    with (tmp_path / "equal_budget.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["seed"], row["test"]) for row in rows] == [
        (model, seed, "0.5") for seed in "01" for model in ("GCN", "GIN")
    ]
    found = read_records([tmp_path / "records"])
    assert [(one.name, one.seed, one.test, one.full) for one in found] == [
        (model, seed, 0.5, False) for model in ("GIN", "GCN") for seed in (0, 1)
    ]
    kept = tmp_path / "kept"
    for seeds, models in (["0"], ["GCN"]), (["0", "1"], ["GIN"]), (["1"], ["GCN"]):
        asked = ["--output", str(tmp_path), "--data", "zinc", "--models", *models, "--seeds", *seeds]
        asked += ["--epochs", "1", "--data.init_args.source=pyg", "--trainer.enable_progress_bar=false"]
        assert script.main([*asked, "--records", str(kept)]) == 0
    assert read_records([kept]) == found, "records added in parts, or twice, are those of one call"
    assert found[0].recipe == ("equal-budget/zinc",)
    assert {"--model.architecture=GIN", "--data.init_args.source=pyg"} <= set(found[0].options)
    assert "--trainer.enable_progress_bar=false" not in found[0].options
