"""A training takes the same steps whether it is interrupted or not, watched or not, with any number of workers."""

from __future__ import annotations

import copy
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import (
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    ModelPruning,
    StochasticWeightAveraging,
)
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import SIGTERMException
from tiny_fits import TinyData, drawing, made

from graphbench import BenchmarkModule, registry
from graphbench.callbacks import (
    AttentionCapacity,
    AttentionMaps,
    BatchNormMomentum,
    ExactResume,
    GradientFlow,
    InfluenceRange,
    LastCheckpoint,
    RankProgression,
    TrainTestGap,
)
from graphbench.cli.ranks import Signals
from graphbench.training.lightning_internals import replace_signal_handling
from graphbench.training.optim import Schedule


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the signal handlers: a process that has agreed to stop ignores signals until it ends."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


class Kept(Logger):
    """Keeps what is logged, except times."""

    name = version = "kept"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, {name: float(value) for name, value in metrics.items()}))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


@dataclass
class Trained:
    """The state at the end of a fit, and what the fit logged."""

    weights: dict[str, Any]
    moments: dict[int, dict[str, Any]]
    rows: list[tuple[int | None, dict[str, float]]]


@dataclass
class Case:
    """A model and how it is trained.

    Args:
        name: of the architecture.
        options: of the architecture.
        module: options of the module.
        callbacks: makes new ones for each fit.
        trainer: options of the trainer.
    """

    name: str
    options: dict[str, Any]
    module: dict[str, Any] = field(default_factory=dict)
    callbacks: Any = list
    trainer: dict[str, Any] = field(default_factory=dict)


class StopAt(pl.Callback):
    """Asks a training to stop at a step, as `graphbench fit` does when it receives a signal."""

    def __init__(self, step: int) -> None:
        self.step = step

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self.signals = Signals(trainer)
        replace_signal_handling(trainer, self.signals)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            self.signals.agreed = signal.SIGTERM


def fit(case: Case, folder: Path, resume: Path | None = None, seed: int = 5, more: Any = (), **options: Any) -> Trained:
    """Train for two epochs of three steps, or resume from a checkpoint."""
    spec, make = made(case.name, case.options)
    pl.seed_everything(seed, verbose=False)
    workers = options.pop("num_workers", 0)
    data = TinyData(spec, (6, 4, 4), root=str(folder.parent / "data"), batch_size=2, seed=3, num_workers=workers)
    module = BenchmarkModule(spec, make, **case.module)
    data.require(module.required_encodings())
    logger = Kept()
    own = {"max_epochs": 2} | case.trainer | options
    trainer = pl.Trainer(
        callbacks=[*case.callbacks(), *more, ExactResume(), LastCheckpoint()], logger=logger, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=True, num_sanity_val_steps=0,
        log_every_n_steps=1, default_root_dir=str(folder), **own,
    )  # fmt: skip
    try:
        trainer.fit(module, data, ckpt_path=resume, weights_only=True if resume else None)
    except SIGTERMException:
        assert more
    weights = copy.deepcopy(dict(module.state_dict()))
    return Trained(weights, trainer.optimizers[0].state_dict()["state"], logger.rows)


def same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other  # further states of layers


def assert_same(one: Trained, other: Trained, rows: bool = True) -> None:
    assert one.weights.keys() == other.weights.keys()
    assert [name for name, value in one.weights.items() if not same(value, other.weights[name])] == []
    assert one.moments.keys() == other.moments.keys()
    for number, state in one.moments.items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.moments[number][name])), name
    if rows:
        assert repr(one.rows) == repr(other.rows)  # as text, where NaN equals NaN


def cut(case: Case, folder: Path, step: int) -> Trained:
    """Stop at a step and resume as another process would: with other initial weights and random numbers."""
    first = fit(case, folder, more=[StopAt(step)])
    rest = fit(case, folder, resume=folder / "checkpoints" / "last.ckpt", seed=9)
    return Trained(rest.weights, rest.moments, first.rows + rest.rows)


GIN = partial(Case, "GIN", {"hidden_dim": 8, "num_layers": 2, "dropout": 0.2})
WITHIN = {
    "plain": GIN(module={"schedule": Schedule("cosine", warmup=2)}),
    "frozen for an epoch": GIN({"freeze": "architecture.layers.0", "freeze_epochs": 1}),
    "momentum by epoch": GIN(callbacks=lambda: [BatchNormMomentum(0.5, gamma=0.5)]),
    "accumulation by epoch": GIN(callbacks=lambda: [GradientAccumulationScheduler({0: 1, 1: 2})]),
    "accumulation": GIN(trainer={"accumulate_grad_batches": 2}),
    "stochastic averages": GIN(
        callbacks=lambda: [StochasticWeightAveraging(0.01, swa_epoch_start=1)], trainer={"max_epochs": 3}
    ),
    "averages": GIN(callbacks=lambda: [EMAWeightAveraging(decay=0.9)]),
    "validation within": GIN(trainer={"val_check_interval": 2}),
}
#: Steps after the second batch of the second epoch.
STEPS = {"accumulation": 3, "accumulation by epoch": 4}


#: Also covered by other tests.
SLOW = {"plain", "accumulation", "averages"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in WITHIN]
)
def test_a_run_that_goes_on_within_an_epoch_takes_the_steps_of_one_that_nobody_stopped(tmp_path, name):
    """Lightning does not call the hooks of an epoch's start there."""
    whole = fit(WITHIN[name], tmp_path / "whole")
    assert_same(whole, cut(WITHIN[name], tmp_path / "cut", STEPS.get(name, 5)))


def test_a_run_that_cannot_take_the_same_steps_says_so(tmp_path):
    case = GIN(callbacks=lambda: [ModelPruning("l1_unstructured", amount=0.5)])
    with pytest.warns(UserWarning, match="ModelPruning: Lightning's checkpoints hold pruned weights without their"):
        cut(case, tmp_path / "cut", 5)


def looks() -> list[pl.Callback]:
    return [
        AttentionCapacity(num_graphs=3, every_n_epochs=1),
        RankProgression(num_graphs=3, every_n_epochs=1),
        InfluenceRange(num_graphs=3, every_n_epochs=1),
        GradientFlow(num_graphs=3, every_n_epochs=1),
        TrainTestGap(num_graphs=5),
        AttentionMaps(num_graphs=1, every_n_epochs=1),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(registry.architectures()))
def test_every_architecture_takes_the_same_steps(tmp_path, name):
    """Whatever it draws: dropout, samples, noise, walks, signs. Other runs build models in the same process."""
    case = Case(name, drawing(name))
    whole = fit(case, tmp_path / "whole")
    assert_same(whole, fit(case, tmp_path / "workers", num_workers=2))
    assert_same(whole, fit(case, tmp_path / "watched", more=looks(), val_check_interval=2), rows=False)
    assert_same(whole, cut(case, tmp_path / "within", 5))
    assert_same(whole, cut(case, tmp_path / "between", 3))
