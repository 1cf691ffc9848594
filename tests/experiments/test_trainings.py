"""Trainings of experiments with pretended commands: which are skipped or resumed, and the tables."""

from __future__ import annotations

import json
import os

import pytest
import yaml

from graphbench.errors import BadInput
from graphbench.experiments import (
    TrainedElsewhere,
    Training,
    assign,
    finished_seeds,
    provenance,
    read_csv,
    results,
    train,
    write_csv,
)
from graphbench.experiments import trainings as experiments
from graphbench.experiments.trainings import write_settled
from graphbench.runs.holding import claimed


@pytest.fixture
def calls(monkeypatch):
    """Record commands instead of running them."""
    made = []
    monkeypatch.setattr(experiments, "graphbench", lambda *arguments: made.append(arguments))
    return made


def never():
    pytest.fail("asked for the options of a training that must not start")


def record(folder, **scores):
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(scores))


def test_assignments_reach_nested_options():
    content = {"data": {"init_args": {"batch_size": 4}}}
    assign(content, "data.init_args.sizes=[4, 2]")
    assign(content, "trainer.accelerator=gpu")
    assert content["data"]["init_args"] == {"batch_size": 4, "sizes": [4, 2]}
    assert content["trainer"] == {"accelerator": "gpu"}
    with pytest.raises(BadInput, match="NAME=VALUE"):
        assign(content, "trainer.accelerator")
    with pytest.raises(BadInput, match="data is 'ZINC' in this configuration"):
        assign({"data": "ZINC"}, "data.init_args.batch_size=8")


def test_a_training_starts_with_its_options_and_is_tested(calls, tmp_path):
    run = tmp_path / "run"
    assert results(run) == {}
    train(run, lambda: ["--config", "a.yaml"])
    assert calls == [("fit", "--config", "a.yaml", "--run", str(run)), ("test", "--run", str(run))]


def test_a_finished_training_is_never_run_again(calls, tmp_path):
    record(tmp_path / "run", val={"val/MAE": 1.0}, test={"test/MAE": 2.0})
    train(tmp_path / "run", never)
    assert not calls


def test_a_trained_run_is_only_tested(calls, tmp_path):
    record(tmp_path / "run", val={"val/MAE": 1.0})
    train(tmp_path / "run", never)
    assert calls == [("test", "--run", str(tmp_path / "run"))]


@pytest.mark.parametrize("name", ["last", "previous"])
def test_an_interrupted_training_goes_on(calls, tmp_path, name):
    checkpoint = tmp_path / "run" / "checkpoints" / f"{name}.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    train(tmp_path / "run", never)
    assert calls[0] == ("fit", "--resume", str(tmp_path / "run"))


def test_what_stopped_before_its_first_checkpoint_starts_anew(calls, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    train(tmp_path / "run", list)
    assert calls[0] == ("fit", "--run", str(tmp_path / "run"))


def test_a_training_is_run_by_the_command_that_it_is_given(calls, tmp_path):
    made = []
    train(tmp_path / "run", lambda: ["--config", "a.yaml"], lambda *arguments: made.append(arguments[0]))
    assert made == ["fit", "test"]
    assert not calls


def test_tables_are_replaced_as_a_whole(tmp_path):
    table = tmp_path / "table.csv"
    write_csv(table, [])
    assert not table.exists()
    write_csv(table, [{"a": 1, "b": "x,y"}, {"a": 2.5, "b": ""}])
    assert table.read_bytes() == b'a,b\n1,"x,y"\n2.5,\n'
    assert read_csv(table) == [{"a": "1", "b": "x,y"}, {"a": "2.5", "b": ""}]
    with pytest.raises(ValueError, match="c"):
        write_csv(table, [{"a": 1}, {"c": 2}])
    assert len(read_csv(table)) == 2, "the old table stays"


def finish(training, output, **scores):
    """Write the folder as `graphbench fit` and `test` leave it."""
    scores = {"metric": "MAE", "val": {"val/MAE": 1.0}, "test": {"test/MAE": 2.0}, "epochs": 3, "steps": 12} | scores
    record(training.folder(output), parameters=5, fit_seconds=7.5, data="generated", **scores)
    packages = {"graphbench-lightning": "0.1.0", "torch": "2.6", "ogb": "1.3"}
    environment = {"processor": "Z80", "torch_threads": 2, "gpus": [], "commit": "abc", "packages": packages}
    (training.folder(output) / "environment.json").write_text(json.dumps(environment))


def test_a_trainings_options_follow_its_configurations(calls, tmp_path):
    content = {"model": {"head": {"num_layers": 1}}}
    training = Training("gps", 3, ["gps/zinc", content], ["--trainer.max_epochs=2"])
    assert training.run(tmp_path) == {}, "the pretended commands leave no scores"
    written = tmp_path / "configs" / "gps-3-1.yaml"
    assert yaml.safe_load(written.read_text()) == content
    folder = str(tmp_path / "runs" / "gps-3")
    configs = ("--config", "gps/zinc", "--config", str(written))
    fit = ("fit", *configs, "--trainer.max_epochs=2", "--seed_everything=3", "--run", folder)
    assert calls == [fit, ("test", "--run", folder)]


def test_a_finished_training_gives_its_row_and_writes_nothing(calls, tmp_path):
    training = Training("gps-32", 0, [{"a": 1}], facts={"model": "GPS", "width": 32})
    finish(training, tmp_path)
    assert training.is_finished(tmp_path)
    assert training.run(tmp_path)["test"] == {"test/MAE": 2.0}
    assert not calls
    assert not (tmp_path / "configs").exists()
    assert training.row(tmp_path) == {
        "model": "GPS", "width": 32, "seed": 0, "parameters": 5, "epochs": 3, "steps": 12,
        "metric": "MAE", "val": 1.0, "test": 2.0,
        "graphs": "generated", "seconds": 7.5, "hardware": "Z80, 2 threads",
        "versions": "graphbench-lightning 0.1.0, torch 2.6", "commit": "abc",
    }  # fmt: skip
    assert list(Training("gps-32", 0, []).row(tmp_path))[:2] == ["name", "seed"]


def test_a_training_that_is_not_tested_is_not_finished(tmp_path):
    training = Training("gps", 0, [], room="trials")
    record(tmp_path / "trials" / "gps-0", val={"val/MAE": 1.0})
    assert not training.is_finished(tmp_path)
    assert finished_seeds(tmp_path, training) == []


def test_seeds_are_found_whatever_call_made_them(tmp_path):
    for name, seed in (("gps", 10), ("gps", 2), ("gps-32", 1)):
        finish(Training(name, seed, []), tmp_path)
    assert finished_seeds(tmp_path, Training("gps", 0, [])) == [2, 10]
    assert finished_seeds(tmp_path, Training("gp", 0, [])) == []


def test_runs_of_earlier_versions_have_gaps_in_their_provenance(tmp_path):
    record(tmp_path / "run", metric="MAE")
    assert set(provenance(tmp_path / "run").values()) == {""}
    (tmp_path / "run" / "environment.json").write_text('{"processor": "Z80", "torch_threads": 2, "gpus": ["A", "B"]}')
    assert provenance(tmp_path / "run")["hardware"] == "A + B"


def test_a_training_that_goes_on_gets_the_options_of_the_machine(tmp_path, monkeypatch):
    from graphbench.experiments import trainings

    made = []
    monkeypatch.setattr(trainings, "graphbench", lambda *words, **more: made.append(words))
    training = trainings.Training(
        "gps", 0, ["gps/zinc"], ["--data.init_args.batch_size=4"], place=["--trainer.devices=1"]
    )
    folder = training.folder(tmp_path)
    training.run(tmp_path)
    assert made[0] == (
        "fit", "--config", "gps/zinc", "--data.init_args.batch_size=4", "--trainer.devices=1", "--seed_everything=0",
        "--run", str(folder),
    )  # fmt: skip
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "last.ckpt").touch()
    training.run(tmp_path)
    assert made[2] == ("fit", "--resume", str(folder), "--trainer.devices=1")


def test_what_another_process_trains_is_left_to_it_between_its_commands_as_well(calls, tmp_path):
    training = Training("gps", 0, [{"a": 1}])
    record(training.folder(tmp_path), val={"val/MAE": 1.0})  # trained, but not tested yet
    with (
        claimed(training.folder(tmp_path)),
        pytest.raises(TrainedElsewhere, match=rf"process {os.getpid()} on .* works on it\. Run the same command"),
    ):
        training.run(tmp_path, begin=never)
    assert not calls
    begun = []
    training.run(tmp_path, begin=lambda: begun.append(1))
    assert (len(calls), begun) == (1, [1])


def test_what_another_process_finishes_meanwhile_is_not_run_again(calls, tmp_path, monkeypatch):
    training = Training("gps", 0, [])
    claims = experiments.claimed

    def late(folder):
        record(folder, val={"val/MAE": 1.0}, test={"test/MAE": 2.0})  # the other process ends first
        return claims(folder)

    monkeypatch.setattr(experiments, "claimed", late)
    assert training.run(tmp_path, begin=never)["test"] == {"test/MAE": 2.0}
    assert not calls


def test_a_table_is_written_again_where_another_process_ended_meanwhile():
    finished, tables = [1], []

    def write():
        tables.append(list(finished))
        if len(tables) < 3:
            finished.append(len(tables) + 1)
        return len(tables)

    assert write_settled(lambda: list(finished), write) == 3
    assert tables[-1] == finished == [1, 2, 3]
