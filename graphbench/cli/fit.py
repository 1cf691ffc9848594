"""`graphbench fit`: train, and go on training."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.utilities.exceptions import SIGTERMException
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from graphbench.checkpoints import load_checkpoint
from graphbench.cli.lightning import GraphbenchCLI, write_config
from graphbench.cli.options import own_parser, split
from graphbench.cli.params import count
from graphbench.cli.profile import peak_memory_mb
from graphbench.cli.score import scores_of
from graphbench.errors import BadInput
from graphbench.runs import RunFolder, describe_environment, write_text

log = logging.getLogger(__name__)


def fit(arguments: Sequence[str]) -> int:
    """Train from a configuration (`--run` names the folder), or continue a run (`--resume FOLDER`).

    Raises:
        BadInput: the folder is taken, or there is nothing to continue.
    """
    parser = own_parser("fit", run="folder of the new run", resume="folder of a run to continue")
    request = split(parser, arguments, run_option="resume")
    if request.run is not None:
        run = request.run
        step = load_checkpoint(run.last)["global_step"]
        cli = GraphbenchCLI(request.arguments, run, continue_at=step)
        log.info("Continuing %s at step %d", run.path, step)
    else:
        cli = GraphbenchCLI(request.arguments, _new_folder(request.own.run), fresh=True)
        _start(cli)
    assert cli.run_folder is not None
    checkpoint = cli.run_folder.last if request.run else None
    try:
        cli.trainer.fit(cli.model, datamodule=cli.datamodule, ckpt_path=checkpoint, weights_only=True)
    except SIGTERMException:
        return _stopped(cli.run_folder, 128 + signal.SIGTERM)
    if cli.trainer.interrupted:
        return _stopped(cli.run_folder, 128 + signal.SIGINT)
    _finish(cli)
    return 0


def _stopped(run: RunFolder, code: int) -> int:
    """Say how to go on; returns the exit code of the signal."""
    log.warning("Stopped. Continue with: graphbench fit --resume %s", run.path)
    return code


def _rank() -> int:
    """Rank of this process before any process group exists, as Lightning reads it from the environment."""
    return int(getattr(rank_zero_only, "rank", 0) or 0)


def _new_folder(named: str | None) -> RunFolder | None:
    """The folder asked for; None when one is to be made up."""
    if named is None:
        return None
    run = RunFolder(Path(named))
    if run.config.exists() and _rank() == 0:
        raise BadInput(
            f"--run {named}: this folder already holds a run. Continue it with --resume {named}, or name another."
        )
    return run


@rank_zero_only
def _start(cli: GraphbenchCLI) -> None:
    """Write down what is about to run."""
    run = cli.run_folder
    assert run is not None
    run.path.mkdir(parents=True, exist_ok=True)
    write_config(run.config, cli)
    write_text(run.environment, json.dumps(describe_environment(), indent=2) + "\n")
    parts = {"architecture": cli.model.architecture, "head": cli.model.task}
    counts = ", ".join(f"{name} {count(part):,}" for name, part in parts.items())
    name, total = type(cli.model.architecture).__name__, f"{count(cli.model):,}"
    log.info("%s on %s: %s trainable parameters (%s)", name, cli.model.spec.name, total, counts)
    log.info("Run folder: %s", run.path)


def _finish(cli: GraphbenchCLI) -> None:
    """Validate the best checkpoint and record its scores, so that `graphbench test` can be held against them."""
    trainer, model, run = cli.trainer, cli.model, cli.run_folder
    assert run is not None
    results: dict[str, Any] = {
        "benchmark": model.spec.name,
        "architecture": type(model.architecture).__name__,
        "metric": model.spec.metric,
        "higher_is_better": model.spec.higher_is_better,
        "unit": model.spec.target_units[0] if len(set(model.spec.target_units)) == 1 else "",
        "parameters": count(model),
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        "seed": cli.config.get("seed_everything"),
        "fit_seconds": round(_timer(trainer).time_elapsed(), 1),
        "peak_memory_mb": round(peak_memory_mb()),
    }
    if run.best.is_file():
        results["best_epoch"] = load_checkpoint(run.best)["epoch"]
        trainer.loggers = []  # the best epoch's scores are in the logs already
        scores = trainer.validate(model, cli.datamodule, ckpt_path=str(run.best), verbose=False, weights_only=True)
        results["val"] = scores_of("val", scores[0])
    _record(run, results)
    if "val" in results:
        log.info("Best epoch %d: %s %.4f", results["best_epoch"] + 1, model.monitor, results["val"][model.monitor])


def _timer(trainer: pl.Trainer) -> Timer:
    """The clock of the training, which counts all parts of a continued run."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return next(callback for callback in callbacks if isinstance(callback, Timer))


@rank_zero_only
def _record(run: RunFolder, results: dict[str, Any]) -> None:
    """Replace what is stored; test scores stay where the best checkpoint is still the one they were taken from."""
    stored = run.read_results()
    same = all(stored.get(key) == results.get(key) for key in ("best_epoch", "val"))
    run.write_results({key: stored[key] for key in ("test", "rivals") if same and key in stored} | results)
