"""`graphbench predict`: write predictions of new inputs, or of a split, to a CSV or Parquet file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import OWN, Request, own_parser, split
from graphbench.cli.same_data import SameData
from graphbench.cli.score import checkpoint_of
from graphbench.errors import BadInput, check_choice
from graphbench.prediction import Predictor, TrainingFacts
from graphbench.prediction.columns import OUTSIDE, PROBLEM
from graphbench.prediction.loading import load_weights
from graphbench.prediction.output import check_output, write_frames

log = logging.getLogger(__name__)
_SPLITS = ("train", "val", "test")
#: One process: answers of several would have to be gathered.
ONE_PROCESS = ["--trainer.devices", "1", "--trainer.num_nodes", "1"]


def predict(arguments: Sequence[str]) -> int:
    """Predict a user's input, or a split, with a run's best checkpoint.

    Raises:
        BadInput: the input, the split or the file type is not known, or the benchmark cannot read new inputs.
    """
    request = split(own_parser("predict", **OWN["predict"]), arguments)
    if request.own.input is not None:
        return _predict_input(request)
    if request.own.smiles_column:
        raise BadInput("--smiles-column names a column of --input FILE, which is missing.")
    return _predict_split(request)


def predictor_of(request: Request) -> Predictor:
    """A run's model, for inputs that its benchmark reads; its own data stay closed.

    Raises:
        BadInput: the command line names both an input and a split, or no checkpoint.
    """
    if request.own.split is not None:
        raise BadInput("--input and --split exclude each other: name the input or the split.")
    path = checkpoint_of(request)
    cli = GraphbenchCLI([*request.arguments, *ONE_PROCESS, "--trainer.strategy", "auto"])
    load_weights(cli.model, path)
    facts = TrainingFacts.read(request.run) if request.run is not None else None
    if facts is None:
        place = request.run.path if request.run is not None else path
        log.warning("%s does not say what it was trained on, so no row can be marked as %s.", place, OUTSIDE)
    return Predictor(cli.model, cli.datamodule, facts, cli.trainer)


def _predict_input(request: Request) -> int:
    output = check_output(request.own.output)
    predictor = predictor_of(request)
    parts = predictor.data.read_input(request.own.input, request.own.smiles_column)
    counts = {"rows": 0, PROBLEM: 0, OUTSIDE: 0}

    def count(frame: pd.DataFrame) -> None:
        counts["rows"] += len(frame)
        for name in (PROBLEM, OUTSIDE):
            counts[name] += int((frame[name] != "").sum()) if name in frame else 0

    write_frames(predictor.predict_parts(parts), output, count)
    log.info(
        "%s: %d rows, %d without prediction (column %s), %d unlike the training graphs (column %s)",
        output, counts["rows"], counts[PROBLEM], PROBLEM, counts[OUTSIDE], OUTSIDE,
    )  # fmt: skip
    return 0


def _predict_split(request: Request) -> int:
    chosen = request.own.split or "test"
    check_choice("--split", chosen, _SPLITS)
    path = checkpoint_of(request)
    default = (request.run.path if request.run else Path()) / f"predictions-{chosen}.csv"
    output = check_output(request.own.output or str(default))
    same = SameData(request.run, request.own.data_changed)
    folder = ["--trainer.default_root_dir", str(request.run.path)] if request.run is not None else []
    cli = GraphbenchCLI([*request.arguments, *ONE_PROCESS, *folder])
    cli.trainer.callbacks.append(same)  # type: ignore[attr-defined]
    cli.datamodule.predict_split = chosen
    batches = cli.trainer.predict(cli.model, cli.datamodule, ckpt_path=str(path), weights_only=True)
    assert batches is not None
    frame = table(cli, {key: torch.cat([b[key] for b in batches]) for key in batches[0]}, chosen)
    write_frames([frame], output, lambda written: log.info("%d predictions: %s", len(written), output))
    return 0


def table(cli: GraphbenchCLI, columns: dict[str, Tensor], chosen: str) -> pd.DataFrame:
    """One row per graph (or node, or pair of nodes), in the order of the benchmark.

    Columns: `id`; `node` for node tasks, `head` and `tail` for pairs; `prediction...`; `target...` where known.
    """
    spec = cli.model.spec
    predictions, targets = columns["prediction"], columns["target"]
    ids = cli.datamodule.ids(chosen)
    rows = columns["graph"]
    frame = pd.DataFrame({"id": [ids[i] for i in rows.tolist()]})
    for name in ("node", "head", "tail"):
        if name in columns:
            frame[name] = columns[name].numpy()
    names = spec.target_names or tuple(str(i) for i in range(predictions.shape[1]))
    single = predictions.shape[1] == 1
    for number in range(predictions.shape[1]):
        frame["prediction" if single else f"prediction_{names[number]}"] = predictions[:, number].numpy()
    for number in range(targets.shape[1]):
        if not (targets.is_floating_point() and bool(targets[:, number].isnan().all())):
            frame["target" if targets.shape[1] == 1 else f"target_{names[number]}"] = targets[:, number].numpy()
    order = torch.argsort(rows, stable=True)
    return frame.iloc[order.numpy()].reset_index(drop=True)
