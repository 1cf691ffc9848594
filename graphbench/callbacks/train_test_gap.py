"""Measure how much worse a model is on graphs it was not trained on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import pytorch_lightning as pl

from graphbench.callbacks.diagnostic_table import DiagnosticTable, trained_for
from graphbench.callbacks.probe import (
    check_positive,
    choose_graphs,
    evaluation_batch,
    probed_module,
    split_table,
    undisturbed,
)
from graphbench.contracts.spec import Split
from graphbench.diagnostics import generalization_gap
from graphbench.errors import BadInput
from graphbench.runs.tables import GAP_COLUMNS
from graphbench.training.module import BenchmarkModule, SplitScores

log = logging.getLogger(__name__)


class TrainTestGap(pl.Callback):
    """Measure the gap between training graphs and unseen ones after every validation and after a test.

    The training scores that a run logs are from a changing model with dropout. This callback scores the model that was
    just validated (or tested) in evaluation mode on a fixed random part of the training graphs. The other side of the
    gap is the score of a whole split; the validation split's costs nothing extra. A larger gap is always worse, for
    errors and for scores. SFi-Former, figure 3, shows such curves.

    It writes `diagnostics/train_test_gap.csv` with a row for the benchmark's metric and one for the loss, and logs
    `train_test_gap/METRIC` (`METRIC_test` for the test split). Rows with stage "fit" are for the model in training; a
    row with split "test" among them shows that the test split was scored before training was over. Rows with stage
    "test" are for the tested checkpoint, with its epoch and step, whatever the trainer has done.

    Args:
        num_graphs: training graphs to score, distributed over the processes; None for all.
        every_n_epochs: measure after the validation of every n-th epoch.
        batch_size: graphs that one process scores at once.
        seed: chooses the graphs.
        splits: what to compare the training graphs with during training: val, test or both. The test split is scored
            only if it is named here.

    Raises:
        BadInput: a number is not positive, or `splits` is empty or names another split.
    """

    def __init__(
        self,
        num_graphs: int | None = 256,
        every_n_epochs: int = 1,
        batch_size: int = 64,
        seed: int = 0,
        splits: Sequence[Literal["val", "test"]] = ("val",),
    ) -> None:
        chosen = 1 if num_graphs is None else num_graphs
        check_positive(self, num_graphs=chosen, every_n_epochs=every_n_epochs, batch_size=batch_size)
        if not splits or not set(splits) <= {"val", "test"}:
            raise BadInput(f"splits of TrainTestGap must be a list of val, test or both, got {splits!r}.")
        self.num_graphs, self.every_n_epochs = num_graphs, every_n_epochs
        self.batch_size, self.seed, self.splits = batch_size, seed, tuple(dict.fromkeys(splits))
        self.table = DiagnosticTable("train_test_gap", GAP_COLUMNS)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the table."""
        probed_module(pl_module)
        self.table.start(trainer)
        if "test" in self.splits and trainer.is_global_zero:
            log.warning("TrainTestGap scores the test split during training: do not select anything by it.")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare with the chosen splits during training."""
        turn = (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if trainer.state.fn == "fit" and not trainer.sanity_checking and turn:
            module = probed_module(pl_module)
            train = self._scores(trainer, module, "train", self.num_graphs)
            for split in self.splits:
                scores = _known_scores(trainer, "val") if split == "val" else self._scores(trainer, module, split, None)
                self._compare(trainer, module, split, train, scores)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Pass the table to the trackers."""
        self.table.publish(trainer)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare with the test split."""
        module = probed_module(pl_module)
        train = self._scores(trainer, module, "train", self.num_graphs)
        self._compare(trainer, module, "test", train, _known_scores(trainer, "test"))

    def _compare(
        self,
        trainer: pl.Trainer,
        module: BenchmarkModule,
        split: str,
        train: dict[str, float],
        unseen: dict[str, float],
    ) -> None:
        """Add the rows of a split, and log its gaps."""
        rows: list[dict[str, Any]] = []
        stage = "fit" if trainer.state.fn == "fit" else "test"
        for measure, higher_is_better in ((module.spec.metric, module.spec.higher_is_better), ("loss", False)):
            if measure in unseen:
                gap = generalization_gap(train[measure], unseen[measure], higher_is_better)
                scores = {"train": train[measure], "unseen": unseen[measure], "gap": gap}
                rows.append({"split": split, "measure": measure, **scores, "stage": stage})
        if stage == "fit":
            self.table.add(trainer, trainer.current_epoch + 1, rows)
        else:
            epoch, step = trained_for(trainer)
            self.table.add(trainer, epoch, rows, step)
        suffix = "" if split == "val" else f"_{split}"
        self.table.log(trainer, {f"{row['measure']}{suffix}": row["gap"] for row in rows})

    def _scores(
        self, trainer: pl.Trainer, module: BenchmarkModule, split: Split, num_graphs: int | None
    ) -> dict[str, float]:
        """Return scores on chosen graphs of a split, or on all; torchmetrics adds up what the processes have seen."""
        table = split_table(trainer, split)
        chosen = choose_graphs(trainer, split, len(table) if num_graphs is None else num_graphs, self.seed)
        if len(chosen) >= trainer.world_size:  # else every process scores all: an empty metric cannot be added up
            chosen = chosen[trainer.global_rank :: trainer.world_size]
        with undisturbed(trainer, module, self.seed):
            scores = SplitScores(module.task, "probe").to(module.device)
            # By size, so that little is padded; sums over the split do not depend on the order.
            for part in chosen[table.num_nodes[chosen].argsort()].split(self.batch_size):
                batch = evaluation_batch(trainer, table.batch(part))
                scores.update(module.task, module(batch), batch)
            return {name.partition("/")[2]: float(value) for name, value in scores.finish().items()}


def _known_scores(trainer: pl.Trainer, split: str) -> dict[str, float]:
    """Return the scores of a split that the loop just logged, by name without the split."""
    metrics, prefix = trainer.callback_metrics, f"{split}/"
    return {name.removeprefix(prefix): float(value) for name, value in metrics.items() if name.startswith(prefix)}
