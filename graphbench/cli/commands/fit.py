"""`graphbench fit`: train, and continue training."""

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

from graphbench import __version__
from graphbench.callbacks.changed_options import ChangedOptions
from graphbench.callbacks.checkpoints import BestCheckpoint
from graphbench.callbacks.non_finite import Diverged
from graphbench.cli.command_line import CommandLine, as_word
from graphbench.cli.complaints import explain_lost_process, explain_training
from graphbench.cli.console import count_parameters, highest_memory_mb, scores_of
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request, own_parser, parse_request
from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.cli.process import Stopped, exit_code, shared_exit_code
from graphbench.cli.ranks import FolderLost, is_in_place, join_again, lost_folder
from graphbench.cli.resume import altered_options, changed_options, find_start, without_repeats
from graphbench.cli.same_data import SameData
from graphbench.cli.trained import describe_model, write_page
from graphbench.cli.trainer_checks import store_findings, stored_findings
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
from graphbench.runs.slurm import queue_again, queue_again_if_preempted
from graphbench.runs.tables import show_number

log = logging.getLogger(__name__)
_UNFIT = "in loading state_dict"  # torch's message about weights


def fit(arguments: Sequence[str], callbacks: Sequence[pl.Callback] = ()) -> int:
    """Train from a configuration (`--run` names the folder), or continue a run (`--resume FOLDER`).

    Args:
        arguments: the command line after `fit`.
        callbacks: additional ones from a command that trains; the run's configuration does not name them.

    Returns:
        0; 1 if the best score is not a number; 128 plus the signal that stopped it.

    Raises:
        BadInput: the folder is taken or in use, or there is nothing to continue.
        CorruptData: the checkpoint to continue from is damaged.
        Diverged: a loss or gradient was not finite.
    """
    parser = own_parser("fit")
    request = parse_request(parser, _resume_if_begun(parser, arguments), run_option="resume")
    start = find_start(request)
    changed = changed_options(request) if start is not None else []
    if request.run is not None and start is not None:
        cli = GraphbenchCLI(request.arguments, request.run, continue_at=start.step)
        _note(cli, "resumed", [f"{one} from step {start.step} on" for one in changed if one.decides_score])
    else:
        altered = [str(one) for one in altered_options(request)]  # before seeding
        cli = GraphbenchCLI(request.arguments, request.run or _new_folder(request.options.run), fresh=True)
        _note(cli, "altered", altered)
        _introduce(cli)
    cli.callbacks.extend(callbacks)
    if changed:  # first, so that the other callbacks already see the new rates
        cli.callbacks.insert(0, ChangedOptions(changed))
    # Not before the trainer is built: then a mistake in an option leaves no folder behind.
    with _hold_folder(cli):
        if request.run is not None and start is not None:
            start.refuse_past(cli.trainer, request.run)
            log.info("%s", start.describe(cli.trainer, request.run))
        code = _train(cli, None if start is None else start.checkpoint, request)
        if code == 0 and not cli.is_temporary and not callbacks:
            _write_page(cli)
        return code


def _resume_if_begun(parser: CommandParser, arguments: Sequence[str]) -> Sequence[str]:
    """Turn `--if-exists resume` into `--resume` if the folder of `--run` contains a run."""
    options, rest = parser.parse_known_args(list(arguments))
    check_choice("--if-exists", options.if_exists or "fail", ("fail", "resume"))
    if options.checkpoint and not options.resume:
        raise BadInput("--checkpoint is where --resume continues; to start a new run from weights use model.init_from.")
    if options.if_exists == "resume" and not options.run:
        raise BadInput("--if-exists resume needs --run FOLDER.")
    config = RunFolder(Path(options.run)).config if options.run and options.if_exists == "resume" else None
    if config is None or not config.is_file():
        return arguments
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):  # a damaged file is reported when it is read
        # Otherwise what the run appended would be appended again, and finders would search again.
        stored = load_yaml(config.read_text(encoding="utf-8")) or {}
        rest = [*without_repeats(CommandLine.parse(rest).located().words, stored), *stored_findings(stored)]
    return ["--resume", str(options.run), *rest]


def _note(cli: GraphbenchCLI, kind: str, differences: Sequence[str]) -> None:
    """Write differences from the recipe into the configuration, so that the run is not expected to reach its score."""
    if differences:
        cli.config[f"expected.{kind}"] = [*cli.config[f"expected.{kind}"], *differences]


def _rank() -> int:
    """Return the rank of this process before a process group exists, as Lightning reads it from the environment."""
    return int(getattr(rank_zero_only, "rank", 0) or 0)


def _new_folder(name: str | None) -> RunFolder | None:
    """Return the named folder unless it contains a run with a checkpoint; None to generate one."""
    if name is None:
        return None
    run = RunFolder(folder_to_write("--run", name))
    if run.is_begun and _rank() == 0:
        raise BadInput(
            f"--run {name}: this folder already holds a run. Continue it with --resume {as_word(name)}, or name "
            "another."
        )
    return run


@rank_zero_only
def _introduce(cli: GraphbenchCLI) -> None:
    parts = {"architecture": cli.model.architecture, "head": cli.model.task}
    counts = ", ".join(f"{name} {count_parameters(part):,}" for name, part in parts.items())
    name, total = type(cli.model.architecture).__name__, f"{count_parameters(cli.model):,}"
    log.info("%s on %s: %s trainable parameters (%s)", name, cli.model.spec.name, total, counts)
    log.info("Run folder: %s", "none, for fast_dev_run" if cli.is_temporary else cli.run.path)


@contextlib.contextmanager
def _hold_folder(cli: GraphbenchCLI) -> Iterator[None]:
    """Lock the run's folder during the fit, and remove it after a trial."""
    if _rank() != 0:
        yield
        return
    try:
        with cli.run.held(new=cli.made_up or cli.is_temporary) as place:
            cli.stop.place = place
            if cli.continue_at is None:
                if cli.run.is_begun:  # between the first check and the lock
                    raise BadInput(f"--run {cli.run.path}: another process has just finished a run in it.")
                cli.run.clear()
            yield
    finally:
        if cli.is_temporary:
            shutil.rmtree(cli.run.path, ignore_errors=True)
        if cli.made_up:
            with contextlib.suppress(OSError):  # `runs/` holds others, or this one
                cli.run.path.parent.rmdir()


class _WriteConfig(pl.Callback):
    """Write the configuration into the run's folder once data and model match.

    Args:
        cli: the fit.
        request: tells whether options override the configuration of a continued run.
    """

    def __init__(self, cli: GraphbenchCLI, request: Request) -> None:
        self._cli, self._changed, self._moved = cli, bool(request.typed), request.moved

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write configuration and environment of a new run, and the hyper-parameters of every run."""
        cli, run = self._cli, self._cli.run
        store_findings(cli.config, trainer, cli.model, cli.datamodule)
        resolved = cli.resolved_config()
        config = load_yaml(resolved)
        cli.model.save_hyperparameters(config["model"])
        config["trainer"].pop("logger", None)  # its options may contain keys
        cli.datamodule.save_hyperparameters({key: config[key] for key in ("data", "trainer", "seed_everything")})
        if cli.continue_at is None and trainer.is_global_zero:
            self._write(resolved)
            write_text(run.environment, json.dumps(describe_environment(), indent=2) + "\n")
        elif trainer.is_global_zero:
            run.note_environment(cli.continue_at or 0, describe_environment())

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write changed options of a continued run once it has made a step with them."""
        config = self._cli.config
        if self._changed and self._cli.continue_at is not None and trainer.is_global_zero:
            for name, (stored, resolved) in self._moved.items():  # the run keeps its own paths
                if config[f"data.init_args.{name}"] == resolved:
                    config[f"data.init_args.{name}"] = stored
            self._write(self._cli.resolved_config())
        self._changed = False

    def _write(self, text: str) -> None:
        """Write a resolved configuration below a line with the version that wrote it."""
        load_yaml(text)  # fails now rather than when the run is read
        write_text(self._cli.run.config, f"# graphbench-lightning=={__version__}\n{text}")
        trust.remember(self._cli.run.config)


def _train(cli: GraphbenchCLI, checkpoint: Path | None, request: Request) -> int:
    """Fit and record; return the exit code."""
    fresh = cli.continue_at is None
    same = SameData(cli.run, request.options.data_changed, fresh=fresh)
    cli.callbacks.extend([same, _WriteConfig(cli, request), RecordTraining(cli.run, fresh=fresh)])
    if not fresh:  # the configuration has the finders' results; another search would undo the training
        finders = (BatchSizeFinder, LearningRateFinder)
        cli.callbacks[:] = [callback for callback in cli.callbacks if not isinstance(callback, finders)]
    try:
        join_again(cli.trainer)
        # Not as an argument of `fit`, which Lightning exposes only after setup: so `setup` reads no starting weights.
        cli.trainer.ckpt_path = checkpoint
        cli.trainer.fit(cli.model, datamodule=cli.datamodule, weights_only=True)
        cli.trainer.ckpt_path = None
        return _finish(cli)
    except Stopped as stop:
        return _stopped(cli, stop.signum)
    except FolderLost as error:
        if _rank() == 0:
            raise
        log.debug("%s", error)
        return shared_exit_code(1)
    except Diverged as error:
        if _rank() == 0 and not cli.is_temporary:  # a result, which `graphbench reproduce` shows
            cli.run.update_results({"diverged": str(error)})
        raise
    except SIGTERMException:  # raised by Lightning once all processes know
        return _stopped(cli, cli.signals.agreed)
    except Exception as error:
        if cli.signals.noted:  # another process stopped at once, and this one lost its connection
            log.debug("while leaving", exc_info=True)
            return _stopped(cli, cli.signals.noted)
        unfit = _UNFIT in str(error.__cause__)
        if (unfit or not isinstance(error, GraphbenchError)) and (message := _explain(cli, checkpoint, error)):
            raise message from error
        raise


def _explain(cli: GraphbenchCLI, checkpoint: Path | None, error: Exception) -> GraphbenchError | None:
    """Return a readable error for one raised in training, or raise `FolderLost`; None if it is a bug."""
    if cli.signals.waiting:  # before training there is no config.yaml yet
        _check_place(cli)
    if message := explain_memory(error) or explain_lost_process(error):
        return GraphbenchError(f"{message} {_how_to_go_on(cli.run)}")
    if message := explain_training(error):
        return BadInput(message)
    if checkpoint is not None and _UNFIT in str(error.__cause__):
        trained = load_checkpoint(checkpoint).get("hyper_parameters", {})
        differing = differing_options(cli.settings()["model"], trained)[:6]
        return BadInput(
            f"The weights of {checkpoint} do not fit: {'; '.join(differing) or error}. A run continues as the model it "
            "began with; train another one in a separate folder (--run)."
        )
    return None


def _stopped(cli: GraphbenchCLI, signum: int) -> int:
    """Log how to continue; return the exit code of the signal."""
    run = cli.run
    if _rank() != 0:
        return exit_code(signum)
    name = signal.Signals(signum).name
    if run.resumable is None:
        log.warning("Stopped by %s before the first checkpoint: run the same command again to start over.", name)
    else:
        log.warning("Stopped by %s. %s", name, _how_to_go_on(run))
    if signum == cli.signals.requeue_signal:
        queue_again()
    else:
        queue_again_if_preempted()
    return exit_code(signum)


def _how_to_go_on(run: RunFolder) -> str:
    if run.resumable is None:
        return "There is no checkpoint yet: run the same command again to start over."
    return f"Continue with: graphbench fit --resume {as_word(run.path)}"


def _check_place(cli: GraphbenchCLI) -> None:
    """Raise `FolderLost` if the run's folder was moved or removed."""
    place = cli.stop.place
    if place is not None and not is_in_place(place):
        raise FolderLost(lost_folder(place.path, place.current(), cli.trainer.global_step))


def _finish(cli: GraphbenchCLI) -> int:
    """Validate the best checkpoint and record its scores, for comparison with those of `graphbench test`.

    Return the exit code: 1 if the best score is not a number.
    """
    results = _describe_fit(cli)
    _check_place(cli)
    _save_averaged(cli)
    results |= _score_best(cli)
    results["undefined"] = dict(cli.model.scores.of("val").undefined)
    _check_place(cli)
    _record(cli.run, results)
    return _report_end(cli, results)


def _describe_fit(cli: GraphbenchCLI) -> dict[str, Any]:
    """Return model, length and cost of the training, including all parts of a continued run."""
    trainer, model = cli.trainer, cli.model
    timer = next(callback for callback in cli.callbacks if isinstance(callback, Timer))
    peak = highest_memory_mb(trainer.strategy.root_device)
    return {
        **describe_model(model),
        "data": kind_of_data(model.spec),
        "parameters": count_parameters(model),
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        "ended_by_rate": model.ended_by_rate,
        "seed": cli.config.get("seed_everything"),
        "fit_seconds": round(timer.time_elapsed(), 1),
        **({} if peak is None else {"peak_memory_mb": round(peak)}),
    }


def _save_averaged(cli: GraphbenchCLI) -> None:
    """Save the final weights of stochastic weight averaging, which no epoch's checkpoint contains."""
    is_averaged = any(isinstance(callback, StochasticWeightAveraging) for callback in cli.callbacks)
    if is_averaged and cli.run.last.is_file():
        path = cli.run.checkpoints / "averaged.ckpt"
        cli.trainer.save_checkpoint(path, weights_only=True)
        log.info("Averaged weights: graphbench test --run %s --checkpoint %s", as_word(cli.run.path), as_word(path))


def _score_best(cli: GraphbenchCLI) -> dict[str, Any]:
    """Validate the best checkpoint; without its file, return the last validation scores, if there are any."""
    trainer, run = cli.trainer, cli.run
    if run.best.is_file():
        best_epoch = load_checkpoint(run.best)["epoch"] + 1  # Lightning counts from 0
        trainer.loggers = []  # the best epoch's scores are already in the logs
        scores = trainer.validate(cli.model, cli.datamodule, ckpt_path=str(run.best), verbose=False, weights_only=True)
        # Results without the key `epochs_from` count from 0.
        return {"best_epoch": best_epoch, "epochs_from": 1, "val": scores_of("val", scores[0])}
    if cli.is_temporary or not any(isinstance(one, BestCheckpoint) for one in trainer.checkpoint_callbacks):
        return {}
    scored = scores_of("val", {name: float(value) for name, value in trainer.callback_metrics.items()})
    return {"val": scored} if scored else {}


def _report_end(cli: GraphbenchCLI, results: dict[str, Any]) -> int:
    """Log the best epoch, or why there is none; return the exit code."""
    trainer, run, monitor = cli.trainer, cli.run, cli.model.monitor
    is_full = trainer.current_epoch == trainer.max_epochs or trainer.global_step == trainer.max_steps  # said before
    if trainer.global_step == (cli.continue_at or 0) and not is_full:
        log.warning("No step was trained: --trainer.max_time, early stopping or the rate ended the run first.")
    if "val" not in results and run.last.is_file() and not cli.is_temporary:
        log.info("No epoch is the best one without validation scores: predict uses %s.", run.last)
    if monitor not in results.get("val", {}):
        return 0
    score = results["val"][monitor]
    if "best_epoch" not in results or not math.isfinite(score):
        why = results["undefined"].get(monitor) or f"it is {score} at the end"
        log.error("No epoch is the best one: %s has no number in any of them: %s.", monitor, why)
        return 1
    log.info("Best epoch %d: %s %s", results["best_epoch"], monitor, show_number(score))
    return 0


@rank_zero_only
def _record(run: RunFolder, results: dict[str, Any]) -> None:
    """Replace the stored results; test scores stay if the best checkpoint did not change."""
    try:
        stored = run.read_results()
    except CorruptData as error:  # the results of this fit matter more
        log.warning("%s It is rewritten without test scores.", str(error).partition(" Remove it")[0])
        stored = {}
    if all(stored.get(key) == results.get(key) for key in ("best_epoch", "val")):
        unchanged = {key: stored[key] for key in ("test", "baselines", "expected", "data_changed") if key in stored}
        results = unchanged | results | {"undefined": dict(stored.get("undefined") or {}) | results["undefined"]}
    run.write_results(results)


@rank_zero_only
def _write_page(cli: GraphbenchCLI) -> None:
    """Write the run's report, and log the next command."""
    write_page(cli.run)
    run = as_word(cli.run.path)
    if cli.run.resumable is None:
        log.warning("No checkpoint was written: the run can be neither tested nor continued.")
    elif cli.datamodule.is_empty("test"):
        log.info("No test part: graphbench test --run %s --input LABELLED.csv scores a file.", run)
    else:
        log.info("Next: graphbench test --run %s", run)
