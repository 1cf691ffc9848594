"""`predict --input` and `embed` write the same file on several devices as on one; `explain` refuses several."""

from __future__ import annotations

import os
import pickle
from functools import partial
from pathlib import Path
from queue import Queue

import pandas as pd
import pytest
import torch

import graphbench
from graphbench.cli import main
from graphbench.cli import trained as several_devices
from graphbench.cli.commands import predict as embed
from graphbench.cli.commands.predict import _load_predictor
from graphbench.cli.trained import answer_part, chosen_devices, start_answering
from graphbench.errors import BadInput
from graphbench.inference import Ensemble
from graphbench.inference.calibration import Temperature
from graphbench.runs import trust

CPU = torch.device("cpu")


def test_the_last_number_that_was_typed_counts():
    assert chosen_devices(["--trainer.devices", "2", "--x", "--trainer.devices=3"], CPU) == ["1"] * 3
    assert chosen_devices(["--trainer.devices", "auto"], CPU) == ["1"]


def test_devices_of_a_further_configuration_count_in_its_place(tmp_path):
    (tmp_path / "two.yaml").write_text("trainer: {devices: 2}\n")
    (tmp_path / "other.yaml").write_text("trainer: {max_epochs: 3}\n")
    two, other = (["--config", str(tmp_path / f"{name}.yaml")] for name in ("two", "other"))
    assert chosen_devices([*two, *other], CPU) == ["1"] * 2
    assert chosen_devices([*two, "--trainer.devices", "3"], CPU) == ["1"] * 3
    assert chosen_devices(["--trainer.devices", "3", *two], CPU) == ["1"] * 2
    assert chosen_devices(other, CPU) == ["1"]


@pytest.mark.parametrize(
    ("value", "message"),
    [("0", "should be an int > 0"), ("many", "many: "), ("10000", "that many processes on the CPU; expected at most")],
)
def test_devices_that_are_not_there_are_told(value, message):
    with pytest.raises(BadInput, match=message):
        chosen_devices(["--trainer.devices", value], CPU)


@pytest.fixture(autouse=True)
def command():
    """Admit imports of runs only during the test, as in the process of a command."""
    with trust.admitting_all():
        yield


@pytest.fixture
def as_in_a_process(monkeypatch):
    """Return a function that returns a process's answer to a pickled part."""
    monkeypatch.setattr(several_devices, "_answer", None)
    monkeypatch.setattr(several_devices.logging, "disable", lambda level: None)
    places = Queue()

    def answered(make, part):
        places.put("1")
        start_answering(make, places, torch.get_num_threads())
        return answer_part(pickle.dumps(part))

    return answered


def test_a_process_answers_as_this_one(finished_run, molecule_file, as_in_a_process):
    typed = ["--run", str(finished_run), "--input", str(molecule_file), "--output", "unused.csv"]
    ensemble = Ensemble([graphbench.load(finished_run, accelerator="cpu")])
    (views,) = ensemble.read_input(str(molecule_file))
    found, (expected,) = (
        as_in_a_process(partial(_load_predictor, typed, None, None), views),
        ensemble.predict_parts([views]),
    )
    pd.testing.assert_frame_equal(found, expected)


def test_a_process_has_what_the_validation_split_taught(finished_run):
    kept = Temperature(1.5, 10, (1.0, 0.9), (0.2, 0.1))
    answer = _load_predictor(["--run", str(finished_run), "--input", "new.csv"], kept, None, "1")
    (cell,) = answer.__closure__
    assert cell.cell_contents.temperature is kept


@pytest.mark.parametrize("chosen", [[], ["--split", "val"]])
def test_a_process_embeds_as_this_one(finished_run, molecule_file, tmp_path, as_in_a_process, monkeypatch, chosen):
    source = chosen or ["--input", str(molecule_file)]
    typed = ["--run", str(finished_run), *source, "--level", "node", "--output", str(tmp_path / "e.parquet")]
    assert main(["embed", *typed]) == 0
    expected = pd.read_parquet(tmp_path / "e.parquet")
    monkeypatch.setattr(embed, "answered_on", lambda devices, make, parts: (as_in_a_process(make, p) for p in parts))
    assert main(["embed", *typed, "--trainer.devices", "2"]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "e.parquet"), expected)


def test_explain_works_on_one_device(finished_run, tmp_path, capsys):
    words = ["explain", "--run", str(finished_run), "--rows", "0", "--output", str(tmp_path / "out")]
    assert main([*words, "--trainer.devices", "2"]) == 1
    assert "--trainer.devices requests 2: explain uses one device" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_devices_write_the_same_file(finished_run, molecule_file, tmp_path, capfd):
    header, *rows = molecule_file.read_text().splitlines()
    rows[7] = "C1CC,0"
    source = tmp_path / "new.csv"
    source.write_text("\n".join([header, *rows * 20]))  # three parts
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, devices in (("one", []), ("two", ["--trainer.devices", "2"])):
            output = str(tmp_path / f"{name}.csv")
            words = ["predict", "--run", str(finished_run), "--input", str(source), "--output", output, *devices]
            assert main(words) == 0
    finally:
        torch.set_num_threads(threads)
    one, two = (tmp_path / "one.csv").read_bytes(), (tmp_path / "two.csv").read_bytes()
    assert one.count(b"\n") == 2401
    assert two == one
    assert "2400 rows, 20 without prediction" in capfd.readouterr().err


@pytest.mark.parametrize("command", [["test"], ["validate"], ["test", "--input"], ["predict"]], ids=" ".join)
def test_a_run_of_somebody_else_is_read_alone(finished_run, molecule_file, tmp_path, monkeypatch, capsys, command):
    """`os.access` is patched, as a changed mode does not stop root."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != finished_run and access(path, mode))
    before = {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}
    words = [str(molecule_file)] if command[-1] == "--input" else []
    words += ["--output", str(tmp_path / "p.csv")] if command == ["predict"] else []
    assert main([*command, *words, "--run", str(finished_run)]) == 0
    told = capsys.readouterr()
    assert f"{finished_run} is not writable" in told.err
    assert "MAE" in told.out or len(pd.read_csv(tmp_path / "p.csv"))
    assert {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("option", ["limit_predict_batches=1", "fast_dev_run=true", "strategy=ddp", "num_nodes=2"])
@pytest.mark.parametrize("command", ["predict", "embed"])
def test_options_of_a_trainer_that_does_not_run_are_refused(finished_run, molecule_file, capsys, command, option):
    words = [command, "--run", str(finished_run), "--input", str(molecule_file), "--output", "never.csv"]
    assert main([*words, f"--trainer.{option}"]) == 1
    assert f"--trainer.{option.partition('=')[0]} has no effect here" in capsys.readouterr().err
    assert not Path("never.csv").exists()
