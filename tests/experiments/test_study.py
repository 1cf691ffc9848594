"""The plan of a study: configurations that are one training, the control of a model, and the names of data."""

from __future__ import annotations

import json

import pytest
import yaml

from graphbench.errors import BadInput
from graphbench.experiments.control import families, family_of
from graphbench.experiments.study import Row, Standing, are_same, data_options

SETTINGS = {
    "seed_everything": 0,
    "data": {"class_path": "graphbench.benchmarks.ZINC", "init_args": {"batch_size": 32, "num_workers": 2}},
    "model": {"architecture": {"class_path": "graphbench_baselines.GPS", "init_args": {"num_layers": 4}}},
    "trainer": {"max_epochs": 10, "accelerator": "cpu", "callbacks": None},
}


def changed(**options):
    """Return the settings with other options of the trainer."""
    return {**SETTINGS, "trainer": {**SETTINGS["trainer"], **options}}


def test_devices_and_callbacks_that_measure_make_no_other_training_and_its_length_does():
    measures = [{"class_path": "graphbench.callbacks.InfluenceRange", "init_args": {"num_graphs": 16}}]
    assert are_same(SETTINGS, changed(accelerator="gpu", callbacks=measures))
    assert not are_same(SETTINGS, changed(max_epochs=20))
    assert not are_same(SETTINGS, changed(callbacks=[{"class_path": "EarlyStopping", "init_args": {}}]))


@pytest.fixture
def runs(tmp_path):
    """Return a function that writes a run with a seed, finished or not."""

    def write(place, seed, finished, settings=SETTINGS):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump({**settings, "seed_everything": seed}))
        if finished:
            (folder / "results.json").write_text(json.dumps({"metric": "MAE", "test": {"test/MAE": 0.5}}))
        return folder

    return write


def test_runs_are_found_by_configuration_and_seed(runs, tmp_path):
    own = runs("study/runs/anything-0", 0, finished=False)
    elsewhere = runs("sweep/runs/gps-0", 0, finished=True)
    runs("sweep/runs/gps-1", 1, finished=False)
    runs("sweep/runs/longer-2", 2, finished=True, settings=changed(max_epochs=20))
    row = Row("depth", "ZINC", "4 layers", settings=SETTINGS)
    alone, both = Standing(tmp_path / "study"), Standing(tmp_path / "study", [tmp_path / "sweep"])
    assert alone.find(row, 0) == own, "it is resumed"
    assert both.find(row, 0) == elsewhere, "the finished one first"
    assert both.find(row, 1) is None, "an unfinished run elsewhere may be in use"
    assert both.find(row, 2) is None


@pytest.mark.parametrize(("model", "folder"), [("GPS", "gps"), ("SFT", "sft"), ("DeepGraph", "deepgraph")])
def test_a_file_has_the_control_of_its_class(model, folder):
    assert folder in families()
    assert family_of(["mine.yaml"], f"somewhere.{model}") == folder
    assert family_of([f"{folder}/zinc"], "somewhere.Other") == folder, "the folder of a recipe decides"
    assert family_of(["mine.yaml"], "somewhere.GatedGCN") is None


def test_benchmarks_are_names_with_options_or_configurations(tmp_path):
    path = tmp_path / "rings.yaml"
    path.write_text("data: {class_path: NCI, init_args: {batch_size: 8}}\nmodel: {architecture: {class_path: GPS}}\n")
    given = ["ZINC", "PATTERN --data.source generated", "PATTERN", str(path)]
    named = dict(data_options(given))
    assert list(named)[:3] == ["ZINC", "PATTERN-1", "PATTERN-2"]
    assert named["PATTERN-1"] == ["--data", "PATTERN", "--data.source", "generated"]
    (word,) = list(named.values())[3]
    assert json.loads(word.removeprefix("--data=")) == {"class_path": "NCI", "init_args": {"batch_size": 8}}
    assert data_options([]) == [("", [])]
    path.write_text("trainer: {max_epochs: 1}\n")
    with pytest.raises(BadInput, match="--benchmarks"):
        data_options([str(path)])
