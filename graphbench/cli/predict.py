"""`graphbench predict`: write predictions to a CSV or Parquet file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import DATA_CHANGED, own_parser, split
from graphbench.cli.same_data import SameData
from graphbench.cli.score import checkpoint_of
from graphbench.errors import BadInput, check_choice

log = logging.getLogger(__name__)
_SPLITS = ("train", "val", "test")
_SUFFIXES = (".csv", ".parquet")


def predict(arguments: Sequence[str]) -> int:
    """Predict a split with a run's best checkpoint.

    Raises:
        BadInput: the split or the file type is not known.
    """
    parser = own_parser(
        "predict",
        run="folder of a finished fit",
        checkpoint="checkpoint to use instead of the best",
        split="train, val or test (default)",
        output="file to write: .csv or .parquet",
        data_changed=DATA_CHANGED,
    )
    request = split(parser, arguments)
    chosen = request.own.split or "test"
    check_choice("--split", chosen, _SPLITS)
    path = checkpoint_of(request)
    default = (request.run.path if request.run else Path()) / f"predictions-{chosen}.csv"
    output = Path(request.own.output) if request.own.output else default
    if output.suffix not in _SUFFIXES:
        raise BadInput(f"--output {output}: the name must end in {' or '.join(_SUFFIXES)}.")
    same = SameData(request.run, request.own.data_changed)
    # One process: predictions of several would have to be gathered, and a split is predicted in seconds.
    cli = GraphbenchCLI([*request.arguments, "--trainer.devices", "1", "--trainer.num_nodes", "1"])
    cli.trainer.callbacks.append(same)  # type: ignore[attr-defined]
    cli.datamodule.predict_split = chosen
    batches = cli.trainer.predict(cli.model, cli.datamodule, ckpt_path=str(path), weights_only=True)
    assert batches is not None
    frame = table(cli, {key: torch.cat([b[key] for b in batches]) for key in batches[0]}, chosen)
    temporary = output.with_name(f".{output.name}.part")
    output.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(temporary, index=False) if output.suffix == ".csv" else frame.to_parquet(temporary, index=False)
    temporary.replace(output)
    log.info("%d predictions: %s", len(frame), output)
    return 0


def table(cli: GraphbenchCLI, columns: dict[str, Tensor], chosen: str) -> pd.DataFrame:
    """One row per graph (or node), in the order of the benchmark.

    Columns: `id`; `node` for node tasks; `prediction...`; `target...` where known.
    """
    spec = cli.model.spec
    predictions, targets = columns["prediction"], columns["target"]
    ids = cli.datamodule.ids(chosen)
    rows = columns["graph"]
    frame = pd.DataFrame({"id": [ids[i] for i in rows.tolist()]})
    if "node" in columns:
        frame["node"] = columns["node"].numpy()
    names = spec.target_names or tuple(str(i) for i in range(predictions.shape[1]))
    single = predictions.shape[1] == 1
    for number in range(predictions.shape[1]):
        frame["prediction" if single else f"prediction_{names[number]}"] = predictions[:, number].numpy()
    for number in range(targets.shape[1]):
        if not (targets.is_floating_point() and bool(targets[:, number].isnan().all())):
            frame["target" if targets.shape[1] == 1 else f"target_{names[number]}"] = targets[:, number].numpy()
    order = torch.argsort(rows, stable=True)
    return frame.iloc[order.numpy()].reset_index(drop=True)
