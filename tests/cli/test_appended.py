"""A job that is queued again: the same command goes on, whatever it appends to lists."""

import pytest
import yaml
from command_line import SMALL_MODEL

from graphbench.cli import main
from graphbench.cli.resume import without_repeats

CONFIG = {
    "trainer": {"callbacks": [{"class_path": "pytorch_lightning.callbacks.EarlyStopping", "init_args": {}}]},
    "model": {
        "metrics": ["R2"],
        "architecture": {"class_path": "GPS", "init_args": {"encoders": [{"class_path": "A"}]}},
    },
}
STOP = "--trainer.callbacks+=EarlyStopping"
TIMER = ["--trainer.callbacks+=Timer", "--trainer.callbacks.interval", "epoch"]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([STOP, "--trainer.callbacks.monitor", "val/MAE", "--seed", "1"], ["--seed", "1"]),
        ([STOP, "--trainer.callbacks.strict=false", "--seed", "1"], ["--seed", "1"]),
        ([STOP, "--trainer.callbacks.verbose"], []),
        (["--trainer.callbacks+", "EarlyStopping", "--model.metrics+=R2"], []),
        (["--trainer.callbacks+={class_path: EarlyStopping, init_args: {patience: 3}}"], []),
        (["--model.metrics+=[R2]", "--model.architecture.encoders+=A"], []),
        (["--model.metrics+=[R2, MCC]"], ["--model.metrics+=[R2, MCC]"]),
        ([*TIMER, STOP], TIMER),
        (["--trainer.logger+=CSVLogger"], ["--trainer.logger+=CSVLogger"]),
        (["--data.nothing+=here"], ["--data.nothing+=here"]),
        (["--trainer.max_epochs=3", "--trainer.callbacks+"], ["--trainer.max_epochs=3", "--trainer.callbacks+"]),
    ],
)  # fmt: skip
def test_what_the_run_has_is_left_out_with_its_options(words, kept):
    assert without_repeats(words, CONFIG) == kept


def test_a_list_that_the_command_gives_is_appended_to_anew(tmp_path):
    words, file = [STOP, "--trainer.max_epochs", "3"], tmp_path / "mine.yaml"
    file.write_text("trainer: {callbacks: [{class_path: Timer}]}")
    assert without_repeats(["--config", str(file), *words], CONFIG)[2:] == words
    file.write_text("trainer: {max_epochs: 3}")
    assert without_repeats(["--config", str(file), *words], CONFIG)[2:] == words[1:]
    whole = ["--trainer.callbacks", "[{class_path: Timer}]", STOP]
    assert without_repeats(whole, CONFIG) == whole
    assert without_repeats([f"{whole[0]}={whole[1]}", STOP], CONFIG) == [f"{whole[0]}={whole[1]}", STOP]


@pytest.mark.slow
def test_the_same_command_with_a_file_goes_on_with_all_callbacks(data_options, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("trainer: {callbacks: [{class_path: TrainTestGap}]}")
    folder = tmp_path / "run"
    words = ["fit", *data_options, *SMALL_MODEL, "--config", str(tmp_path / "mine.yaml"), "--run", str(folder),
             "--if-exists", "resume", "--trainer.callbacks+=LastCheckpoint"]  # fmt: skip
    for epochs in ("1", "2"):
        assert main([*words, "--trainer.max_epochs", epochs]) == 0, capsys.readouterr().err
        stated = yaml.safe_load((folder / "config.yaml").read_text())["trainer"]
        assert stated["max_epochs"] == int(epochs)
        assert [one["class_path"].rpartition(".")[2] for one in stated["callbacks"]] == [
            "TrainTestGap",
            "LastCheckpoint",
        ]


def test_the_same_command_goes_on(data_options, tmp_path, capsys):
    folder = tmp_path / "run"
    words = ["fit", *data_options, *SMALL_MODEL, "--run", str(folder), "--if-exists", "resume", "--model.metrics+=R2",
             "--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.every_n_steps", "5",
             "--trainer.callbacks+=TrainTestGap"]  # fmt: skip
    assert main([*words, "--trainer.max_epochs", "1"]) == 0
    first = yaml.safe_load((folder / "config.yaml").read_text())
    assert main([*words, "--trainer.max_epochs", "2"]) == 0, capsys.readouterr().err
    assert "The run has --trainer.callbacks+=TrainTestGap already" in capsys.readouterr().err
    second = yaml.safe_load((folder / "config.yaml").read_text())
    assert second["trainer"].pop("max_epochs") == 2
    assert first["trainer"].pop("max_epochs") == 1
    assert second == first
    assert [one["class_path"].rpartition(".")[2] for one in second["trainer"]["callbacks"]] == [
        "LastCheckpoint", "TrainTestGap",
    ]  # fmt: skip
