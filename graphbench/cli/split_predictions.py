"""Predictions of a split, by the model of a run or by several together, as one table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request
from graphbench.cli.parsers import file_to_write
from graphbench.cli.same_data import SameData
from graphbench.cli.trained import ONE_PROCESS, checkpoint_of, written_together
from graphbench.contracts import Benchmark
from graphbench.contracts.table import ENDS
from graphbench.errors import BadInput
from graphbench.inference import Predictor
from graphbench.inference.ensemble import Ensemble
from graphbench.inference.loading import load_weights
from graphbench.inference.output import check_output, write_frames
from graphbench.runs import RunFolder
from graphbench.training.module import OUTPUT, SPREAD

log = logging.getLogger(__name__)
#: Entries of `results.json` about what is in `predictions-test.csv`.
INTERVALS, TEMPERATURE = "intervals", "temperature"


def predict_split(requests: Sequence[Request], chosen: str) -> int:
    """Predict a split with the model of a run, or with those of several runs together, and write the table.

    Args:
        requests: one for each run.
        chosen: train, val or test.

    Raises:
        BadInput: several runs and no file to write are named, or the models cannot answer together.
    """
    first = requests[0]
    if len(requests) > 1 and not first.own.output:
        raise BadInput("--output is missing: predictions of several runs have no folder of their own.")
    run = first.run if len(requests) == 1 else None
    output = file_to_write("--output", check_output(first.own.output or str(_default_output(first, chosen))))
    if _is_noted(run, output):
        run.read_results()  # a torn file must be named before anything is computed
    together = len(requests) > 1 or bool(first.own.interval or first.own.calibrate)
    with written_together(None if run is None else first) as (staged, folder):
        members = [_member(request, chosen, folder, one_process=together) for request in requests]
        ensemble = _ensemble(members, requests, chosen) if together else None
        found = [member.predict(outputs=ensemble is not None and ensemble.quantity == "output") for member in members]
        if members[0].cli.trainer.is_global_zero:
            data = members[0].cli.datamodule
            frame = table(data, found[0], chosen) if ensemble is None else _combined(data, found, ensemble, chosen)
            _write(frame, output, run, staged, ensemble)
    return 0


def names_of(requests: Sequence[Request]) -> list[str]:
    """What messages call the models of some runs."""
    return [str(one.run.path if one.run else one.own.checkpoint) for one in requests]


@dataclass
class _Member:
    """A run with what predicts a split of its data."""

    cli: GraphbenchCLI
    checkpoint: Path
    same: SameData

    def predict(self, outputs: bool) -> dict[str, Tensor]:
        """Return columns of the split, of all processes, graph after graph and node after node.

        Args:
            outputs: what the head puts out is one of them.
        """
        cli = self.cli
        cli.model.predicts_outputs = outputs
        batches = cli.trainer.predict(cli.model, cli.datamodule, ckpt_path=str(self.checkpoint), weights_only=True)
        assert batches is not None
        columns = _gathered({key: torch.cat([b[key] for b in batches]) for key in batches[0]}, cli.trainer.world_size)
        keys = [columns["node"].numpy()] if "node" in columns else []
        order = torch.from_numpy(np.lexsort([*keys, columns["graph"].numpy()]))  # stable
        return {name: values[order] for name, values in columns.items()}

    def predictor(self) -> Predictor:
        """Return the model with its data open, which are known to be those that it was trained on."""
        data = self.cli.datamodule
        load_weights(self.cli.model, self.checkpoint)
        data.prepare_data()
        data.setup("predict")
        self.same.compare(data.fingerprint())
        return Predictor(self.cli.model, data, None, self.cli.trainer)


def _member(request: Request, chosen: str, folder: Sequence[str], one_process: bool) -> _Member:
    """Build what a run names; its own devices are for training, and those that were typed count unless one must do."""
    path = checkpoint_of(request)
    same = SameData(request.run, request.own.data_changed)
    forced = [*ONE_PROCESS, "--trainer.strategy", "auto"] if one_process else []
    cli = GraphbenchCLI([*_over_run(request, ONE_PROCESS), *forced, *folder])
    cli.trainer.callbacks.append(same)  # type: ignore[attr-defined]
    cli.datamodule.predict_split = chosen
    return _Member(cli, path, same)


def _ensemble(members: Sequence[_Member], requests: Sequence[Request], chosen: str) -> Ensemble:
    """The models together, once they are known to have one split, and what the validation split teaches them."""
    ensemble = Ensemble([member.predictor() for member in members], names_of(requests))
    ensemble.require_one_split(chosen, f"--split {chosen}")
    learn_from_validation(ensemble, requests[0])
    return ensemble


def _combined(data: Benchmark, found: Sequence[dict[str, Tensor]], ensemble: Ensemble, chosen: str) -> pd.DataFrame:
    """The table of what several models say of a split, then spreads between them and intervals."""
    for columns in found[1:]:
        if not torch.equal(columns["graph"], found[0]["graph"]):
            raise BadInput("The models of this ensemble make graphs of different sizes from the same row.")
    names = [name for name in found[0] if name.startswith(SPREAD)]
    means, spreads = ensemble.combine(np.stack([_answers(columns, names) for columns in found]))
    width = ensemble.first.predicted
    learned = means[:, width:].reshape(len(means), -1, max(len(names), 1))
    columns = found[0] | {"prediction": torch.from_numpy(means[:, :width])}
    columns |= {name: torch.from_numpy(learned[..., number]) for number, name in enumerate(names)}
    further = pd.DataFrame(ensemble.further_columns(means, spreads))
    return pd.concat([table(data, columns, chosen), further], axis=1)


def _answers(columns: dict[str, Tensor], names: Sequence[str]) -> np.ndarray:
    """What one model says, as `Ensemble.combine` takes it: logits, or predictions and spreads target after target."""
    values = columns.get(OUTPUT)
    if values is None:
        spreads = [columns[name] for name in names]
        parts = [columns["prediction"], *([torch.stack(spreads, 2).flatten(1)] if spreads else [])]
        values = torch.cat(parts, 1)
    return (values if values.dtype == torch.float64 else values.float()).numpy()


def learn_from_validation(ensemble: Ensemble, request: Request) -> None:
    """Intervals and a temperature where they are asked for; says what they rest on."""
    if request.own.calibrate:
        found = ensemble.calibrate()
        log.info(
            "Temperature %.4g, of %d validation rows: their loss went from %.4g to %.4g, ECE from %.4g to %.4g",
            found.value, found.rows, *found.loss, *found.error,
        )  # fmt: skip
        if found.caution:
            log.warning("--calibrate: do not rely on this temperature: %s.", found.caution)
    if request.own.interval:
        intervals = ensemble.add_intervals(request.own.interval)
        for name, width, rows in zip(intervals.names, intervals.half_widths, intervals.rows, strict=True):
            log.info(
                "Interval of %s: prediction -/+ %.4g, with a stated coverage of %g from %d validation rows",
                name, width, float(intervals.coverage), rows,
            )  # fmt: skip


def _write(
    frame: pd.DataFrame, output: Path, run: RunFolder | None, staged: RunFolder | None, ensemble: Ensemble | None
) -> None:
    """Write predictions; what lies in the run, and its note in the results, appear together."""
    file = output
    if run is not None and staged is not None and output.resolve().is_relative_to(run.path.resolve()):
        file = staged.path / output.resolve().relative_to(run.path.resolve())
    write_frames([frame], file, lambda written: log.info("%d predictions: %s", len(written), output))
    _note(run, staged, output, ensemble)


def _over_run(request: Request, options: Sequence[str]) -> list[str]:
    """The command line with options that go over those of the run, and under those that were given with the command."""
    own = len(request.stored)
    return [*request.arguments[:own], *options, *request.arguments[own:]]


def _gathered(columns: dict[str, Tensor], world_size: int) -> dict[str, Tensor]:
    """The rows of all processes, one process after the other."""
    if world_size == 1:
        return columns
    parts: list[dict[str, Tensor]] = [{}] * world_size
    torch.distributed.all_gather_object(parts, columns)
    return {name: torch.cat([part[name] for part in parts]) for name in columns}


def _default_output(request: Request, chosen: str) -> Path:
    return (request.run or RunFolder(Path())).predictions(chosen)


def _is_noted(run: RunFolder | None, output: Path) -> TypeGuard[RunFolder]:
    """Whether the run's results say how a file was made."""
    return run is not None and output.resolve() == run.predictions("test").resolve()


def _note(run: RunFolder | None, staged: RunFolder | None, output: Path, ensemble: Ensemble | None) -> None:
    """Say in the run's results how its predictions of the test split were made, for the report."""
    if not _is_noted(run, output) or staged is None:
        return
    told: dict[str, Any] = {}
    if ensemble is not None and (found := ensemble.intervals) is not None:
        told[INTERVALS] = {
            "coverage": float(found.coverage),
            "half_widths": dict(zip(found.names, found.half_widths, strict=True)),
            "rows": dict(zip(found.names, found.rows, strict=True)),
        }
    if ensemble is not None and ensemble.temperature is not None:
        told[TEMPERATURE] = ensemble.temperature.value
    before = run.read_results()
    if told or {INTERVALS, TEMPERATURE} & before.keys():
        staged.write_results(
            {key: value for key, value in before.items() if key not in (INTERVALS, TEMPERATURE)} | told
        )


def table(data: Benchmark, columns: dict[str, Tensor], chosen: str) -> pd.DataFrame:
    """One row per graph (or node, or edge, or pair of nodes), in the order of the columns.

    Columns: `id`; `smiles` of molecules, for the report's drawings; `node` for node tasks, `source` and `destination`
    for edge tasks, `head` and `tail` for pairs; `prediction...`; `target...` where known; what the loss learned beside
    predictions, as `TARGET_std`.
    """
    spec = data.spec
    predictions, targets = columns["prediction"], columns["target"]
    ids = data.ids(chosen)
    rows = columns["graph"]
    frame = pd.DataFrame({"id": [ids[i] for i in rows.tolist()]})
    if (smiles := _smiles(data, chosen)) is not None:
        frame["smiles"] = [smiles[i] for i in rows.tolist()]
    for name in ("node", *ENDS, "head", "tail"):
        if name in columns:
            frame[name] = columns[name].numpy()
    names = spec.target_names or tuple(str(i) for i in range(predictions.shape[1]))
    single = predictions.shape[1] == 1
    for number in range(predictions.shape[1]):
        frame["prediction" if single else f"prediction_{names[number]}"] = predictions[:, number].numpy()
    for number in range(targets.shape[1]):
        values = targets[:, number]
        if not (values.is_floating_point() and bool(values.isnan().all())):
            column = pd.Series(values.numpy())
            if (
                spec.level != "graph" and spec.kind == "classification" and bool((values < 0).any())
            ):  # empty where there is no label
                column = column.astype("Int64").mask(column < 0)
            frame["target" if targets.shape[1] == 1 else f"target_{names[number]}"] = column
    for key in (key for key in columns if key.startswith(SPREAD)):
        for number, label in enumerate(data.target_labels()):
            frame[f"{label}_{key.removeprefix(SPREAD)}"] = columns[key][:, number].numpy()
    return frame


def _smiles(data: Benchmark, chosen: str) -> list[str] | None:
    """SMILES of the molecules of a split; None where the benchmark has none."""
    if data.spec.level != "graph" or not hasattr(data, "smiles"):
        return None
    try:
        found: list[str] = data.smiles(chosen)
    except BadInput:  # molecules whose source gives structures alone
        return None
    return found
