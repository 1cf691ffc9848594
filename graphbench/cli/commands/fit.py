"""`graphbench fit`: train, and go on training."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import BatchSizeFinder, LearningRateFinder, StochasticWeightAveraging, Timer
from pytorch_lightning.utilities.exceptions import SIGTERMException
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from graphbench.callbacks.changed_options import ChangedOptions
from graphbench.callbacks.checkpoints import BestCheckpoint
from graphbench.callbacks.non_finite import Diverged
from graphbench.cli.command_line import CommandLine
from graphbench.cli.complaints import of_logger, of_training, reason
from graphbench.cli.console import count_parameters, peak_memory_mb, scores_of
from graphbench.cli.lightning import GraphbenchCLI, write_config
from graphbench.cli.options import OWN, Request, own_parser, split
from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.cli.process import Stopped, exit_code, shared_exit_code
from graphbench.cli.ranks import FolderLost, is_in_place, join_again, lost_folder
from graphbench.cli.resume import altered_options, changed_options, find_start, without_repeats
from graphbench.cli.same_data import SameData
from graphbench.cli.trainer_checks import found_options, take_over_found
from graphbench.data.files.foreign import load_yaml
from graphbench.data.files.writing import write_text
from graphbench.data.lost_memory import explain_memory
from graphbench.errors import BadInput, CorruptData, GraphbenchError, check_choice
from graphbench.inference.training import RecordTraining
from graphbench.registry.expected import kind_of_data
from graphbench.runs import RunFolder, trust
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.differences import differing_options
from graphbench.runs.environment import describe_environment
from graphbench.runs.tables import show_number

log = logging.getLogger(__name__)


def fit(arguments: Sequence[str], callbacks: Sequence[pl.Callback] = ()) -> int:
    """Train from a configuration (`--run` names the folder), or continue a run (`--resume FOLDER`).

    Args:
        arguments: the command line after `fit`.
        callbacks: of a command that trains, beside those of the configuration; the run's folder does not name them.

    Returns:
        0; 1 where the best score is no number; 128 more than the signal that stopped it.

    Raises:
        BadInput: the folder is taken or in use, or there is nothing to continue.
        CorruptData: the checkpoint to continue from is damaged.
        Diverged: a loss or gradient was not finite.
    """
    parser = own_parser("fit", **OWN["fit"])
    request = split(parser, _resuming(parser, arguments), run_option="resume")
    start = find_start(request)
    changed = changed_options(request) if start is not None else []
    if request.run is not None and start is not None:
        cli = GraphbenchCLI(request.arguments, request.run, continue_at=start.step)
        _note(cli, "resumed", [f"{one} from step {start.step} on" for one in changed if one.decides_score])
    else:
        altered = [str(one) for one in altered_options(request)]  # before anything is seeded
        cli = GraphbenchCLI(request.arguments, request.run or _new_folder(request.own.run), fresh=True)
        _note(cli, "altered", altered)
        _introduce(cli)
    cli.trainer.callbacks += list(callbacks)  # type: ignore[attr-defined]
    if changed:
        cli.trainer.callbacks.insert(0, ChangedOptions(changed))  # type: ignore[attr-defined]
    with _alone(cli):
        if request.run is not None and start is not None:
            start.refuse_past(cli.trainer, request.run)
            log.info("%s", start.said(cli.trainer, request.run))
        return _train(cli, None if start is None else start.checkpoint, request)


def _resuming(parser: CommandParser, arguments: Sequence[str]) -> Sequence[str]:
    """The command line; with `--if-exists resume` it continues the folder of `--run` where that holds a run."""
    own, rest = parser.parse_known_args(list(arguments))
    check_choice("--if-exists", own.if_exists or "fail", ("fail", "resume"))
    if own.checkpoint and not own.resume:
        raise BadInput("--checkpoint says where --resume goes on; to start a new run from weights use model.init_from.")
    if own.if_exists == "resume" and not own.run:
        raise BadInput("--if-exists resume needs --run FOLDER.")
    config = RunFolder(Path(own.run)).config if own.run and own.if_exists == "resume" else None
    if config is None or not config.is_file():
        return arguments
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):  # a damaged one is told where it is read
        known = load_yaml(config.read_text(encoding="utf-8")) or {}
        rest = [*without_repeats(CommandLine.parse(rest).located().words, known), *found_options(known)]
    return ["--resume", str(own.run), *rest]


def _note(cli: GraphbenchCLI, what: str, told: Sequence[str]) -> None:
    """Write into the configuration what differs from the recipe, so that nothing is expected of its score."""
    if told:
        cli.config[f"expected.{what}"] = [*cli.config[f"expected.{what}"], *told]


def _rank() -> int:
    """Rank of this process before any process group exists, as Lightning reads it from the environment."""
    return int(getattr(rank_zero_only, "rank", 0) or 0)


def _new_folder(named: str | None) -> RunFolder | None:
    """The folder asked for; None when one is to be made up. What stopped before its first checkpoint is no run."""
    if named is None:
        return None
    run = RunFolder(folder_to_write("--run", named))
    if run.is_begun and _rank() == 0:
        raise BadInput(
            f"--run {named}: this folder already holds a run. Continue it with --resume {named}, or name another."
        )
    return run


@rank_zero_only
def _introduce(cli: GraphbenchCLI) -> None:
    """Say what is about to run."""
    parts = {"architecture": cli.model.architecture, "head": cli.model.task}
    counts = ", ".join(f"{name} {count_parameters(part):,}" for name, part in parts.items())
    name, total = type(cli.model.architecture).__name__, f"{count_parameters(cli.model):,}"
    log.info("%s on %s: %s trainable parameters (%s)", name, cli.model.spec.name, total, counts)
    assert cli.run_folder is not None
    log.info("Run folder: %s", "none, for fast_dev_run" if cli.passing else cli.run_folder.path)


@contextlib.contextmanager
def _alone(cli: GraphbenchCLI) -> Iterator[None]:
    """Hold the run's folder while it is written to, and throw it away where it was for a trial."""
    assert cli.run_folder is not None
    if _rank() != 0:
        yield
        return
    try:
        with cli.run_folder.held(new=cli.made_up or cli.passing) as place:
            cli.stop.place = place
            if cli.continue_at is None:
                if cli.run_folder.is_begun:  # between the first look and the lock
                    raise BadInput(f"--run {cli.run_folder.path}: another process has just finished a run in it.")
                cli.run_folder.clear()
            yield
    finally:
        if cli.passing:
            shutil.rmtree(cli.run_folder.path, ignore_errors=True)
        if cli.made_up:
            with contextlib.suppress(OSError):  # `runs/` holds others, or this one
                cli.run_folder.path.parent.rmdir()


class _WriteDown(pl.Callback):
    """Writes what runs into its folder, once data and model are known to fit.

    Args:
        cli: what runs.
        request: whether options were given over the configuration of a run that goes on.
    """

    def __init__(self, cli: GraphbenchCLI, request: Request) -> None:
        self._cli, self._changed, self._moved = cli, request.changed, request.moved

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A new run: its configuration and environment; every run: its options, for checkpoints and trackers."""
        run = self._cli.run_folder
        take_over_found(self._cli)
        _name_options(self._cli)
        if self._cli.continue_at is None and trainer.is_global_zero and run is not None:
            write_config(run.config, self._cli)
            trust.remember(run.config)
            write_text(run.environment, json.dumps(describe_environment(), indent=2) + "\n")
        elif trainer.is_global_zero and run is not None:
            run.note_environment(self._cli.continue_at or 0, describe_environment())

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A run that goes on with other options: its configuration, after a step with them."""
        run = self._cli.run_folder
        if self._changed and self._cli.continue_at is not None and trainer.is_global_zero and run is not None:
            for name, (before, now) in self._moved.items():  # where the data were found is no option of the run
                if self._cli.config[f"data.init_args.{name}"] == now:
                    self._cli.config[f"data.init_args.{name}"] = before
            write_config(run.config, self._cli)
            trust.remember(run.config)
        self._changed = False


def _name_options(cli: GraphbenchCLI) -> None:
    """Give module and data their options as hyper-parameters: plain values, in every checkpoint and tracker."""
    config = yaml.safe_load(cli.resolved_config())
    cli.model.save_hyperparameters(config["model"])
    cli.datamodule.save_hyperparameters({"data": config["data"], "seed_everything": config["seed_everything"]})


def _train(cli: GraphbenchCLI, checkpoint: Path | None, request: Request) -> int:
    """Fit and record; returns the exit code."""
    assert cli.run_folder is not None
    same = SameData(cli.run_folder, request.own.data_changed, fresh=cli.continue_at is None)
    facts = RecordTraining(cli.run_folder, fresh=cli.continue_at is None)
    cli.trainer.callbacks += [same, _WriteDown(cli, request), facts]  # type: ignore[attr-defined]
    if cli.continue_at is not None:  # what they found is in the configuration; searching again would undo the training
        finders = (BatchSizeFinder, LearningRateFinder)
        left = [callback for callback in cli.trainer.callbacks if not isinstance(callback, finders)]  # type: ignore[attr-defined]
        cli.trainer.callbacks = left  # type: ignore[attr-defined]
    try:
        join_again(cli.trainer)
        cli.trainer.fit(cli.model, datamodule=cli.datamodule, ckpt_path=checkpoint, weights_only=True)
        return _finish(cli)
    except Stopped as stop:
        return _stopped(cli, stop.signum)
    except FolderLost as error:
        if _rank() == 0:
            raise
        log.debug("%s", error)
        return shared_exit_code(1)
    except Diverged as error:
        if _rank() == 0 and not cli.passing:  # an outcome, which `graphbench reproduce` shows
            cli.run_folder.update_results({"diverged": str(error)})
        raise
    except SIGTERMException:  # what Lightning raises once all processes know
        return _stopped(cli, cli.signals.agreed)
    except Exception as error:
        if cli.signals.noted:  # another process left at once, and this one lost its connection
            log.debug("while leaving", exc_info=True)
            return _stopped(cli, cli.signals.noted)
        if cli.signals.waiting and not isinstance(error, GraphbenchError):  # before that config.yaml is not there yet
            _check_place(cli)  # a logger opened a file by its old name
        if not isinstance(error, GraphbenchError) and (said := explain_memory(error)):
            raise GraphbenchError(f"{said} {_how_to_go_on(cli.run_folder)}") from error
        if of_logger(error) and not isinstance(error, GraphbenchError):
            raise BadInput(f"--trainer.logger: {reason(error)}") from error
        if of_training(error):
            raise BadInput(reason(error)) from error
        if checkpoint is not None and "in loading state_dict" in str(error):
            raise BadInput(_another_model(cli, checkpoint)) from error
        raise


def _another_model(cli: GraphbenchCLI, checkpoint: Path) -> str:
    """What keeps a run from going on: its weights do not fit the model of the command line."""
    trained = load_checkpoint(checkpoint).get("hyper_parameters", {})
    found = differing_options(load_yaml(cli.resolved_config())["model"], trained)[:6]
    different = "; ".join(found) or "the code of the model has changed"
    return (
        f"The weights of {checkpoint} do not fit: {different}. A run goes on as the model that it began with; train "
        "another one in a folder of its own (--run)."
    )


def _stopped(cli: GraphbenchCLI, signum: int) -> int:
    """Say how to go on; returns the exit code of the signal."""
    run = cli.run_folder
    assert run is not None
    if _rank() != 0:
        return exit_code(signum)
    name = signal.Signals(signum).name
    if run.resumable is None:
        log.warning("Stopped by %s before the first checkpoint: give the same command again to start anew.", name)
    else:
        log.warning("Stopped by %s. %s", name, _how_to_go_on(run))
    if signum == cli.signals.requeue_signal:
        cli.signals.requeue()
    return exit_code(signum)


def _how_to_go_on(run: RunFolder) -> str:
    if run.resumable is None:
        return "There is no checkpoint yet: give the same command again to start anew."
    return f"Continue with: graphbench fit --resume {run.path}"


def _finish(cli: GraphbenchCLI) -> int:
    """Validate the best checkpoint and record its scores, so that `graphbench test` can be held against them.

    Returns:
        The exit code: 1 where the best score is no number.
    """
    trainer, model, run = cli.trainer, cli.model, cli.run_folder
    assert run is not None
    results: dict[str, Any] = {
        "benchmark": model.spec.name,
        "architecture": type(model.architecture).__name__,
        "metric": model.spec.metric,
        "higher_is_better": model.spec.higher_is_better,
        "unit": model.spec.target_units[0] if len(set(model.spec.target_units)) == 1 else "",
        "data": kind_of_data(model.spec),
        "parameters": count_parameters(model),
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        "ended_by_rate": model.ended_by_rate,
        "seed": cli.config.get("seed_everything"),
        "fit_seconds": round(_timer(trainer).time_elapsed(), 1),
        "peak_memory_mb": round(peak_memory_mb()),
    }
    _check_place(cli)
    _keep_averaged(trainer, run)
    if run.best.is_file():
        results["best_epoch"] = load_checkpoint(run.best)["epoch"] + 1
        results["epochs_from"] = 1
        trainer.loggers = []  # the best epoch's scores are in the logs already
        scores = trainer.validate(model, cli.datamodule, ckpt_path=str(run.best), verbose=False, weights_only=True)
        results["val"] = scores_of("val", scores[0])
    elif not cli.passing and any(isinstance(callback, BestCheckpoint) for callback in trainer.checkpoint_callbacks):
        results["val"] = scores_of("val", {name: float(value) for name, value in trainer.callback_metrics.items()})
    results["undefined"] = dict(model.scores.of("val").undefined)
    _check_place(cli)
    _record(run, results)
    _tell_missing_parts(cli)
    if model.monitor not in results.get("val", {}):
        return 0
    score = results["val"][model.monitor]
    if "best_epoch" not in results or not math.isfinite(score):
        reason = results["undefined"].get(model.monitor) or f"it is {score} at the end"
        log.error("No epoch is the best one: %s has no number in any of them: %s.", model.monitor, reason)
        return 1
    log.info("Best epoch %d: %s %s", results["best_epoch"], model.monitor, show_number(score))
    return 0


def _tell_missing_parts(cli: GraphbenchCLI) -> None:
    """Say what follows where a split has no row."""
    run, data = cli.run_folder, cli.datamodule
    assert run is not None
    if data.is_empty("val"):
        log.info("No epoch is the best one without a validation part: %s is what predict takes.", run.last)
    if data.is_empty("test"):
        log.info("No test part: graphbench test --run %s --input LABELLED.csv scores a file of others.", run.path)


def _check_place(cli: GraphbenchCLI) -> None:
    """Refuse to write scores where the run's folder is no longer.

    Raises:
        FolderLost: it was moved or removed.
    """
    place = cli.stop.place
    if place is not None and not is_in_place(place):
        raise FolderLost(lost_folder(place.path, place.current(), cli.trainer.global_step))


def _keep_averaged(trainer: pl.Trainer, run: RunFolder) -> None:
    """Keep the weights that stochastic weight averaging ends with, which no epoch's checkpoint holds."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if any(isinstance(callback, StochasticWeightAveraging) for callback in callbacks) and run.last.is_file():
        path = run.checkpoints / "averaged.ckpt"
        trainer.save_checkpoint(path, weights_only=True)
        log.info("Averaged weights: graphbench test --run %s --checkpoint %s", run.path, path)


def _timer(trainer: pl.Trainer) -> Timer:
    """The clock of the training, which counts all parts of a continued run."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return next(callback for callback in callbacks if isinstance(callback, Timer))


@rank_zero_only
def _record(run: RunFolder, results: dict[str, Any]) -> None:
    """Replace what is stored; test scores stay where the best checkpoint is still the one they were taken from."""
    try:
        stored = run.read_results()
    except CorruptData as error:  # what this fit has reached is worth more
        log.warning("%s It is written anew, without test scores.", str(error).partition(" Remove it")[0])
        stored = {}
    same = all(stored.get(key) == results.get(key) for key in ("best_epoch", "val"))
    kept = {key: stored[key] for key in ("test", "baselines", "expected", "data_changed") if same and key in stored}
    if same:
        results["undefined"] = dict(stored.get("undefined") or {}) | results["undefined"]
    run.write_results(kept | results)
