"""Send figures and tables to trackers along with numbers, name their runs, and resume that of a continued run.

Numbers go to every logger through Lightning's `log_metrics`; for figures, histograms and tables each tracker
(TensorBoard, Weights & Biases, MLflow) has its own calls. A logger of another kind gets only the numbers; the files are
in the run's folder in any case.
"""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from PIL import Image
from pytorch_lightning.loggers import CometLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.runs import RunFolder

log = logging.getLogger(__name__)

#: Number of rows of a table that TensorBoard shows: the time that it takes grows with their square.
_BOARD_ROWS = 1000
#: W&B's name for the axis along which Lightning logs.
_STEP = "trainer/global_step"
#: Class of a logger -> the option that resumes an earlier run of its tracker.
_EARLIER = {"MLFlowLogger": "run_id", "TensorBoardLogger": "version", "WandbLogger": "id"}
#: Options that name a run of a tracker.
_NAMES = ("name", "run_name")


def logged_step(trainer: pl.Trainer) -> int:
    """Return the step to log at: Lightning numbers steps from 0 when it logs, and `global_step` counts finished ones.

    TensorBoard drops what was logged at the step from which a run continues, or later.
    """
    return max(trainer.global_step - 1, 0)


def log_figure(trainer: pl.Trainer, name: str, figure: Figure) -> None:
    """Pass a figure that is already laid out to the run's trackers."""
    for logger in trainer.loggers if trainer.is_global_zero else ():
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_figure(name, figure, logged_step(trainer))
        elif isinstance(logger, WandbLogger):
            import wandb

            logger.experiment.log({name: wandb.Image(_drawn(figure)), _STEP: logged_step(trainer)})
        elif isinstance(logger, MLFlowLogger):
            logger.experiment.log_image(logger.run_id, _drawn(figure), f"{name}/step-{trainer.global_step:08}.png")


def log_histogram(trainer: pl.Trainer, name: str, values: Sequence[float]) -> None:
    """Pass numbers to the run's trackers as a histogram; MLflow, which has none, gets a figure."""
    for logger in trainer.loggers if trainer.is_global_zero else ():
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_histogram(name, torch.tensor(values), logged_step(trainer))
        elif isinstance(logger, WandbLogger):
            import wandb

            logger.experiment.log({name: wandb.Histogram(list(values)), _STEP: logged_step(trainer)})
        elif isinstance(logger, MLFlowLogger):
            figure = Figure(figsize=(4, 3), layout="constrained")
            axes = figure.subplots()
            axes.hist(list(values), bins=30)
            axes.set_xlabel(name)
            axes.set_ylabel("graphs")
            logger.experiment.log_image(logger.run_id, _drawn(figure), f"{name}/step-{trainer.global_step:08}.png")


def log_table(trainer: pl.Trainer, name: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Pass a table to the run's trackers; TensorBoard, which has none, gets its last rows as Markdown."""
    if not rows or not trainer.is_global_zero:
        return
    columns = list(rows[0])
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
            lines += [" | ".join(row[column] for column in columns) for row in rows[-_BOARD_ROWS:]]
            text = "\n".join(f"| {line} |" for line in lines)
            if len(rows) > _BOARD_ROWS:
                text = f"The last {_BOARD_ROWS:,} of {len(rows):,} rows.\n\n{text}"
            logger.experiment.add_text(name, text, logged_step(trainer))
        elif isinstance(logger, WandbLogger):
            logger.log_table(name, columns=columns, data=[[row[column] for column in columns] for row in rows])
        elif isinstance(logger, MLFlowLogger):
            by_column = {column: [row[column] for row in rows] for column in columns}
            logger.experiment.log_table(logger.run_id, by_column, f"{name}.json")


def _drawn(figure: Figure) -> Image.Image:
    """Render the figure as pixels."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return Image.open(content)


# -- runs of trackers --------------------------------------------------------------------------------------------------


class TrackerRuns(pl.Callback):
    """Name the runs of trackers after the run's folder unless an option does, and record them.

    Trackers generate names with Python's generator, which is seeded: runs with the same seed would all have the same
    name. `settings` has the class and options of each configured logger.
    """

    def __init__(self, loggers: Sequence[Logger], settings: Sequence[Any], run: RunFolder, continued: bool) -> None:
        self._loggers, self._run, self._continued = loggers, run, continued
        self._is_named = [any(_option(one, name) is not None for name in _NAMES) for one in settings]
        self._classes = [_class(one) for one in settings]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Name and record them once data and model match."""
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
                log.info("%s starts a new run of its tracker: %s.", record["logger"], record["run"])
        write_text(self._run.trackers, json.dumps(now, indent=2) + "\n")


def go_on(settings: Sequence[Any], run: RunFolder) -> None:
    """Let loggers resume the tracker runs that the folder records, unless an option names one.

    Offline runs cannot be resumed, nor can those of other trackers. The configurations of the loggers are changed in
    place.
    """
    earlier = _recorded(run)
    for one in settings:
        name = _class(one)
        # The first of its class: another logger may have been added or left out.
        record = next((record for record in earlier if record["logger"] == name), None)
        if record is None:
            continue
        earlier.remove(record)
        option = _EARLIER.get(name)
        if option is None or _option(one, option) is not None:
            continue
        if name == "WandbLogger":
            if _option(one, "version") is not None or _is_offline(one):
                continue
            one["init_args.resume"] = "allow"
        elif name == "MLFlowLogger":
            one["class_path"] = f"{ContinuedMLFlowLogger.__module__}.{ContinuedMLFlowLogger.__name__}"
        one[f"init_args.{option}"] = record["run"]


def check_loggers(settings: Sequence[Any]) -> None:
    """Refuse a logger that would store nothing."""
    for one in settings:
        if _class(one) == "CometLogger" and _option(one, "online") is False:
            raise BadInput(
                "--trainer.logger.online false: Lightning switches such a Comet experiment off, and nothing is "
                "stored. Leave it out, and set the environment variable COMET_START_ONLINE=0."
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
    """Return an option of a logger, None if unset."""
    return settings.get(f"init_args.{name}")


def _recorded(run: RunFolder) -> list[dict[str, Any]]:
    """Read which tracker runs belong to a run; none if nothing is recorded."""
    try:
        stored = load_json(run.trackers)
        return [{"logger": one["logger"], "run": one["run"]} for one in stored]
    except (OSError, ValueError, TypeError, KeyError):
        return []


class ContinuedMLFlowLogger(MLFlowLogger):
    """Resume a run of MLflow, which refuses to change parameters: new values become tags."""

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        """Log missing parameters, and a tag `resumed/NAME` for each parameter with a new value."""
        client = self.experiment
        stored = client.get_run(self.run_id).data.params
        flat = dict(_flat(params))
        super().log_hyperparams({name: value for name, value in flat.items() if name not in stored})
        for name, value in flat.items():
            if name in stored and stored[name] != value:
                client.set_tag(self.run_id, f"resumed/{name}", value)


def _flat(params: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield hyper-parameters as MLflow stores them: one name each, and the first 250 characters of a value."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", str(value)[:250]
