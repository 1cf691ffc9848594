"""Every option of a run, given with `fit --resume`, takes effect for the rest of the run or is refused."""

from __future__ import annotations

import contextlib
import shutil

import pytest
from jsonargparse import ArgumentError
from resumed_runs import Look, Looked

from graphbench.cli.commands.fit import fit
from graphbench.cli.lightning import GraphbenchCLI, resolve
from graphbench.cli.options import own_parser, parse_request
from graphbench.errors import BadInput, GraphbenchError
from graphbench.runs import trust
from graphbench.runs.differences import differing

# -- all options -------------------------------------------------------------------------------------------------------

#: Words that some option accepts, in the order in which they are tried.
WORDS = ["sum", "max", "step", "epoch", "loss", "halving", "gelu", "layer", "GCN", "uniform", "Performer", "value",
         "gpu", "cpu", "drop", "apart", "average", "val", "classification", "scaffold", "norm", "linear", "length",
         "id", "RMSE", "{}", "elsewhere"]  # fmt: skip
#: Not options: the time of a run so far, what PyG's layers read from the process before there is a trainer, and the
#: number of the model in the process.
NO_OPTIONS = (":_offset", ":_deterministic", ":_number")
#: Values of options that need certain words or numbers.
VALUES = {
    "trainer.precision": ["bf16-mixed"],
    "trainer.overfit_batches": ["2"],
    "trainer.min_epochs": ["1"],
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
    "model.matmul_precision": ["high"],
    "data.descriptors": ["rdkit2d"],
    "data.chirality": ["RDKit"],
    "data.id_column": ["length"],
    "data.on_error": ["skip"],
    "data.metric": ["RMSE"],
    "data.fractions": ["[0.6,0.2,0.2]"],
}
#: Options for which not every machine has another value, and why.
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
    "data.features": "files",
    "model.head.edge_input": "of tasks of edges",
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
    """Return the plain attributes of all parts of a run, by their place."""
    roots = {"trainer": trainer, "fit": trainer.fit_loop, "epoch": trainer.fit_loop.epoch_loop, "data": data,
             "precision": trainer.precision_plugin, "schedule": module.schedule}  # fmt: skip
    roots |= {f"module.{name}": part for name, part in module.named_modules()}
    roots |= {f"callback.{type(one).__name__}": one for one in trainer.callbacks}
    return {f"{name}:{key}": value for name, root in roots.items() for key, value in vars(root).items() if plain(value)}


def asked(run, option, value):
    return parse_request(own_parser("fit"), ["--resume", str(run), f"--{option}={value}"], run_option="resume")


def other_value(parser, run, option, value):
    """Return a value of an option that the parser accepts and that changes it; None if there is none."""
    stored = ["--config", str(run / "config.yaml")]
    usual = parser.dump(parser.parse_args(stored), skip_link_targets=True)
    for text in VALUES.get(option, candidates(value)):
        with contextlib.suppress(ArgumentError, BadInput, ValueError):
            if parser.dump(parser.parse_args([*stored, f"--{option}={text}"]), skip_link_targets=True) != usual:
                return text
    return None


@pytest.mark.slow
def test_every_option_is_in_force_or_refused(begin, tmp_path, monkeypatch):
    """All leaves of the run's configuration, except items of lists, which `+=` and files change."""
    begun = begin()
    monkeypatch.chdir(tmp_path)  # some options read a word as a folder
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
            with trust.admitting_all(), contextlib.suppress(Looked):
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
