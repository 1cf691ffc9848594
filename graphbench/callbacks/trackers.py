"""Pictures, histograms and tables for whatever logger a run has, and the logger of a continued run of MLflow.

Numbers go to every logger by Lightning's own `log_metrics`; for the rest each tracker has calls of its own. A logger of
another kind gets the numbers alone, and the files lie in the run's folder in any case.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from PIL import Image
from pytorch_lightning.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from graphbench.training.lightning_internals import flat_parameters

#: W&B's name of the axis along which Lightning logs.
_STEP = "trainer/global_step"


class ContinuedMLFlowLogger(MLFlowLogger):
    """Goes on with a run of MLflow, which refuses other values of its parameters: they become tags."""

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        """Log what the run lacks, and a tag `resumed/NAME` for each parameter that has another value now."""
        client = self.experiment
        stored = client.get_run(self.run_id).data.params
        flat = flat_parameters(params)
        super().log_hyperparams({name: value for name, value in flat.items() if name not in stored})
        for name, value in flat.items():
            if name in stored and stored[name] != value:
                client.set_tag(self.run_id, f"resumed/{name}", value)


def log_figure(trainer: pl.Trainer, name: str, figure: Figure) -> None:
    """Hand a figure that is laid out already to the run's trackers."""
    for logger in trainer.loggers if trainer.is_global_zero else ():
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_figure(name, figure, trainer.global_step)
        elif isinstance(logger, WandbLogger):
            import wandb

            logger.experiment.log({name: wandb.Image(_drawn(figure)), _STEP: trainer.global_step})
        elif isinstance(logger, MLFlowLogger):
            logger.experiment.log_image(logger.run_id, _drawn(figure), f"{name}/step-{trainer.global_step:08}.png")


def log_histogram(trainer: pl.Trainer, name: str, values: Sequence[float]) -> None:
    """Hand numbers to the run's trackers as a histogram; MLflow, which has none, gets its picture."""
    for logger in trainer.loggers if trainer.is_global_zero else ():
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_histogram(name, torch.tensor(values), trainer.global_step)
        elif isinstance(logger, WandbLogger):
            import wandb

            logger.experiment.log({name: wandb.Histogram(list(values)), _STEP: trainer.global_step})
        elif isinstance(logger, MLFlowLogger):
            figure = Figure(figsize=(4, 3), layout="constrained")
            axes = figure.subplots()
            axes.hist(list(values), bins=30)
            axes.set_xlabel(name)
            axes.set_ylabel("graphs")
            logger.experiment.log_image(logger.run_id, _drawn(figure), f"{name}/step-{trainer.global_step:08}.png")


def log_table(trainer: pl.Trainer, name: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Hand a table to the run's trackers; TensorBoard, which has none, gets it as Markdown."""
    if not rows or not trainer.is_global_zero:
        return
    columns = list(rows[0])
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
            lines += [" | ".join(row[column] for column in columns) for row in rows]
            logger.experiment.add_text(name, "\n".join(f"| {line} |" for line in lines), trainer.global_step)
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
