"""A small benchmark, a small attention model, and trainers that write into a temporary run."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from toys import Toy, ToyTransformer

from graphbench import BenchmarkModule


class KeptLogger(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, dict[str, float]]] = []

    name = version = "kept"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step or 0, dict(metrics)))

    def last(self, name: str) -> float:
        """Return the last value logged under a name."""
        return [values[name] for _, values in self.rows if name in values][-1]

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


Fit = Callable[..., tuple[BenchmarkModule, pl.Trainer]]


@pytest.fixture
def make_data(tmp_path: Path) -> Callable[[], Toy]:
    return lambda: Toy(root=str(tmp_path / "data"), batch_size=4, seed=0)


@pytest.fixture
def fit(tmp_path: Path, make_data: Callable[[], Toy]) -> Fit:
    """`fit(callback, ..., run="name", **trainer options)` trains the toy model from one seed in `tmp_path / run`."""

    def train(*callbacks: pl.Callback, run: str = "run", attention: bool = True, resume: str | None = None,
              **options: Any) -> tuple[BenchmarkModule, pl.Trainer]:  # fmt: skip
        pl.seed_everything(0, verbose=False)
        data = make_data()
        module = BenchmarkModule(data.spec, lambda spec: ToyTransformer(spec, attention))
        settings: dict[str, Any] = {
            "max_epochs": 2,
            "logger": KeptLogger(),
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "accelerator": "cpu",
            "default_root_dir": str(tmp_path / run),
        }
        trainer = pl.Trainer(callbacks=list(callbacks), **(settings | options))
        trainer.fit(module, data, ckpt_path=resume)
        return module, trainer

    return train


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., list[dict[str, str]]]:
    """Return a function that reads the rows of a table of a run."""

    def read(name: str, run: str = "run") -> list[dict[str, str]]:
        with (tmp_path / run / "diagnostics" / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    return read
