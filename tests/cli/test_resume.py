"""A killed and resumed fit ends with the weights of one that was never killed, bit for bit."""

from __future__ import annotations

import json
import re
import shutil
import signal

import pandas as pd
import pytest
import yaml
from command_line import SMALL_MODEL
from equal_runs import assert_equal_runs, content
from forked import at, forked, signal_at_step

from graphbench.cli import main
from graphbench.cli.options import own_parser, parse_request
from graphbench.cli.resume import altered_options, recipe_of, without_repeats
from graphbench.data.files.foreign import load_yaml
from graphbench.runs.checkpoints import RunCheckpointIO, load_checkpoint

OPTIONS = [
    *SMALL_MODEL,
    "--trainer.max_epochs", "4",
    "--model.schedule.name", "cosine",
    "--model.schedule.warmup", "3",
]  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(data_options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    assert forked(folder, "fit", *data_options, *OPTIONS, "--run", folder / "whole").code == 0
    return folder / "whole"


@pytest.mark.parametrize(
    ("event", "code", "step", "stopped_at"),
    [
        (signal.SIGKILL, -9, 15, 12),  # in the third epoch; the checkpoint is that of the second
        (signal.SIGTERM, 143, 9, 9),  # in the second, with a checkpoint there
    ],
)
def test_continued_weights_are_equal(uninterrupted, data_options, tmp_path, event, code, step, stopped_at):
    run = tmp_path / "cut"
    prepare = at("on_train_batch_end", signal_at_step(step, event))
    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, "--run", run, prepare=prepare)
    assert ended.code == code, ended.text
    stopped = content(run)
    first_part = stopped["callbacks"]["Timer"]["time_elapsed"]["train"]
    assert stopped["global_step"] == stopped_at
    tested_too_early = {"test": {"test/MAE": 9.0}}
    (run / "results.json").write_text(json.dumps(tested_too_early))
    assert forked(tmp_path, "fit", "--resume", run).code == 0
    results = json.loads((run / "results.json").read_text())
    assert "test" not in results
    assert results["fit_seconds"] >= round(first_part, 1) > 0
    assert_equal_runs(uninterrupted, run)


def test_another_model_is_refused_and_the_run_stays_as_it_is(finished_run, capsys):
    before = {
        path.name: path.read_bytes() for path in finished_run.iterdir() if path.suffix in (".yaml", ".json", ".csv")
    }
    larger = ["--model.architecture.init_args.hidden_dim", "32", "--trainer.max_epochs", "5"]
    assert main(["fit", "--resume", str(finished_run), *larger]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "--resume: model.architecture.hidden_dim is 32 instead of 16, but a run continues as the model" in said
    assert {name: (finished_run / name).read_bytes() for name in before} == before


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (
            ["--trainer.max_epochs", "2"],
            r"--trainer.max_epochs is 2, but .* is in epoch \d already. Give the length of",
        ),
        (["--trainer.max_steps", "3"], r"--trainer.max_steps is 3, but .* is at step \d+ already. Give the length of"),
    ],
)
def test_a_length_that_the_run_has_passed_is_refused(finished_run, capsys, length, told):
    assert main(["fit", "--resume", str(finished_run), *length]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(told, said), said


@pytest.mark.parametrize("way", ["--resume", "--if-exists"])
def test_a_finished_run_says_so_and_is_not_trained(finished_run, data_options, tmp_path, capsys, way):
    run = shutil.copytree(finished_run, tmp_path / "run")
    before = load_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"]
    again = ["--run", str(run), "--if-exists", "resume", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "3"]
    assert main(["fit", *(["--resume", str(run)] if way == "--resume" else again)]) == 0
    said = capsys.readouterr().err
    assert f"{run} is finished: all of --trainer.max_epochs 3 are trained" in said
    assert "Continuing" not in said
    assert load_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"] == before
    assert main(["fit", "--resume", str(run), "--trainer.max_steps", str(before)]) == 0
    assert "is finished: all of --trainer.max_" in capsys.readouterr().err


def test_a_finished_run_goes_on_as_it_is_told(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    before = load_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"]
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "4"]) == 0
    assert f"Continuing {run} at step {before}" in capsys.readouterr().err
    assert load_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"] == before * 4 // 3


def test_a_run_of_max_steps_goes_on_behind_the_end_of_an_epoch(data_options, tmp_path):
    """That epoch must not run again without a batch: NaN for scores, and no validation."""

    def trained(folder, words):
        assert main(["fit", *words]) == 0
        rows = pd.read_csv(folder / "metrics.csv").dropna(subset="train/loss")
        return rows[["epoch", "step", "train/loss", "val/RMSE"]]

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    fit = [*data_options, *SMALL_MODEL, "--trainer.max_epochs", "-1", "--trainer.max_steps"]
    expected = trained(whole, [*fit, "18", "--run", str(whole)])
    assert len(trained(parts, [*fit, "12", "--run", str(parts)])) == 2
    found = trained(parts, ["--resume", str(parts), "--trainer.max_steps", "18"])
    pd.testing.assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True))
    rows = pd.read_csv(parts / "metrics.csv", keep_default_na=False)
    assert not (rows == "nan").any(axis=None)


def test_weights_alone_are_no_training_to_go_on_with(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    checkpoint = load_checkpoint(run / "checkpoints" / "last.ckpt")
    weights = {key: checkpoint[key] for key in ("state_dict", "epoch", "global_step")}
    RunCheckpointIO().save_checkpoint(weights, run / "weights.ckpt")
    assert main(["fit", "--resume", str(run), "--checkpoint", str(run / "weights.ckpt")]) == 1
    assert "contains only weights and no training" in capsys.readouterr().err


def test_weights_of_other_code_are_refused(finished_run, tmp_path, capsys):
    """As after an update that renamed a layer: the options are those of the fit, but the weights do not fit."""
    run = shutil.copytree(finished_run, tmp_path / "run")
    last = run / "checkpoints" / "last.ckpt"
    checkpoint = load_checkpoint(last)
    name = next(iter(checkpoint["state_dict"]))
    checkpoint["state_dict"][f"{name}_renamed"] = checkpoint["state_dict"].pop(name)
    RunCheckpointIO().save_checkpoint(checkpoint, last)
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "5"]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "last.ckpt do not fit" in said
    assert f"{name}_renamed" in said


@pytest.mark.slow
@pytest.mark.parametrize("step", [9, 10])
def test_a_validation_within_an_epoch_is_not_lost(data_options, tmp_path, step):
    """Validations follow every second of six batches; a kill comes between two, or at one."""
    often = ["--trainer.val_check_interval", "2", "--trainer.callbacks+=LastCheckpoint"]
    options = [*OPTIONS, *often, "--trainer.callbacks.every_n_steps", "1"]
    assert forked(tmp_path, "fit", *data_options, *options, "--run", tmp_path / "whole").code == 0
    run = tmp_path / "cut"
    prepare = at("on_train_batch_end", signal_at_step(step, signal.SIGKILL))
    ended = forked(tmp_path, "fit", *data_options, *options, "--run", run, prepare=prepare)
    assert ended.code == -signal.SIGKILL, ended.text
    assert forked(tmp_path, "fit", "--resume", run).code == 0
    assert_equal_runs(tmp_path / "whole", run)


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


def test_what_is_left_out_is_counted_and_other_values_are_named(caplog):
    caplog.set_level("INFO")
    stop = {"class_path": "EarlyStopping", "init_args": {"monitor": "val/MAE", "patience": 10, "min_delta": 0.001}}
    words = [STOP, "--trainer.callbacks.min_delta=1e-3", "--trainer.callbacks.patience", "10"]
    assert without_repeats([*words, STOP], {"trainer": {"callbacks": [stop]}}) == [STOP]
    assert "instead of" not in caplog.text
    assert without_repeats([*words[:-1], "20"], {"trainer": {"callbacks": [stop, stop]}}) == []
    assert "patience 10 instead of 20." in caplog.text
    mapped = "--trainer.callbacks+={class_path: EarlyStopping, init_args: {monitor: val/loss, patience: 10}}"
    assert without_repeats([mapped], {"trainer": {"callbacks": [stop]}}) == []
    assert "monitor val/MAE instead of val/loss." in caplog.text


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
    assert "The run already has --trainer.callbacks+=TrainTestGap" in capsys.readouterr().err
    second = yaml.safe_load((folder / "config.yaml").read_text())
    assert second["trainer"].pop("max_epochs") == 2
    assert first["trainer"].pop("max_epochs") == 1
    assert second == first
    assert [one["class_path"].rpartition(".")[2] for one in second["trainer"]["callbacks"]] == [
        "LastCheckpoint", "TrainTestGap",
    ]  # fmt: skip


def altered(*words):
    request = parse_request(own_parser("fit"), words, run_option="resume")
    return [one.option for one in altered_options(request)]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], []),
        (["--trainer.accelerator=cpu", "--data.root=elsewhere", "--data.num_workers=2", "--seed_everything=3"], []),
        (["--trainer.max_epochs=2"], []),  # compared with the trained epochs
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
    """Write a configuration that expects a score of a small model on the file of molecules."""
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
    if stands:  # options of the test itself, and of a resumed run, alter it as well
        assert main(["test", "--run", str(run), "--data.train_fraction=0.5", "--data-changed", "accept"]) == 0
        assert "train_fraction" in capsys.readouterr().err
        assert "expected" not in json.loads((run / "results.json").read_text())
        more = ["--trainer.max_epochs", "2", "--model.optimizer.lr", "1e-4"]
        assert main(["fit", "--resume", str(run), *more]) == 0
        told = load_yaml((run / "config.yaml").read_text())["expected"]["resumed"]
        assert told == ["model.optimizer.lr is 0.0001 instead of 0.001 from step 6 on"]
        assert main(["test", "--run", str(run)]) == 0
        assert "expected" not in json.loads((run / "results.json").read_text())
