"""Measure the speed of a run and the time it waits for data."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl

from graphbench.training.distributed import gather_objects


class Throughput(pl.Callback):
    """Log `time/graphs_per_s`, `time/epoch_s` and `time/data_share` of every training epoch.

    The share is the part of the epoch's wall time between the end of one step and the start of the next, which is
    spent waiting for (and moving) the next batch. With several processes, the graphs of all are divided by the time of
    the slowest, and the share is the mean.
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] = {}
        self._start_clock()

    def _start_clock(self, graphs: int = 0, elapsed: float = 0.0, waited: float = 0.0) -> None:
        self._graphs, self._elapsed, self._waited = graphs, elapsed, waited
        self._free_since = time.perf_counter()
        self._start = self._free_since - elapsed

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of the epoch so far; all ranks must call this."""
        graphs, elapsed, waited = self._counts()
        return {"graphs": graphs, "elapsed": elapsed, "waited": waited}

    def _counts(self) -> tuple[int, float, float]:
        """Return the graphs of all processes, the time of the slowest, and their mean waiting time."""
        graphs, elapsed, waited = zip(*gather_objects((self._graphs, self._elapsed, self._waited)), strict=True)
        return int(sum(graphs)), max(elapsed), sum(waited) / len(waited)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until training starts."""
        self._restored = state_dict

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock if a run resumes within an epoch, which Lightning does not start again."""
        if self._restored and not trainer.is_global_zero:
            self._restored["graphs"] = 0  # the first process has those of all
        self._start_clock(**self._restored)
        self._restored = {}

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._start_clock()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Stop waiting."""
        self._waited += time.perf_counter() - self._free_since

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch and wait for the next one."""
        self._graphs += batch.num_graphs
        self._free_since = time.perf_counter()
        self._elapsed = self._free_since - self._start

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log; validation is not part of the time."""
        graphs, elapsed, waited = self._counts()
        if not graphs:
            return
        pl_module.log_dict(
            {
                "time/graphs_per_s": graphs / elapsed,
                "time/epoch_s": elapsed,
                "time/data_share": waited / elapsed,
            }
        )
