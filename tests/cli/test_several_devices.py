"""`predict --input` on several devices writes the file of one."""

from __future__ import annotations

import pickle
from functools import partial
from queue import Queue

import pandas as pd
import pytest
import torch

from graphbench.cli import main, several_devices
from graphbench.cli.commands.predict import _models_on
from graphbench.cli.several_devices import Work, answer_part, chosen_devices, start_answering
from graphbench.errors import BadInput
from graphbench.prediction.calibration import Temperature

CPU = torch.device("cpu")


def test_the_last_number_that_was_typed_counts():
    assert chosen_devices(["--trainer.devices", "2", "--x", "--trainer.devices=3"], CPU) == ["1"] * 3
    assert chosen_devices(["--trainer.devices", "auto"], CPU) == ["1"]
    assert chosen_devices(["--config", "run/config.yaml"], CPU) == ["1"]


@pytest.mark.parametrize(
    ("value", "message"),
    [("0", "should be an int > 0"), ("many", "many: "), ("10000", "that many processes on the CPU; expected at most")],
)
def test_devices_that_are_not_there_are_told(value, message):
    with pytest.raises(BadInput, match=message):
        chosen_devices(["--trainer.devices", value], CPU)


def test_a_process_answers_as_this_one(finished_run, molecule_file, tmp_path, monkeypatch):
    monkeypatch.setattr(several_devices, "_ensemble", None)
    monkeypatch.setattr(several_devices.logging, "disable", lambda level: None)
    typed = ["--run", str(finished_run), "--input", str(molecule_file), "--output", "unused.csv"]
    places = Queue()
    places.put("1")
    kept = Temperature(1.5, 10, (1.0, 0.9), (0.2, 0.1))
    start_answering(Work(partial(_models_on, typed), kept, None), places, torch.get_num_threads())
    ensemble = several_devices._ensemble
    assert ensemble.temperature is kept
    ensemble.temperature = None
    (views,) = ensemble.read_input(str(molecule_file))
    found, (expected,) = answer_part(pickle.dumps(views)), ensemble.predict_parts([views])
    pd.testing.assert_frame_equal(found, expected)


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
