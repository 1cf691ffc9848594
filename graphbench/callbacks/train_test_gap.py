"""How much worse a model is on graphs it was not trained on."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch

from graphbench.callbacks.diagnostic_table import DiagnosticTable
from graphbench.callbacks.probe import choose_graphs, probed_module, split_table, undisturbed
from graphbench.diagnostics import generalization_gap
from graphbench.errors import BadInput
from graphbench.module import BenchmarkModule, SplitScores


class TrainTestGap(pl.Callback):
    """The gap between training graphs and unseen ones, after every validation and after a test.

    The training scores that a run logs are those of a moving model with dropout; here the model that was just validated
    (or tested) is scored in evaluation mode on a fixed random part of the training graphs. The other side of the gap
    is the score of the whole validation (or test) split, which costs nothing more. A larger gap is always worse, for
    errors and for scores.

    Writes `diagnostics/train_test_gap.csv` with a row for the benchmark's metric and one for the loss, and logs
    `train_test_gap/METRIC`.

    Args:
        num_graphs: training graphs to score, dealt over the processes.
        every_n_epochs: look after the validation of every so many epochs.
        batch_size: training graphs that one process scores at once.
        seed: chooses the graphs.

    Raises:
        BadInput: a number is not positive.
    """

    def __init__(self, num_graphs: int = 256, every_n_epochs: int = 1, batch_size: int = 64, seed: int = 0) -> None:
        numbers = {"num_graphs": num_graphs, "every_n_epochs": every_n_epochs, "batch_size": batch_size}
        for option, number in numbers.items():
            if number < 1:
                raise BadInput(f"{option} of TrainTestGap must be 1 or more, got {number}.")
        self.num_graphs, self.every_n_epochs = num_graphs, every_n_epochs
        self.batch_size, self.seed = batch_size, seed
        self.table = DiagnosticTable("train_test_gap", ("split", "measure", "train", "unseen", "gap"))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin the table."""
        probed_module(pl_module)
        self.table.start(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare with the validation split while training."""
        turn = (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if trainer.state.fn == "fit" and not trainer.sanity_checking and turn:
            self._compare(trainer, probed_module(pl_module), "val")

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare with the test split."""
        self._compare(trainer, probed_module(pl_module), "test")

    def _compare(self, trainer: pl.Trainer, module: BenchmarkModule, split: str) -> None:
        train = self._train_scores(trainer, module)
        rows: list[dict[str, Any]] = []
        spec = module.spec
        for measure, higher_is_better in ((spec.metric, spec.higher_is_better), ("loss", False)):
            unseen = trainer.callback_metrics.get(f"{split}/{measure}")
            if unseen is not None:
                gap = generalization_gap(train[measure], float(unseen), higher_is_better)
                row = {"split": split, "measure": measure, "train": train[measure], "unseen": float(unseen), "gap": gap}
                rows.append(row)
        finished = trainer.current_epoch + (1 if trainer.state.fn == "fit" else 0)
        self.table.add(trainer, finished, rows)
        suffix = "" if split == "val" else f"_{split}"
        self.table.log(trainer, {f"{row['measure']}{suffix}": row["gap"] for row in rows})

    def _train_scores(self, trainer: pl.Trainer, module: BenchmarkModule) -> dict[str, float]:
        """Scores of the chosen training graphs; torchmetrics adds up what the processes have seen."""
        chosen = choose_graphs(trainer, "train", self.num_graphs, self.seed)
        if len(chosen) >= trainer.world_size:  # else every process scores all: metrics cannot add up nothing
            chosen = chosen[trainer.global_rank :: trainer.world_size]
        table = split_table(trainer, "train")
        with undisturbed(trainer, module, self.seed):
            scores = SplitScores(module.task, "probe").to(module.device)
            for part in chosen[table.num_nodes[chosen].argsort()].split(self.batch_size):
                batch = table.batch(part).to(module.device)
                output = module(batch)
                scores.update(module.task, output, batch, torch.as_tensor(module.task.loss(output, batch)))
            return {name.partition("/")[2]: float(value) for name, value in scores.finish().items()}
