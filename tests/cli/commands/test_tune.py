"""`graphbench tune`: trials of two epochs, the best configuration, and that no trial uses the test split."""

from __future__ import annotations

import errno
import json
import os
import signal

import pandas as pd
import pytest
import pytorch_lightning as pl
import yaml
from forked import start, wait
from waits import wait_until

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.cli import main
from graphbench.cli.commands import fit as fitting
from graphbench.cli.commands import tune
from graphbench.cli.process import Stopped
from graphbench.errors import GraphbenchError
from graphbench.experiments.launchers import Cluster
from graphbench.experiments.tuning import workers
from graphbench.training.module import BenchmarkModule

pytest.importorskip("optuna")

DIM, LR = "model.architecture.init_args.hidden_dim", "model.optimizer.init_args.lr"


@pytest.fixture(scope="module")
def config(molecule_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    data = {"file": str(molecule_file), "target": "length", "batch_size": 32, "root": str(folder / "data")}
    content = {
        "data": {"class_path": "Molecules", "init_args": data},
        "model": {
            "architecture": {"class_path": "GCN", "init_args": {"num_layers": 1}},
            "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-3}},
        },
        "trainer": {"max_epochs": 2, "accelerator": "cpu"},
    }
    (folder / "gcn.yaml").write_text(yaml.safe_dump(content))
    space = {DIM: {"values": [4, 8]}, LR: {"low": 1e-5, "high": 1e-2, "log": True}}
    (folder / "space.yaml").write_text(yaml.safe_dump(space))
    return folder


def words(config, run, trials=3):
    return ["tune", "--config", str(config / "gcn.yaml"), "--space", str(config / "space.yaml"), "--run", str(run),
            "--trials", str(trials)]  # fmt: skip


def never(*_, **__):
    pytest.fail("a trial looked at the test split")


@pytest.fixture(scope="module")
def tuned(config, tmp_path_factory):
    """Run a study twice: its second trial is stopped by a signal, its third is pruned in the first epoch."""
    run, fits = tmp_path_factory.mktemp("study") / "out", []
    fit = fitting.fit

    def stopped_once(options, callbacks):
        fits.append(options)
        if len(fits) == 2:
            raise Stopped(15)
        if len(fits) == 4:
            patch.setattr("optuna.trial.Trial.should_prune", lambda _: True)
        return fit(options, callbacks=callbacks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "fit", stopped_once)
        patch.setattr(BenchmarkModule, "test_step", never)
        for name in ("test_dataloader", "baselines"):
            patch.setattr(GraphBenchmark, name, never)
        codes = main(words(config, run)), main(words(config, run))
    return run, codes, fits


@pytest.mark.slow
def test_a_stopped_study_goes_on_with_the_trial_it_was_stopped_in(tuned):
    run, codes, fits = tuned
    assert codes == (143, 0)
    assert len(fits) == 4, "only the second trial was begun twice"
    assert fits[1] == fits[2], "with the same options"
    table = pd.read_csv(run / "trials.csv")
    assert table["trial"].tolist() == [0, 1, 2]
    assert table["state"].tolist() == ["finished", "finished", "pruned"]


def test_a_trial_is_scored_by_validation_and_never_tested(tuned):
    run, *_ = tuned
    table = pd.read_csv(run / "trials.csv")
    for number in (0, 1):
        results = json.loads((run / "trials" / str(number) / "results.json").read_text())
        assert table["val/MAE"][number] == results["val"]["val/MAE"]
        assert "test" not in results
    pruned = json.loads((run / "trials" / "2" / "results.json").read_text())
    assert pruned["epochs"] == 1, "ended after its first epoch"


def test_the_best_configuration_gives_the_best_score_again(tuned, tmp_path):
    run, *_ = tuned
    table = pd.read_csv(run / "trials.csv")
    best = table[table["state"] == "finished"].sort_values("val/MAE").iloc[0]
    content = yaml.safe_load((run / "best.yaml").read_text())
    assert content["model"]["optimizer"]["init_args"]["lr"] == pytest.approx(best[LR])
    assert content["model"]["architecture"]["init_args"]["hidden_dim"] == best[DIM]
    assert content["trainer"]["devices"] == "auto", "as in the configuration"
    assert main(["fit", "--config", str(run / "best.yaml"), "--run", str(tmp_path / "again")]) == 0
    again = json.loads((tmp_path / "again" / "results.json").read_text())
    assert again["val"]["val/MAE"] == best["val/MAE"]
    page = (run / "report.html").read_text()
    assert "<h2>Tuning" in page
    assert "2 finished, 1 pruned." in page


@pytest.mark.slow
def test_two_machines_finish_a_study_of_which_one_is_killed(config, tmp_path):
    """The processes share only the folder: names of machines differ, so neither sees the lock of the other."""
    run = tmp_path / "out"

    def machine(name, killed=False):
        def prepare():
            workers.this_machine, workers.BEAT, workers.STALE = (lambda: name), 0.2, 10.0
            fit = fitting.fit

            def die_in_second_epoch(options, callbacks):
                return fit(options, callbacks=[*callbacks, Dies()])

            if killed:
                fitting.fit = die_in_second_epoch

        return prepare

    first = start(tmp_path / "said", *words(config, run, 4), prepare=machine("a", killed=True))
    wait_until((run / "trials" / "0" / "config.yaml").is_file)
    second = start(tmp_path / "said", *words(config, run, 4), prepare=machine("b"))
    assert wait(*first).code == -signal.SIGKILL
    ended = wait(*second)
    assert ended.code == 0, ended.text
    assert "Trial 0 was left by its process: resuming it." in ended.text
    table = pd.read_csv(run / "trials.csv")
    assert table["trial"].tolist() == [0, 1, 2, 3]
    assert set(table["state"]) <= {"finished", "pruned"}
    results = json.loads((run / "trials" / "0" / "results.json").read_text())
    assert results["epochs"] == 2
    epochs = pd.read_csv(run / "trials" / "0" / "metrics.csv")["epoch"].dropna()
    assert sorted(set(epochs)) == [1, 2]
    assert epochs.is_monotonic_increasing, "the first epoch was not trained again"
    assert (run / "best.yaml").is_file()


class Dies(pl.Callback):
    """Kills its process in the second epoch."""

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("option", ["data.split_seed", "data.init_args.fold", "data.target", "data.challenge"])
def test_a_space_over_which_rows_are_scored_is_refused(option, config, tmp_path, capsys):
    """Its best trial would be that of the luckiest validation rows."""
    (tmp_path / "space.yaml").write_text(f"{option}: {{values: [0, 1]}}\n")
    asked = words(config, tmp_path / "run")
    asked[asked.index("--space") + 1] = str(tmp_path / "space.yaml")
    assert main(asked) == 1
    assert option in capsys.readouterr().err
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("trials/*"))


def test_a_study_whose_space_changed_is_refused_by_name(tuned, config, tmp_path, capsys):
    run, *_ = tuned
    (tmp_path / "space.yaml").write_text(f"{DIM}: {{values: [4, 16]}}\n{LR}: {{low: 1e-5, high: 0.01, log: true}}\n")
    changed = words(config, run)
    changed[changed.index("--space") + 1] = str(tmp_path / "space.yaml")
    assert main(changed) == 1
    assert (
        f"--space is not that of the study in {run}: {DIM} was {{'values': ['4', '8']}}, now" in capsys.readouterr().err
    )
    assert main([*words(config, run), "--trainer.max_epochs", "3"]) == 1
    assert "trainer.max_epochs was 2, now 3" in capsys.readouterr().err


BAD = {
    "unknown option": (
        "model.architecture.init_args.hidden_dm: {values: [4]}",
        [],
        "Did you mean --model.architecture",
    ),
    "wrong value": (f"{DIM}: {{values: [4, wide]}}", [], "--model.architecture.hidden_dim is 'wide'; expected int"),
    "bad range": (f"{LR}: {{low: 1, high: 0}}", [], f"{LR}: low is 1 and high 0; low must be below high"),
    "no trial": (f"{DIM}: {{values: [4]}}", ["--trials", "0"], "--trials must be an integer of at least 1, but got 0"),
    "near an own option": (
        f"{DIM}: {{values: [4]}}",
        ["--trails", "9"],
        "Unknown option --trails. Did you mean --trials?",
    ),
    "devices": (
        f"{DIM}: {{values: [4]}}",
        ["--trainer.devices=2"],
        "--trainer.devices is 2: a trial runs on one device",
    ),
    "resume": (
        f"{DIM}: {{values: [4]}}",
        ["--resume", "x"],
        "graphbench tune does not accept --resume: the same command",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_line_before_any_trial(name, config, tmp_path, capsys):
    space, more, message = BAD[name]
    (tmp_path / "space.yaml").write_text(space)
    given = words(config, tmp_path / "out")
    given[given.index("--space") + 1] = str(tmp_path / "space.yaml")
    if more[:1] == ["--trials"]:
        given = given[: given.index("--trials")]  # last of the words; an option is given once
    assert main([*given, *more]) == 1
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_launched_worker_that_fails_is_named_beside_an_earlier_best_configuration(tmp_path, monkeypatch, caplog):
    (tmp_path / "best.yaml").write_text("{}")
    monkeypatch.setattr(tune, "launch", lambda stages, *_, **__: [stages[0][1]])
    assert tune._launch(tmp_path, Cluster(kind="local"), 2, ["--trials", "3"]) == 1
    assert "worker-2 has failed" in caplog.text
    monkeypatch.setattr(tune, "launch", lambda *_, **__: [])
    assert tune._launch(tmp_path, Cluster(kind="local"), 2, ["--trials", "3"]) == 0


@pytest.mark.slow
def test_a_full_disk_ends_no_trial(config, tmp_path, monkeypatch, capsys):
    """Otherwise every trial would fail in turn, and a study does not repeat failed ones."""
    run, fits = tmp_path / "study", []

    def full_twice(options, callbacks):
        fits.append(options)
        if len(fits) == 3:
            raise Stopped(15)
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "last.ckpt")
        except OSError as error:
            if len(fits) == 2:
                raise
            raise GraphbenchError("last.ckpt cannot be written: No space left on device.") from error

    monkeypatch.setattr(fitting, "fit", full_twice)
    for said in ("last.ckpt cannot be written", "last.ckpt cannot be used"):
        assert main(words(config, run)) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"graphbench: {said}: No space left on device."
    assert main(words(config, run)) == 143
    assert fits[0] == fits[1] == fits[2]


def test_a_trial_of_a_sent_study_gets_no_options_but_those_of_the_space(config, tmp_path, monkeypatch, capsys):
    """A command line may name any code, so a journal of someone else must not add to one."""
    import optuna

    def begin_only(options, callbacks):
        raise Stopped(15)

    monkeypatch.setattr(fitting, "fit", begin_only)
    run, given = tmp_path / "sent", []
    assert main(words(config, run)) == 143
    backend = optuna.storages.journal.JournalFileBackend(str(run / "study.journal"))
    sent = optuna.load_study(study_name="graphbench", storage=optuna.storages.JournalStorage(backend))
    hostile = optuna.distributions.CategoricalDistribution(["os:system"])
    sent._storage.set_trial_param(sent.trials[0]._trial_id, "data.source", 0, hostile)
    assert sent.trials[0].params["data.source"] == "os:system"
    monkeypatch.setattr(fitting, "fit", lambda options, callbacks: given.extend(options) or 143)
    assert main(words(config, run)) == 143
    assert any(word.startswith(f"--{LR}=") for word in given), capsys.readouterr().err
    assert not [word for word in given if "source" in word or "os:system" in word]
