"""Options that are given with `fit --resume`: in force for the rest of the run, or refused before it is trained."""

from __future__ import annotations

import contextlib
import math
import shutil

import pytest
import pytorch_lightning as pl
import torch
import yaml
from command_line import SMALL_MODEL
from jsonargparse import ArgumentError

from graphbench.cli import main
from graphbench.cli.commands.fit import fit
from graphbench.cli.lightning import GraphbenchCLI, resolve
from graphbench.cli.options import own_parser, split
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, GraphbenchError
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.differences import differing

#: Of 120 molecules 96 are trained on.
STEPS = 6
OPTIONS = [
    *SMALL_MODEL,
    "--model.optimizer", "AdamW",
    "--trainer.callbacks+=EarlyStopping",
    "--trainer.callbacks.monitor", "val/MAE",
    "--trainer.callbacks.patience", "50",
    "--trainer.callbacks+=AttentionCapacity",
    "--trainer.callbacks.num_graphs", "4",
    "--trainer.max_epochs", "1",
]  # fmt: skip


class Looked(Exception):
    """The run has been looked at."""


class Look(pl.Callback):
    """Notes what an optimizer step is taken with, of every step, and leaves after some.

    Args:
        steps: how many; None for all.
        at_end: called before it leaves.
    """

    def __init__(self, steps=None, at_end=None):
        self.steps, self.at_end, self.groups, self.trainer = steps, at_end, [], None

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.trainer = trainer
        self.groups.append([{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups])

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.steps is not None and len(self.groups) >= self.steps:
            if self.at_end is not None:
                self.at_end(trainer)
            raise Looked


@pytest.fixture(scope="module")
def begin(data_options, tmp_path_factory):
    """Makes the folder of a run of one epoch with options of its own, each combination once."""
    made = {}

    def begun(*options):
        if options not in made:
            folder = tmp_path_factory.mktemp("begun") / "run"
            assert main(["fit", *data_options, *OPTIONS, *options, "--run", str(folder)]) == 0
            made[options] = folder
        return made[options]

    return begun


def go_on(begun, tmp_path, *options, steps=None, at_end=None):
    """Continue a copy of a run; returns it and what was seen."""
    run = shutil.copytree(begun, tmp_path / "run", dirs_exist_ok=True)
    look = Look(steps, at_end)
    with contextlib.suppress(Looked):
        assert fit(["--resume", str(run), "--trainer.max_epochs", "4", *options], callbacks=[look]) == 0
    return run, look


def rates(look):
    return [groups[0]["lr"] for groups in look.groups]


def test_another_rate_and_decay_are_those_of_the_steps_to_come(begin, tmp_path):
    run, look = go_on(begin(), tmp_path, "--model.optimizer.lr", "1e-6", "--model.optimizer.weight_decay", "0.5",
                      "--model.optimizer.betas", "[0.8, 0.9]", "--trainer.max_epochs", "2")  # fmt: skip
    assert len(look.groups) == STEPS
    for (group,) in look.groups:
        assert (group["lr"], group["weight_decay"], tuple(group["betas"])) == (1e-6, 0.5, (0.8, 0.9))
    written = load_yaml((run / "config.yaml").read_text())["model"]["optimizer"]["init_args"]
    assert (written["lr"], written["weight_decay"]) == (1e-6, 0.5)
    stored = load_checkpoint(run / "checkpoints" / "last.ckpt")["optimizer_states"][0]["param_groups"][0]
    assert (stored["lr"], stored["weight_decay"]) == (1e-6, 0.5)


def test_a_step_with_another_rate_is_one_of_adam_with_the_state_of_before(begin, tmp_path):
    """The first step after the checkpoint, by the formula of AdamW from the moments in it and the gradients of it."""
    before = load_checkpoint(begin() / "checkpoints" / "last.ckpt")
    seen = {}

    class Gradients(pl.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            seen["g"] = [p.grad.double().clone() for p in optimizer.param_groups[0]["params"]]
            seen["p"] = [p.detach().double().clone() for p in optimizer.param_groups[0]["params"]]

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            seen["after"] = [p.detach().double().clone() for p in trainer.optimizers[0].param_groups[0]["params"]]
            raise Looked

    run = shutil.copytree(begin(), tmp_path / "run")
    with contextlib.suppress(Looked):
        fit(["--resume", str(run), "--trainer.max_epochs", "2", "--model.optimizer.lr", "0.01",
             "--model.optimizer.weight_decay", "0.25"], callbacks=[Gradients()])  # fmt: skip
    state = before["optimizer_states"][0]["state"]
    for number, (g, p, after) in enumerate(zip(seen["g"], seen["p"], seen["after"], strict=True)):
        t = float(state[number]["step"]) + 1
        m = 0.9 * state[number]["exp_avg"].double() + 0.1 * g
        v = 0.999 * state[number]["exp_avg_sq"].double() + 0.001 * g * g
        step = 0.01 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        torch.testing.assert_close(after, p * (1 - 0.01 * 0.25) - step, rtol=1e-4, atol=2e-6)


COSINE = ("--model.schedule.name", "cosine")
PLATEAU = ("--model.schedule.name", "plateau", "--model.schedule.watch", "loss")


def cosine(t, total):
    return (1 + math.cos(math.pi * t / total)) / 2


@pytest.mark.parametrize(
    ("first", "options", "rate"),
    [
        ((), COSINE, lambda t: 1e-3 * cosine(t, 24)),
        ((), ("--model.schedule.name", "linear", "--model.optimizer.lr", "0.01"), lambda t: 0.01 * (1 - t / 24)),
        (COSINE, ("--model.optimizer.lr", "0.01"), lambda t: 0.01 * cosine(t, 24)),
        (COSINE, (), lambda t: 1e-3 * cosine(t, 24)),
        (COSINE, ("--data.batch_size", "32"), lambda t: 1e-3 * cosine(t, 12)),
        (COSINE, ("--model.schedule.name", "constant"), lambda t: 1e-3),
        (
            COSINE,
            ("--model.schedule.name", "exponential", "--model.schedule.interval", "epoch"),
            lambda t: 1e-3 * 0.5 ** (t // STEPS),
        ),
        (COSINE, ("--model.schedule.warmup", "12"), lambda t: 1e-3 * ((t + 1) / 12 if t < 12 else cosine(t - 12, 12))),
        (
            ("--model.schedule.name", "step", "--model.schedule.interval", "epoch"),
            ("--model.schedule.gamma", "0.1"),
            lambda t: 1e-3 * 0.1 ** (t // STEPS),
        ),
        (
            (),
            ("--model.schedule.name", "step", "--model.schedule.interval", "epoch"),
            lambda t: 1e-3 * 0.5 ** (t // STEPS),
        ),
        (COSINE, PLATEAU, lambda t: 1e-3),
        (PLATEAU, COSINE, lambda t: 1e-3 * cosine(t, 24)),
        (PLATEAU, ("--model.optimizer.lr", "0.002"), lambda t: 0.002),
        (PLATEAU, ("--model.schedule.watch", "metric"), lambda t: 1e-3),
        (
            COSINE,
            ("--model.lr_scales", "{head: 3}"),
            None,
        ),
    ],
)  # fmt: skip
def test_rates_follow_the_schedule_as_it_is_now(begin, tmp_path, first, options, rate):
    """Closed forms, t counted from the beginning of the run, at every step of two epochs."""
    if rate is None:
        with pytest.raises(BadInput, match=r"model\.lr_scales"):
            go_on(begin(*first), tmp_path, *options)
        return
    per_epoch = STEPS // 2 if "32" in options else STEPS
    _, look = go_on(begin(*first), tmp_path, *options, steps=2 * per_epoch)
    assert rates(look) == pytest.approx([rate(STEPS + t) for t in range(2 * per_epoch)], rel=1e-9)


def test_a_plateau_goes_on_counting_with_its_new_options(begin, tmp_path):
    def looked(trainer):
        scheduler = trainer.lr_scheduler_configs[0].scheduler
        assert (scheduler.factor, scheduler.patience, scheduler.min_lrs) == (0.25, 3, [1e-5])
        assert scheduler.last_epoch == 1
        assert math.isfinite(scheduler.best)

    go_on(begin(*PLATEAU), tmp_path, "--model.schedule.factor", "0.25", "--model.schedule.patience", "3",
          "--model.schedule.min_lr", "1e-5", steps=1, at_end=looked)  # fmt: skip


def test_rates_of_the_same_parts_change_and_of_others_are_refused(begin, tmp_path):
    begun = begin("--model.learning_rates", "head=1e-4")
    _, look = go_on(begun, tmp_path, "--model.learning_rates", "head=1e-2", steps=1)
    assert sorted(group["lr"] for group in look.groups[0]) == [1e-3, 1e-2]
    with pytest.raises(BadInput, match="learning_rates"):
        go_on(begun, tmp_path, "--model.learning_rates", "architecture=1e-2")


def test_another_patience_stops_in_time(begin, tmp_path):
    config = load_yaml((begin() / "config.yaml").read_text())
    for callback in config["trainer"]["callbacks"]:
        if callback["class_path"].endswith("EarlyStopping"):
            callback["init_args"] |= {"patience": 1, "min_delta": 1e6}
    (tmp_path / "es.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": config["trainer"]["callbacks"]}}))
    run, _ = go_on(begin(), tmp_path, "--config", str(tmp_path / "es.yaml"), "--trainer.max_epochs", "6")
    assert load_checkpoint(run / "checkpoints" / "last.ckpt")["epoch"] == 1  # the second epoch is no better by 1e6


@pytest.mark.parametrize(
    "options",
    [
        ["--model.optimizer", "SGD", "--model.optimizer.momentum", "0.9"],
        ["--model.optimizer.amsgrad", "true"],
        ["--model.optimizer.fused", "false"],
        ["--model.freeze", "architecture.layers.0"],
        ["--model.freeze", "architecture", "--model.freeze_epochs", "3"],
        ["--model.learning_rates", "head=1e-5"],
        ["--model.architecture.num_heads", "2"],
        ["--model.head.pooling", "add"],
        ["--model.loss", "Huber"],
        ["--model.select_by", "R2", "--model.metrics", "[R2]"],
        ["--model.init_from", "elsewhere"],
        ["--seed_everything", "7"],
        ["--trainer.fast_dev_run", "true"],
        ["--trainer.default_root_dir", "elsewhere"],
        ["--trainer.callbacks+=LearningRateFinder"],
        ["--data.metric", "RMSE"],
    ],
)
def test_what_cannot_change_is_refused_in_a_line_and_nothing_is_trained(begin, tmp_path, capsys, options):
    run = shutil.copytree(begin(), tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.suffix in (".yaml", ".json", ".csv", ".ckpt")}
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "2", *options]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    name = options[0].removeprefix("--").partition("+=")
    assert f"--resume: {name[0]}" in said
    assert "instead of" in said
    assert {path: path.read_bytes() for path in before} == before


# -- all options -------------------------------------------------------------------------------------------------------

#: Words that some option or other takes, in the order in which they are tried.
WORDS = ["sum", "max", "step", "epoch", "loss", "halving", "gelu", "layer", "GCN", "uniform", "Performer", "value",
         "gpu", "cpu", "drop", "apart", "average", "val", "classification", "scaffold", "norm", "linear", "length",
         "id", "RMSE", "{}", "elsewhere"]  # fmt: skip
#: The time of a run so far, and what PyG's layers read from the process that made them before its trainer.
NO_OPTIONS = (":_offset", ":_deterministic")
#: Values of options that take words or numbers of their own.
VALUES = {
    "trainer.precision": ["bf16-mixed"],
    "trainer.overfit_batches": ["2"],
    "trainer.max_steps": ["20"],
    "trainer.max_time": ["00:01:00:00"],
    "trainer.val_check_interval": ["3"],
    "trainer.gradient_clip_algorithm": ["value"],
    "model.architecture.categorical": ["normal"],
    "model.schedule.milestones": ["[1,2]"],
    "model.metrics": ["[R2]"],
    "model.learning_rates": ["head=0.1"],
    "model.freeze": ["architecture"],
    "model.loss": ["Huber"],
    "data.id_column": ["length"],
    "data.on_error": ["skip"],
    "data.metric": ["RMSE"],
    "data.fractions": ["[0.6,0.2,0.2]"],
}
#: Options for which no other value can be made on any machine, and why.
LEFT = {
    "trainer.accelerator": "other devices",
    "trainer.strategy": "several processes",
    "trainer.devices": "several processes",
    "trainer.num_nodes": "several processes",
    "trainer.plugins": "objects",
    "trainer.logger": "see test_trackers",
    "trainer.profiler": "objects",
    "trainer.model_registry": "a service",
    "trainer.callbacks": "see the tests above",
    "model.architecture.positional_encoders": "objects",
    "data.classes": "of classifications",
    "model.freeze_epochs": "goes with model.freeze",
    "trainer.barebones": "Lightning refuses it beside the loggers of a run",
    "trainer.sync_batchnorm": "several processes",
}


def leaves(content, above=""):
    for key, value in content.items():
        name = above if key == "init_args" else f"{above}.{key}".lstrip(".")
        if isinstance(value, dict) and value:
            yield from leaves(value, name)
        elif key != "class_path":
            yield name, value


def candidates(value):
    if isinstance(value, bool):
        return [str(not value).lower()]
    if isinstance(value, int):
        return [str(value + 1), str(2 * value), "0", "3"]
    if isinstance(value, float):
        return ["0.5", "0.3", "1.0"] if value in (0.0, 1.0) else [str(value / 2), "0.3"]
    if isinstance(value, list):
        return [str([item / 2 + 0.01 for item in value])] if all(isinstance(x, float) for x in value) else ["[1, 2]"]
    return (
        [*WORDS, "true", "3", "0.5", "[1]", "{architecture: 2.0}"]
        if value is None
        else [w for w in WORDS if w != value]
    )


def plain(value):
    return isinstance(value, (bool, int, float, str, type(None))) or (
        isinstance(value, (list, tuple)) and all(map(plain, value))
    )


def state_of(trainer, module, data):
    """Plain attributes of all that runs, by where they are."""
    roots = {"trainer": trainer, "fit": trainer.fit_loop, "epoch": trainer.fit_loop.epoch_loop, "data": data,
             "precision": trainer.precision_plugin, "schedule": module.schedule}  # fmt: skip
    roots |= {f"module.{name}": part for name, part in module.named_modules()}
    roots |= {f"callback.{type(one).__name__}": one for one in trainer.callbacks}
    return {f"{name}:{key}": value for name, root in roots.items() for key, value in vars(root).items() if plain(value)}


def asked(run, option, value):
    return split(own_parser("fit"), ["--resume", str(run), f"--{option}={value}"], run_option="resume")


def other_value(parser, run, option, value):
    """A value that the parser takes for an option and that means another one; None where none is at hand."""
    stored = ["--config", str(run / "config.yaml")]
    usual = parser.dump(parser.parse_args(stored), skip_link_targets=True)
    for text in VALUES.get(option, candidates(value)):
        with contextlib.suppress(ArgumentError, BadInput, ValueError):
            if parser.dump(parser.parse_args([*stored, f"--{option}={text}"]), skip_link_targets=True) != usual:
                return text
    return None


@pytest.mark.slow
def test_every_option_is_in_force_or_refused(begin, tmp_path, monkeypatch):
    """All leaves of the run's configuration, but items of lists, which `+=` and files change (see the tests above)."""
    begun = begin()
    monkeypatch.chdir(tmp_path)  # some options take a word for a folder
    config = resolve(["--config", str(begun / "config.yaml")])
    usual = GraphbenchCLI(["--config", str(begun / "config.yaml")], None)
    before = state_of(usual.trainer, usual.model, usual.datamodule)
    outcome, problems = {}, []
    for option, value in leaves({key: part for key, part in config.items() if key != "expected"}):
        text = None if option in LEFT else other_value(usual.parser, begun, option, value)
        if text is None:
            outcome[option] = "left"
            continue
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(begun, run)
        seen = {}

        def look(trainer, seen=seen):
            seen |= state_of(trainer, trainer.lightning_module, trainer.datamodule)

        words = [f"--{option}={text}", *([] if option == "trainer.max_epochs" else ["--trainer.max_epochs=4"])]
        try:
            with contextlib.suppress(Looked):
                fit(["--resume", str(run), *words], callbacks=[Look(1, look)])
        except GraphbenchError as error:
            outcome[option] = f"refused: {error}"
            continue
        except Exception as error:  # a traceback, which the command line would show
            problems.append(f"{option}={text}: {type(error).__name__}: {str(error)[:200]}")
            continue
        finally:
            print(f"{option}={text}", flush=True)
        if not seen:
            problems.append(f"{option}={text}: nothing was seen")
            continue
        fresh = GraphbenchCLI(asked(begun, option, text).arguments, None)
        after = state_of(fresh.trainer, fresh.model, fresh.datamodule)
        moved = [key for key in after if after[key] != before.get(key) and not key.endswith(NO_OPTIONS)]
        lost = [key for key in moved if seen.get(key, after[key]) != after[key]]
        if lost:
            problems.append(f"{option}={text}: {lost[0]} is {seen[lost[0]]}, not {after[lost[0]]}")
        if differing(resolve(asked(begun, option, text).stored), resolve(["--config", str(run / "config.yaml")])) == []:
            problems.append(f"{option}={text}: config.yaml does not say so")
        outcome[option] = f"in force: {text}"
    for option, told in outcome.items():
        print(f"{option}: {told[:150]}")
    assert not problems
    assert {option for option, told in outcome.items() if told == "left"} <= LEFT.keys()
    assert sum(told.startswith("in force") for told in outcome.values()) > 40


def test_a_plateau_counts_the_epoch_at_whose_end_it_was_stopped(begin, data_options, tmp_path):
    """A rate that falls after every epoch that is no better falls alike in a run that was continued."""
    options = [*OPTIONS, *PLATEAU, "--model.schedule.patience", "0", "--model.schedule.factor", "0.1"]
    options += ["--model.optimizer.lr", "1e-7"]
    whole = tmp_path / "whole"
    assert main(["fit", *data_options, *options, "--trainer.max_epochs", "3", "--run", str(whole)]) == 0
    parts = shutil.copytree(begin(*PLATEAU, *options[-6:]), tmp_path / "parts")
    for epochs in ("2", "3"):
        assert main(["fit", "--resume", str(parts), "--trainer.max_epochs", epochs]) == 0
    states = [load_checkpoint(run / "checkpoints" / "last.ckpt") for run in (whole, parts)]
    assert states[0]["lr_schedulers"] == states[1]["lr_schedulers"]
    assert states[0]["lr_schedulers"][0]["last_epoch"] == 2  # the last epoch is told to the next one


def test_a_rate_below_the_limit_ends_the_run_also_where_it_was_killed_before(begin, data_options, tmp_path):
    """At 1e-7 no epoch is better by torch's threshold: the rate falls after epoch 2."""
    options = [*OPTIONS, *PLATEAU, "--model.schedule.patience", "0", "--model.schedule.factor", "0.1"]
    options += ["--model.optimizer.lr", "1e-7", "--model.schedule.stop_below", "5e-8"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["fit", *data_options, *options, "--trainer.max_epochs", "9", "--run", str(whole)]) == 0
    ended = RunFolder(whole).read_results()
    assert (ended["ended_by_rate"], ended["epochs"]) == (True, 2)
    assert main(["fit", *data_options, *options, "--trainer.max_epochs", "2", "--run", str(parts)]) == 0
    assert main(["fit", "--resume", str(parts), "--trainer.max_epochs", "9"]) == 0  # the last drop is not stored
    assert {name: RunFolder(parts).read_results()[name] for name in ("ended_by_rate", "epochs")} == {
        "ended_by_rate": True,
        "epochs": 2,
    }
