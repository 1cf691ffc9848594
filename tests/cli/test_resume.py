"""A killed fit that is continued ends with the weights of one that was never killed, bit for bit."""

import json
import re
import shutil
import signal

import pytest
from command_line import SMALL_MODEL
from equal_runs import assert_equal_runs, content
from forked import at, forked, signal_at_step

from graphbench.cli import main
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
    assert "--resume: model.architecture.hidden_dim is 32 instead of 16, but a run goes on as the model" in said
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
    assert f"{run} is finished: --trainer.max_epochs is 3, and so many are trained. To train on, name more: " in said
    assert "Continuing" not in said
    assert load_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"] == before
    assert main(["fit", "--resume", str(run), "--trainer.max_steps", str(before)]) == 0
    assert "is finished: --trainer.max_" in capsys.readouterr().err


def test_a_finished_run_goes_on_as_it_is_told(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    before = load_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"]
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "4"]) == 0
    assert f"Continuing {run} at step {before}" in capsys.readouterr().err
    assert load_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"] == before * 4 // 3


def test_weights_alone_are_no_training_to_go_on_with(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    checkpoint = load_checkpoint(run / "checkpoints" / "last.ckpt")
    weights = {key: checkpoint[key] for key in ("state_dict", "epoch", "global_step")}
    RunCheckpointIO().save_checkpoint(weights, run / "weights.ckpt")
    assert main(["fit", "--resume", str(run), "--checkpoint", str(run / "weights.ckpt")]) == 1
    assert "holds weights alone and no training" in capsys.readouterr().err


def test_weights_of_other_code_are_refused(finished_run, tmp_path, capsys):
    """As after an update that renamed a layer: the options are those of the fit, and the weights still do not fit."""
    run = shutil.copytree(finished_run, tmp_path / "run")
    last = run / "checkpoints" / "last.ckpt"
    checkpoint = load_checkpoint(last)
    name = next(iter(checkpoint["state_dict"]))
    checkpoint["state_dict"][f"{name}_renamed"] = checkpoint["state_dict"].pop(name)
    RunCheckpointIO().save_checkpoint(checkpoint, last)
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "5"]) == 1
    assert "do not fit: the code of the model has changed." in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("step", [9, 10])
def test_a_validation_within_an_epoch_is_not_lost(data_options, tmp_path, step):
    """After every second of six batches; a kill in one, and one behind it."""
    often = ["--trainer.val_check_interval", "2", "--trainer.callbacks+=LastCheckpoint"]
    options = [*OPTIONS, *often, "--trainer.callbacks.every_n_steps", "1"]
    assert forked(tmp_path, "fit", *data_options, *options, "--run", tmp_path / "whole").code == 0
    run = tmp_path / "cut"
    prepare = at("on_train_batch_end", signal_at_step(step, signal.SIGKILL))
    ended = forked(tmp_path, "fit", *data_options, *options, "--run", run, prepare=prepare)
    assert ended.code == -signal.SIGKILL, ended.text
    assert forked(tmp_path, "fit", "--resume", run).code == 0
    assert_equal_runs(tmp_path / "whole", run)
