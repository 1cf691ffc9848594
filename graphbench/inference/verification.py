"""Check a run that someone sent: build it from its configuration as data, and recompute what its results claim.

Nothing in the folder is executed. A configuration may name only registered and listed classes, whatever its reader
trusts elsewhere. Of its `trainer`, only precision, clipping and accumulation are used: no callback, logger or path.
The benchmark that it names reads the graphs again, into the reader's own store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from torch import Tensor

from graphbench.contracts import Benchmark
from graphbench.contracts.table import GRAPH, NODE
from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.inference.loading import build_of
from graphbench.runs import RunFolder
from graphbench.runs.tables import show_number
from graphbench.runs.trust import Policy
from graphbench.training.baselines import scores_of_predictions
from graphbench.training.module import BenchmarkModule
from graphbench.training.quiet import silenced

#: Options of the data that name folders of the machine where the run was trained.
_PLACES = ("root", "store")
#: Options of the trainer that a step depends on.
_OF_STEP = ("precision", "gradient_clip_val", "gradient_clip_algorithm", "accumulate_grad_batches")
#: Largest relative difference of scores that the order of summation and decimals in a CSV file explain, and largest
#: difference near zero, well below the errors of targets in small units.
_ROUNDING, _NEAR_ZERO = 1e-4, 1e-6


@dataclass(frozen=True)
class Check:
    """The outcome of one check: what was found, and whether the run passes it."""

    name: str
    text: str
    holds: bool = True


def verify(run: RunFolder) -> Iterator[Check]:
    """Yield the checks of a run in turn: configuration, parameters, a training step, predictions of each scored split.

    Checks stop if the configuration cannot be built or its data cannot be read, since all others depend on them. The
    folder has `config.yaml`, `results.json`, `predictions-val.csv` and `predictions-test.csv`.
    """
    name = "configuration"
    try:
        config, module, data = build_of(run, Policy.of(run.config, remembered=False), without=_PLACES)
        results = run.read_results()
        yield Check(name, f"{type(module.architecture).__name__} on {module.spec.name}")
        yield _parameters(module, results)
        name = "data"
        data.require(module.required_encodings())
        data.prepare_data()
        data.setup("fit")
        data.setup("test")
    except GraphbenchError as error:
        yield Check(name, str(error), holds=False)
        return
    yield _step(module, data, config.get("trainer") or {})
    for split in ("val", "test"):
        yield _predictions(run, module, data, split, results.get(split) or {})


def _parameters(module: BenchmarkModule, results: Mapping[str, Any]) -> Check:
    count = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    claimed = results.get("parameters")
    text = f"{count:,}" if claimed == count else f"{count:,} are built, but results.json says {claimed}"
    return Check("parameters", text, claimed == count)


def _step(module: BenchmarkModule, data: Benchmark, trainer: Mapping[str, Any]) -> Check:
    """Train and validate one batch on the processor."""
    options = {name: trainer[name] for name in _OF_STEP if trainer.get(name) is not None}
    losses = _Losses()
    try:
        # Their messages concern a training of only one step, such as that the warmup is longer.
        with silenced(("graphbench", "pytorch_lightning")):
            pl.Trainer(
                accelerator="cpu", devices=1, fast_dev_run=1, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, callbacks=[losses], **options,
            ).fit(module, datamodule=data)  # fmt: skip
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return Check("training step", f"{type(error).__name__}: {error}", holds=False)
    text = f"loss {losses.last:.4g}" if losses.last is not None else "no batch was trained on"
    return Check("training step", text, losses.last is not None and math.isfinite(losses.last))


class _Losses(pl.Callback):
    """Keep the last loss of a training."""

    def __init__(self) -> None:
        self.last: float | None = None

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        """Keep the loss of a batch."""
        self.last = float(loss.detach())


def _predictions(
    run: RunFolder, module: BenchmarkModule, data: Benchmark, split: str, claimed: Mapping[str, Any]
) -> Check:
    """Score a file of predictions on targets read again, and compare with what the results claim."""
    name, path = f"{split} predictions", run.predictions(split)
    scores = {
        metric: value
        for key, value in claimed.items()
        if (metric := str(key).partition("/")[2]) != "loss" and "/" not in metric
    }
    if module.spec.metric not in scores:
        return Check(name, f"results.json has no {split}/{module.spec.metric}", holds=False)
    try:
        predictions, targets = _read(path, module, data, split)
        computed, undefined = scores_of_predictions(module.task, predictions, targets)
    except GraphbenchError as error:
        return Check(name, str(error), holds=False)
    wrong = [
        f"{metric} is {computed.get(metric, undefined.get(metric, 'not defined'))}, but results.json says {value}"
        for metric, value in scores.items()
        if not _is_equal(computed.get(metric), value)
    ]
    given = ", ".join(f"{metric} {show_number(computed[metric])}" for metric in scores if metric in computed)
    return Check(name, "; ".join(wrong) or f"{len(predictions):,} rows give {given}", not wrong)


def _is_equal(computed: float | None, claimed: Any) -> bool:
    """Compare scores up to rounding; an undefined score is null in a file.

    Examples:
        >>> _is_equal(0.50001, 0.5), _is_equal(9e-5, 2e-5), _is_equal(None, None)
        (True, False, True)
    """
    if computed is None or not isinstance(claimed, int | float):
        return computed is None and claimed is None
    return math.isclose(computed, claimed, rel_tol=_ROUNDING, abs_tol=_NEAR_ZERO)


def _read(path: Path, module: BenchmarkModule, data: Benchmark, split: str) -> tuple[Tensor, Tensor]:
    """Read predictions `[rows, P]`, and the benchmark's targets `[rows, T]` for them.

    Raises:
        BadInput: there is no such file, its rows are not those of the split, or a prediction is not a number.
        CorruptData: the file is not a table.
    """
    axis = {"graph": GRAPH, "node": NODE}.get(str(module.spec.level))
    table = data.tables[split]
    if axis is None or not module.task.comparable or "y" not in table.columns:
        raise BadInput(f"Predictions of {module.spec.name} are not about graphs or nodes, and cannot be scored.")
    frame = _read_frame(path)
    lengths = table.lengths(axis).numpy()
    ids = np.repeat(np.array([str(one) for one in data.ids(split)], dtype=object), lengths)
    if "id" not in frame or len(frame) != len(ids) or (frame["id"].to_numpy() != ids).any():
        raise BadInput(f"{path.name} has {len(frame):,} rows, not the {len(ids):,} rows of {split} in their order.")
    nodes = np.concatenate([np.arange(length) for length in lengths])
    if axis == NODE and ("node" not in frame or (frame["node"].to_numpy() != nodes).any()):
        raise BadInput(f"{path.name}: its nodes are not those of {split} in their order.")
    try:
        values = frame[_columns_of_predictions(frame, module.spec.kind)].to_numpy(dtype=np.float32)
    except ValueError as error:
        raise BadInput(f"{path.name}: {error}.") from error
    if not values.shape[1] or not np.isfinite(values).all():
        raise BadInput(f"{path.name} lacks predictions: every row needs one.")
    return torch.tensor(values), table.columns["y"].reshape(len(frame), -1)


def _read_frame(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise BadInput(f"{path.name} is missing: `graphbench test --run RUN` writes it.")
    try:
        return pd.read_csv(path, dtype={"id": str})  # names as text: 007 would lose its zeros
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise CorruptData(f"{path} is not a table of predictions: {error}") from error


def _columns_of_predictions(frame: pd.DataFrame, kind: str | None) -> list[str]:
    """List the columns of probabilities, or of predictions; earlier versions wrote both as `prediction_...`."""
    names = list(map(str, frame))
    shares = [name for name in names if name.startswith("probability_")]
    if shares and kind in ("classification", "multilabel"):
        return shares
    return [name for name in names if name == "prediction" or name.startswith("prediction_")]
