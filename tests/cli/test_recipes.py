"""What a command line alters of the recipe that it names, and that nothing is expected of such a run."""

from __future__ import annotations

import json

import pytest
from command_line import SMALL_MODEL

from graphbench.cli import main
from graphbench.cli.changes import altered_options, recipe_of
from graphbench.cli.options import OWN, own_parser, split
from graphbench.data.files.foreign import load_yaml


def altered(*words):
    request = split(own_parser("fit", **OWN["fit"]), words, run_option="resume")
    return [one.option for one in altered_options(request)]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], []),
        (["--trainer.accelerator=cpu", "--data.root=elsewhere", "--data.num_workers=2", "--seed_everything=3"], []),
        (["--trainer.max_epochs=2"], []),  # held against the epochs that were trained
        (["--data", "Molecules", "--data.file", "a.csv", "--data.target", "y"], ["data"]),
        (["--data.train_fraction=0.5"], ["data.train_fraction"]),
        (["--model.architecture.hidden_dim=16"], ["model.architecture.hidden_dim"]),
        (["--model.architecture", "GT"], ["model.architecture"]),
        (["--model.optimizer.lr=1e-2", "--trainer.limit_train_batches=2"],
         ["trainer.limit_train_batches", "model.optimizer.lr"]),
    ],
)  # fmt: skip
def test_options_over_the_quickstart(words, options):
    assert altered("--config", "quickstart", *words) == options


def test_a_file_behind_the_recipe_alters_it_and_one_that_expects_something_is_part_of_it(tmp_path):
    (tmp_path / "over.yaml").write_text("data: {init_args: {batch_size: 8}}\n")
    (tmp_path / "variant.yaml").write_text("data: {init_args: {batch_size: 8}}\nexpected: {variant: eight}\n")
    assert altered("--config", "quickstart", "--config", str(tmp_path / "over.yaml")) == ["data.batch_size"]
    assert altered("--config", "quickstart", "--config", str(tmp_path / "variant.yaml")) == []
    assert recipe_of(["--data", "NCI", "--model.architecture=GPS"]) == []


@pytest.fixture(scope="module")
def recipe(data_options, tmp_path_factory):
    """A configuration that expects something of a small model on the file of molecules."""
    folder = tmp_path_factory.mktemp("recipe")
    first = folder / "first"
    assert main(["fit", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(first)]) == 0
    text = (first / "config.yaml").read_text().partition("\nexpected:")[0]
    path = folder / "recipe.yaml"
    path.write_text(text + "\nexpected: {metric: test/MAE, value: 0.5, sd: 0.1}\n")
    return path


@pytest.mark.parametrize(("words", "stands"), [([], True), (["--data.split_seed", "1"], False)])
def test_the_score_expected_of_a_recipe_stands_beside_runs_of_it_alone(recipe, tmp_path, capsys, words, stands):
    run = tmp_path / "run"
    assert main(["fit", "--config", str(recipe), *words, "--run", str(run)]) == 0
    capsys.readouterr()
    assert main(["test", "--run", str(run)]) == 0
    told = capsys.readouterr()
    assert ("expected" in told.out) is stands
    assert ("expected" in json.loads((run / "results.json").read_text())) is stands
    assert ("data.split_seed is 1 instead of 0" in told.err) is not stands
    written = load_yaml((run / "config.yaml").read_text())["expected"]["altered"]
    assert written == ([] if stands else ["data.split_seed is 1 instead of 0"])
    if stands:  # options of the test itself, and of a run that goes on, alter it as well
        assert main(["test", "--run", str(run), "--data.train_fraction=0.5", "--data-changed", "accept"]) == 0
        assert "train_fraction" in capsys.readouterr().err
        assert "expected" not in json.loads((run / "results.json").read_text())
        more = ["--trainer.max_epochs", "2", "--model.optimizer.lr", "1e-4"]
        assert main(["fit", "--resume", str(run), *more]) == 0
        told = load_yaml((run / "config.yaml").read_text())["expected"]["resumed"]
        assert told == ["model.optimizer.lr is 0.0001 instead of 0.001 from step 6 on"]
        assert main(["test", "--run", str(run)]) == 0
        assert "expected" not in json.loads((run / "results.json").read_text())
