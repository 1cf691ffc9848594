"""Name a tracker's run after the run's folder, and go on with the same one when a run is continued."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import CometLogger, Logger, MLFlowLogger, WandbLogger

from graphbench.callbacks.trackers import ContinuedMLFlowLogger
from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.runs import RunFolder

log = logging.getLogger(__name__)

#: Class of a logger -> the option that goes on with an earlier run of its tracker.
_EARLIER = {"MLFlowLogger": "run_id", "TensorBoardLogger": "version", "WandbLogger": "id"}
#: Options that name a run of a tracker.
_NAMES = ("name", "run_name")


class TrackerRuns(pl.Callback):
    """Names the runs of trackers after the run's folder, where no option does, and records which they are.

    Trackers make names up from Python's generator, which is seeded: runs of one seed would all be called the same.

    Args:
        loggers: those that are configured, as they were built.
        settings: the configuration of each: class and options.
        run: the folder.
        continued: whether the run goes on.
    """

    def __init__(self, loggers: Sequence[Logger], settings: Sequence[Any], run: RunFolder, continued: bool) -> None:
        self._loggers, self._run, self._continued = loggers, run, continued
        self._is_named = [any(_option(one, name) is not None for name in _NAMES) for one in settings]
        self._classes = [_class(one) for one in settings]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Name and record them, once data and model fit each other."""
        if not self._loggers or not trainer.is_global_zero or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        now = [{"logger": name, "run": one.version} for name, one in zip(self._classes, self._loggers, strict=True)]
        earlier = _recorded(self._run) if self._continued else []
        for logger, record, is_named in zip(self._loggers, now, self._is_named, strict=True):
            if record in earlier:
                continue
            if not is_named:
                _name(logger, str(self._run.path))
            if self._continued:
                log.info("%s begins another run of its tracker: %s.", record["logger"], record["run"])
        write_text(self._run.trackers, json.dumps(now, indent=2) + "\n")


def go_on(settings: Sequence[Any], run: RunFolder) -> None:
    """Let loggers go on with the runs of their trackers that the folder records, where no option names one.

    Runs that are kept offline cannot be continued, nor can those of other trackers.

    Args:
        settings: the configuration of each logger, changed in place.
        run: the folder of the run that is continued.
    """
    for one, record in zip(settings, _recorded(run), strict=False):
        name = _class(one)
        option = _EARLIER.get(name)
        if option is None or record["logger"] != name or _option(one, option) is not None:
            continue
        if name == "WandbLogger":
            if _option(one, "version") is not None or _is_offline(one):
                continue
            one["init_args.resume"] = "allow"
        elif name == "MLFlowLogger":
            one["class_path"] = f"{ContinuedMLFlowLogger.__module__}.{ContinuedMLFlowLogger.__name__}"
        one[f"init_args.{option}"] = record["run"]


def check_loggers(settings: Sequence[Any]) -> None:
    """Refuse a logger that would keep nothing.

    Raises:
        BadInput: names the option and what would be right.
    """
    for one in settings:
        if _class(one) == "CometLogger" and _option(one, "online") is False:
            raise BadInput(
                "--trainer.logger.online false: Lightning switches such an experiment of Comet off, and nothing is "
                "kept. Leave it out, and set the environment variable COMET_START_ONLINE=0."
            )


def _name(logger: Logger, name: str) -> None:
    if isinstance(logger, WandbLogger):
        logger.experiment.name = name
    elif isinstance(logger, MLFlowLogger) and logger.run_id is not None:
        logger.experiment.set_tag(logger.run_id, "mlflow.runName", name)
    elif isinstance(logger, CometLogger):
        logger.experiment.set_name(name)


def _is_offline(settings: Any) -> bool:
    modes = (_option(settings, "mode"), os.environ.get("WANDB_MODE"))
    return bool(_option(settings, "offline")) or any(mode in ("offline", "dryrun", "disabled") for mode in modes)


def _class(settings: Any) -> str:
    """Return the class that was configured."""
    name = str(settings["class_path"]).rpartition(".")[2]
    return MLFlowLogger.__name__ if name == ContinuedMLFlowLogger.__name__ else name


def _option(settings: Any, name: str) -> Any:
    """Return an option of a logger, None where it is unset."""
    return settings.get(f"init_args.{name}")


def _recorded(run: RunFolder) -> list[dict[str, Any]]:
    """Read which runs of trackers belong to a run; none where nothing says so."""
    try:
        stored = load_json(run.trackers)
        return [{"logger": one["logger"], "run": one["run"]} for one in stored]
    except (OSError, ValueError, TypeError, KeyError):
        return []
