"""Options in the tables of `docs/lightning.md` and `docs/how-to/` run and pass their checks; so do configurations."""

from __future__ import annotations

import functools
import json
import multiprocessing
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from quick import one_of_each
from rdkit import RDConfig

from graphbench.cli import main
from graphbench.registry.configurations import configurations
from graphbench.training.module import BenchmarkModule

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "lightning.md").read_text(encoding="utf-8")
#: Pages whose tables start with options of other programs, or of commands other than `fit`.
OTHERS = {"apptainer", "from-chemprop", "from-graphgym", "intervals", "ray", "slurm"}
HOW_TO = sorted(page for page in (ROOT / "docs" / "how-to").glob("*.md") if page.stem not in OTHERS)
PAGES = [GUIDE, *(page.read_text(encoding="utf-8") for page in HOW_TO)]
OPTIONS = re.findall(r"^\| `(--[^`]+)` \|", "\n".join(PAGES), re.MULTILINE)
MODEL = ["--model.architecture", "GCN", "--model.architecture.hidden_dim", "8", "--model.architecture.num_layers", "1"]


class Run:
    """A finished fit: its folder, its output and its files, and what was seen in its steps."""

    def __init__(self, folder: Path, said: str, seen: list[dict[str, Any]]) -> None:
        self.folder, self.said, self.seen = folder, said, seen

    def seen_in(self, step, what):
        return {one[what] for one in self.seen if one["step"] == step}

    @property
    def config(self):
        return yaml.safe_load((self.folder / "config.yaml").read_text())

    @property
    def table(self):
        return pd.read_csv(self.folder / "metrics.csv")

    @property
    def results(self):
        return json.loads((self.folder / "results.json").read_text())

    def checkpoint(self, name):
        return torch.load(self.folder / "checkpoints" / f"{name}.ckpt", weights_only=True)

    def files(self, pattern):
        return sorted(path.name for path in self.folder.rglob(pattern))


def ended_early(run):
    return run.results["epochs"] == 2 and "did not improve" in run.said


def averaged(run):
    best = run.checkpoint("best")
    plain, mean = best["current_model_state"], best["state_dict"]
    return any(not torch.equal(plain[name], mean[name]) for name in plain if name.startswith("architecture"))


def found_rate(run):
    said = float(re.search(r"Learning rate found: (\S+)", run.said).group(1))
    optimizer = run.config["model"]["optimizer"]
    rates = [group["lr"] for group in run.checkpoint("last")["optimizer_states"][0]["param_groups"]]
    assert 1e-8 < said < 1
    assert said != 1e-3
    assert optimizer == {"class_path": "torch.optim.AdamW", "init_args": {"lr": pytest.approx(said, rel=0.01)}}
    return rates == [optimizer["init_args"]["lr"]] * len(rates)


def clipped(run):
    """Adam's first moments are a mean of clipped gradients, so their norm is at most the limit of 1e-3."""
    moments = [state["exp_avg"] for state in run.checkpoint("last")["optimizer_states"][0]["state"].values()]
    return 1e-6 < torch.cat([moment.flatten() for moment in moments]).norm() <= 1.001e-3


def in_loggers(run):
    table = pd.read_csv(run.folder / "diagnostics" / "rank_progression.csv")
    return len(table) and run.files("events.out.tfevents*")


#: Part of a row's option -> further options, with which the run shows its effect.
FURTHER = {
    "EarlyStopping": "--trainer.callbacks.min_delta 1000",
    "LearningRateFinder": "--trainer.max_epochs 6",  # 24 steps
    "gradient_clip_val": "--trainer.gradient_clip_val 1e-3",
    "max_time": "--trainer.max_time 00:00:00:00",
    "limit_val_batches": "--data.batch_size 2 --trainer.limit_train_batches 4",  # two batches of validation
}
#: Part of a row's option -> what must hold after the run.
CHECKS = {
    "pin_memory": lambda run: run.seen_in("training_step", "pin_memory") == {False},
    "copy_stream": lambda run: "copy_stream" in run.said,  # without CUDA a message says that it has no effect
    "num_workers": lambda run: min(run.seen_in("training_step", "processes")) == 2,
    "EarlyStopping": ended_early,
    "EMAWeightAveraging": averaged,
    "StochasticWeightAveraging": lambda run: run.files("averaged.ckpt") and "averaged.ckpt" in run.said,
    "accumulate_grad_batches": lambda run: run.results["steps"] == 3 * 2,
    "gradient_clip_val": clipped,
    "LearningRateFinder": found_rate,
    "BatchSizeFinder": lambda run: run.config["data"]["init_args"]["batch_size"] == 2,
    "max_time": lambda run: run.results["epochs"] < 3,
    "fast_dev_run": lambda run: not run.folder.exists(),
    "overfit_batches": lambda run: run.results["steps"] == 3 * 2,
    "limit_train_batches": lambda run: run.results["steps"] == 3 * 2,
    "val_check_interval": lambda run: run.table["val/loss"].notna().sum() == run.results["steps"] // 2,
    "limit_val_batches": lambda run: run.seen_in("validation_step", "batch") == {0},
    "profiler": lambda run: "run_training_epoch" in run.said,
    "detect_anomaly": lambda run: run.seen_in("training_step", "anomaly") == {True},
    "logger CSVLogger": lambda run: list(Path("mine").rglob("metrics.csv")) and run.files("metrics.csv"),
    "logger TensorBoardLogger": lambda run: list(Path("mine").rglob("events*")) and not run.files("events*"),
    "logger false": lambda run: not run.files("metrics.csv") and run.files("best.ckpt"),
    "val/loss --trainer.callbacks.filename best": lambda run: "val/loss" in str(run.checkpoint("best")["callbacks"]),
    "ModelCheckpoint": lambda run: run.files("epoch=*.ckpt") == ["epoch=3-step=12.ckpt"] and run.files("best.ckpt"),
    "RankProgression": in_loggers,
    "optimizer.lr": lambda run: run.checkpoint("last")["optimizer_states"][0]["param_groups"][0]["lr"] == 3e-4,
    "gaussian": lambda run: len(run.checkpoint("best")["state_dict"]["task.head.mlp.layers.1.bias"]) == 2,
    "quantiles": lambda run: len(run.checkpoint("best")["state_dict"]["task.head.mlp.layers.1.bias"]) == 3,
    "length=Huber": lambda run: (run.table["train/loss"].dropna() < run.table["train/scaled_MAE"].dropna()).all(),
    "model.loss": lambda run: (run.table["train/loss"].dropna() < run.table["train/MAE"].dropna()).all(),
    "select_by": lambda run: run.results["metric"] == "R2" and run.results["higher_is_better"],
    "scaled_MAE": lambda run: run.results["metric"] == "scaled_MAE" and "val/MAE/carbons" in run.results["val"],
    "R2 --model.metrics": lambda run: {"val/R2", "val/Spearman"} <= run.results["val"].keys(),
    "ExplainedVariance": lambda run: "val/ExplainedVariance" in run.results["val"],
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("molecules")
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    smiles = [word for word in (line.split()[0] for line in lines) if 6 <= len(word) <= 20 and word.isalnum()][:40]
    (folder / "mine.csv").write_text(
        "smiles,length,carbons\n" + "".join(f"{s},{len(s)},{s.count('C')}\n" for s in smiles)
    )
    places = ["--data.root", str(folder / "data"), "--data.store", str(folder / "store")]
    return ["--data", "Molecules", "--data.file", str(folder / "mine.csv"), "--data.target", "length", *places]


@pytest.fixture
def fit(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seen = []

    def watch(name):
        step = getattr(BenchmarkModule, name)

        @functools.wraps(step)
        def watched(module, batch, batch_idx):
            seen.append({"step": name, "batch": batch_idx, "anomaly": torch.is_anomaly_enabled(),
                         "pin_memory": module.trainer.datamodule.pin_memory,
                         "processes": len(multiprocessing.active_children())})  # fmt: skip
            return step(module, batch, batch_idx)

        monkeypatch.setattr(BenchmarkModule, name, watched)

    watch("training_step")
    watch("validation_step")

    def run(*options):
        batches = ["--data.batch_size", "8", "--trainer.accelerator", "cpu", "--trainer.max_epochs", "3"]
        assert main(["fit", *data, *MODEL, *batches, "--run", "runs/one", *options]) == 0, capsys.readouterr().err
        captured = capsys.readouterr()
        return Run(Path("runs/one"), captured.err + captured.out, seen)

    return run


def test_every_row_has_a_check():
    assert len(OPTIONS) >= 25
    assert [option for option in OPTIONS if not any(part in option for part in CHECKS)] == []


@pytest.mark.parametrize("option", one_of_each(OPTIONS, number=5))
def test_the_option_does_what_its_row_says(option, fit):
    extra = [word for part, more in FURTHER.items() if part in option for word in more.split()]
    model = [word.replace("GCN", "GPS") for word in MODEL] if "RankProgression" in option else []  # it has attention
    several = "scaled_MAE" in option or "logS" in option
    option = option.replace("logS", "length").replace("pKa", "carbons")  # the columns of this file
    extra += ["--data.target", "[length, carbons]"] if several else []
    run = fit(*model, *shlex.split(option), *extra)
    assert next(check for part, check in CHECKS.items() if part in option)(run)


def test_configurations_of_callbacks_are_parsed_and_named():
    names = {"early_stopping", "ema", "swa", "learning_rate_finder", "batch_size_finder", "checkpoints"}
    assert {f"callbacks/{name}" for name in names} | {"trainer/profiler"} <= configurations().keys()


def test_configurations_run_together(fit):
    run = fit("--config", "callbacks/ema", "--config", "trainer/profiler", "--trainer.callbacks+=ModelCheckpoint")
    assert averaged(run)
    assert "run_training_epoch" in Path("profile/fit-durations.txt").read_text()


@pytest.mark.slow
def test_a_run_with_averaging_goes_on(fit):
    run = fit("--config", "callbacks/swa")
    assert main(["fit", "--resume", "runs/one", "--trainer.max_epochs", "5"]) == 0
    assert run.results["epochs"] == 5 + 1, "the last one gathers statistics for batch norms of averaged weights"
    assert run.table["epoch"].dropna().is_monotonic_increasing, "no epoch is trained twice"


@pytest.mark.slow
def test_a_found_rate_is_not_looked_for_again(fit, capsys):
    search = ["--trainer.callbacks+=LearningRateFinder", "--trainer.callbacks.num_training_steps", "13"]
    rates = ["--model.optimizer.lr", "1e-3", "--model.lr_scales", "{task.head: 2.0}"]
    run = fit(*search, *rates, "--trainer.max_epochs", "4")
    found = run.config["model"]["optimizer"]["init_args"]["lr"]
    rates = [group["lr"] for group in run.checkpoint("last")["optimizer_states"][0]["param_groups"]]
    assert sorted(rates) == pytest.approx([found, 2 * found])
    assert main(["fit", "--resume", "runs/one", "--trainer.max_epochs", "5"]) == 0
    assert "found" not in capsys.readouterr().err
    assert run.results["steps"] == 5 * 4


def test_epochs_count_from_one_everywhere(fit):
    run = fit()
    assert sorted(run.table["epoch"].dropna().unique()) == [1, 2, 3]
    assert "epoch 1/3" in run.said
    assert f"Best epoch {run.results['best_epoch']}" in run.said
    assert run.checkpoint("best")["epoch"] + 1 == run.results["best_epoch"]


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it generates data
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/lightning.md", "exec"), {"__name__": "guide"})
