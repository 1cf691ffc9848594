"""Trainings of experiments without training: what is skipped, what goes on, and the tables."""

from __future__ import annotations

import json

import pytest

from graphbench import experiments
from graphbench.errors import BadInput
from graphbench.experiments import assign, graphbench, read_csv, results, train, write_csv


@pytest.fixture
def calls(monkeypatch):
    """Commands that would have run."""
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


def test_a_failing_command_says_how_to_go_on(capfd):
    graphbench("version")
    assert "graphbench" in capfd.readouterr().out
    with pytest.raises(SystemExit, match=r"graphbench test ended with 1\. Give the same command again"):
        graphbench("test", "--no-such-option")


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
