"""`graphbench test --weights`: weights under other names, as in releases of authors, score as their run."""

from __future__ import annotations

import argparse
import json
import re

import pytest
import torch
import yaml

from graphbench.cli import main
from graphbench.cli.commands.list_command import list_installed
from graphbench.errors import BadInput
from graphbench.runs.checkpoints import load_checkpoint


def from_authors(content, ours):
    """Rename the weights of the released file below; refuse any that are left over."""
    state = {name.removeprefix("net/").replace("/", "."): value for name, value in content["net"].items()}
    if state.keys() != ours.keys():
        raise BadInput(f"left over: {', '.join(sorted(state.keys() ^ ours.keys()))}")
    return state


@pytest.fixture(scope="module")
def released(finished_run, tmp_path_factory):
    """Write a recipe that expects the run's score after 99 epochs, and its weights into the data's folder."""
    folder = tmp_path_factory.mktemp("released")
    config = yaml.safe_load((finished_run / "config.yaml").read_text())
    file = folder / "data" / "weights" / "theirs.pt"
    file.parent.mkdir(parents=True)
    state = load_checkpoint(finished_run / "checkpoints" / "best.ckpt")["state_dict"]
    net = {f"net/{name.replace('.', '/')}": value for name, value in state.items()}
    torch.save({"net": net, "args": argparse.Namespace(lr=0.1)}, file)
    assert main(["test", "--run", str(finished_run)]) == 0
    score = json.loads((finished_run / "results.json").read_text())["test"]["test/MAE"]
    config["data"]["init_args"] |= {"root": str(folder / "data"), "store": config["data"]["init_args"]["store"]}
    config["expected"] = {
        "metric": "test/MAE", "value": score, "sd": 0.1, "epochs": 99,
        "weights": {"page": "https://example.org/model", "file": "theirs.pt", "layout": f"{__name__}:from_authors"},
    }  # fmt: skip
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(config))
    return recipe, file, score


def shown_score(text):
    return float(re.search(r"test MAE\s*│\s*([\d.]+)", text)[1])


def test_official_weights_score_as_the_run_and_count_as_trained(released, capsys):
    recipe, _, score = released
    assert main(["test", "--config", str(recipe), "--weights", "official"]) == 0
    shown = capsys.readouterr().out
    assert f"test/MAE {score:.4f}, expected {score:.4f}" in shown
    assert "within one standard deviation" in shown
    assert "val MAE" not in shown  # the authors may have trained on these


def test_a_file_of_ones_own_claims_no_training(released, tmp_path, capsys):
    recipe, file, score = released
    other = tmp_path / "mine.pt"
    other.write_bytes(file.read_bytes())
    assert main(["test", "--config", str(recipe), "--weights", str(other)]) == 0
    shown = capsys.readouterr().out
    assert f"test/MAE {score:.4f}" in shown
    assert "not comparable" in shown
    assert "epochs" in shown


@pytest.mark.slow
def test_a_labelled_file_is_scored_by_official_weights(released, molecule_file, finished_run, capsys):
    recipe, _, _ = released
    assert main(["test", "--run", str(finished_run), "--input", str(molecule_file), "--if-exists", "replace"]) == 0
    table = capsys.readouterr().out
    command = ["test", "--config", str(recipe), "--weights", "official", "--input", str(molecule_file)]
    assert main(command) == 0
    assert capsys.readouterr().out == table


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--model.architecture.hidden_dim": "12"}, "are not those of this model"),
        ({"--model.architecture.num_layers": "1"}, "left over"),
    ],
)
def test_another_model_does_not_take_them(released, capsys, change, words):
    recipe, _, _ = released
    options = [word for pair in change.items() for word in pair]
    assert main(["test", "--config", str(recipe), "--weights", "official", *options]) == 1
    assert words in capsys.readouterr().err


def test_what_is_missing_is_told_with_the_place_to_put_it(released, tmp_path, finished_run, capsys):
    recipe, _, _ = released
    command = ["test", "--config", str(recipe), "--weights"]

    def complaint(*words):
        assert main(words) == 1
        return capsys.readouterr().err

    told = complaint(*command, "official", "--data.root", str(tmp_path))
    assert f"{tmp_path}/weights" in told
    assert "https://example.org/model" in told
    assert "none.pt" in complaint(*command, str(tmp_path / "none.pt"))
    assert "--weights" in complaint("test", "--run", str(finished_run), "--weights", "official")
    plain = complaint("test", "--config", str(finished_run / "config.yaml"), "--weights", "official")
    assert "graphbench list weights" in plain


def test_recipes_with_released_weights_are_listed(capsys):
    assert list_installed(["weights", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["gps/pcqm4mv2-deep"]["weights"]["file"] == "pcqm4m-GPS+RWSE.deep.zip"
    assert list_installed(["weights"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown and expected["weights"]["file"] in shown for name, expected in listed.items())
