"""`graphbench predict`: write predictions of new inputs, or of a split, to a CSV or Parquet file."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import pandas as pd
import torch
from torch import Tensor

from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import OWN, Request, own_parser, split
from graphbench.cli.parsers import CommandParser, file_to_write
from graphbench.cli.same_data import SameData
from graphbench.cli.several_devices import Answer, answered_on, chosen_devices
from graphbench.cli.trained import (
    ONE_PROCESS,
    checkpoint_of,
    on_split,
    predictor_of,
    training_facts,
    written_together,
)
from graphbench.contracts import SPLITS, Benchmark
from graphbench.errors import BadInput, check_choice
from graphbench.prediction.calibration import Temperature
from graphbench.prediction.columns import OUTSIDE, PROBLEM
from graphbench.prediction.ensemble import Ensemble
from graphbench.prediction.intervals import Intervals
from graphbench.prediction.output import STANDARD_OUTPUT, check_output, write_frames
from graphbench.runs import RunFolder
from graphbench.training.module import SPREAD

log = logging.getLogger(__name__)
#: Entries of `results.json` about what is in `predictions-test.csv`.
INTERVALS, TEMPERATURE = "intervals", "temperature"


def predict(arguments: Sequence[str]) -> int:
    """Predict a user's input, or a split, with the best checkpoint of a run, or of several together.

    Raises:
        BadInput: the input, the split or the file type is not known, the benchmark cannot read new inputs, or the runs
            cannot answer together.
    """
    requests = _requests(arguments)
    own = requests[0].own
    if own.input is not None:
        return _predict_input(requests, arguments)
    if own.smiles_column:
        raise BadInput("--smiles-column names a column of --input FILE, which is missing.")
    chosen = own.split or "test"
    check_choice("--split", chosen, SPLITS)
    if len(requests) > 1 or own.interval or own.calibrate:
        return _predict_split_together(requests, chosen)
    return _predict_split(requests[0], chosen)


def _requests(arguments: Sequence[str]) -> list[Request]:
    """The command line once for each run that it names.

    Raises:
        BadInput: a run is named twice, or a checkpoint is named beside several runs.
    """
    parser = CommandParser("predict", add_help=False)
    words, help_text = ("--run", "--run-folder"), OWN["predict"]["run"]
    parser.add_argument(*words, dest="run", nargs="+", action="extend", default=[], help=help_text)
    own, rest = parser.parse_known_args(list(arguments))
    if not own.run:
        return [split(own_parser("predict", **OWN["predict"]), rest)]
    found = [split(own_parser("predict", **OWN["predict"]), ["--run", run, *rest]) for run in own.run]
    places = [request.run.path.resolve() for request in found if request.run is not None]
    for number, (place, name) in enumerate(zip(places, own.run, strict=True)):
        if place in places[:number]:
            raise BadInput(f"--run names {name} twice: a model does not differ from itself.")
    if len(found) > 1 and found[0].own.checkpoint is not None:
        raise BadInput("--checkpoint names a file of one run, and --run several: leave one of both out.")
    return found


# -- new inputs ------------------------------------------------------------------------------------------------------


def _predict_input(requests: Sequence[Request], arguments: Sequence[str]) -> int:
    own = requests[0].own
    output = file_to_write("--output", check_output(own.output, streams=True))
    if own.split is not None:
        raise BadInput("--input and --split exclude each other: name the input or the split.")
    ensemble = _ensemble(requests, opened=bool(own.interval or own.calibrate), remarks=True)
    _learn_from_validation(ensemble, requests[0])
    counts = {"rows": 0, PROBLEM: 0, OUTSIDE: 0}

    def count(frame: pd.DataFrame) -> None:
        counts["rows"] += len(frame)
        for name in (PROBLEM, OUTSIDE):
            counts[name] += int((frame[name] != "").sum()) if name in frame else 0

    devices = chosen_devices(arguments, ensemble.first.device)
    make = partial(_answering, list(arguments), ensemble.temperature, ensemble.intervals)
    with _readable_again(own.input, len(requests)) as source:
        parts = ensemble.read_input(source, own.smiles_column)
        frames = ensemble.predict_parts(parts) if len(devices) == 1 else answered_on(devices, make, parts)
        write_frames(frames, output, count)
    log.info(
        "%s: %d rows, %d without prediction (column %s), %d unlike the training graphs (column %s)",
        "standard output" if output == STANDARD_OUTPUT else output,
        counts["rows"], counts[PROBLEM], PROBLEM, counts[OUTSIDE], OUTSIDE,
    )  # fmt: skip
    return 0


def _answering(
    arguments: list[str], temperature: Temperature | None, intervals: Intervals | None, devices: str
) -> Answer:
    """What the models that a command line names say of parts of an input, on one device."""
    ensemble = Ensemble([predictor_of(request, devices) for request in _requests(arguments)])
    ensemble.temperature, ensemble.intervals = temperature, intervals
    return lambda views: next(ensemble.predict_parts([views]))


def _ensemble(requests: Sequence[Request], opened: bool, remarks: bool) -> Ensemble:
    """The models of the runs.

    Args:
        requests: one for each run.
        opened: open their own data, too.
        remarks: tell what of a row training never saw.
    """
    members = []
    for request in requests:
        member = on_split(request) if opened else predictor_of(request)
        if opened and remarks:
            member.facts = training_facts(request)
        members.append(member)
    return Ensemble(members, [str(one.run.path if one.run else one.own.checkpoint) for one in requests])


def _learn_from_validation(ensemble: Ensemble, request: Request) -> None:
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


@contextlib.contextmanager
def _readable_again(source: str, times: int) -> Iterator[str]:
    """Standard input as a file where several models read it."""
    if source != "-" or times == 1:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="graphbench-") as folder:
        path = Path(folder) / "standard-input.smi"
        with path.open("w", encoding="utf-8", newline="") as file:
            shutil.copyfileobj(sys.stdin, file)
        yield str(path)


# -- splits ----------------------------------------------------------------------------------------------------------


def _predict_split(request: Request, chosen: str) -> int:
    path = checkpoint_of(request)
    output = file_to_write("--output", check_output(request.own.output or str(_default_output(request, chosen))))
    if _is_noted(request.run, output):
        request.run.read_results()  # a torn file must be named before anything is computed
    with written_together(request) as (staged, folder):
        return _predict_split_into(staged, output, request, chosen, path, folder)


def _predict_split_into(
    staged: RunFolder | None, output: Path, request: Request, chosen: str, path: Path, folder: Sequence[str]
) -> int:
    same = SameData(request.run, request.own.data_changed)
    cli = GraphbenchCLI([*_over_run(request, ONE_PROCESS), *folder])
    cli.trainer.callbacks.append(same)  # type: ignore[attr-defined]
    cli.datamodule.predict_split = chosen
    batches = cli.trainer.predict(cli.model, cli.datamodule, ckpt_path=str(path), weights_only=True)
    assert batches is not None
    columns = _gathered({key: torch.cat([b[key] for b in batches]) for key in batches[0]}, cli.trainer.world_size)
    if not cli.trainer.is_global_zero:
        return 0
    frame = table(cli.datamodule, columns, chosen)
    _write_split(frame, output, request.run, staged, None)
    return 0


def _write_split(
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
    own = 0 if request.run is None else 2  # `--config` and its file
    return [*request.arguments[:own], *options, *request.arguments[own:]]


def _gathered(columns: dict[str, Tensor], world_size: int) -> dict[str, Tensor]:
    """The rows of all processes, one process after the other."""
    if world_size == 1:
        return columns
    parts: list[dict[str, Tensor]] = [{}] * world_size
    torch.distributed.all_gather_object(parts, columns)
    return {name: torch.cat([part[name] for part in parts]) for name in columns}


def _predict_split_together(requests: Sequence[Request], chosen: str) -> int:
    """A split with what `_predict_split` does not know: several runs, intervals, a temperature."""
    first = requests[0]
    if len(requests) > 1 and not first.own.output:
        raise BadInput("--output is missing: predictions of several runs have no folder of their own.")
    output = file_to_write("--output", check_output(first.own.output or str(_default_output(first, chosen))))
    ensemble = _ensemble(requests, opened=True, remarks=False)
    ensemble.require_one_split(chosen, f"--split {chosen}")
    _learn_from_validation(ensemble, first)
    frame = pd.concat(list(_split_frames(ensemble, chosen)), ignore_index=True)
    if len(requests) > 1:
        _write_split(frame, output, None, None, ensemble)
        return 0
    with written_together(first) as (staged, _):
        _write_split(frame, output, first.run, staged, ensemble)
    return 0


def _split_frames(ensemble: Ensemble, chosen: str) -> Iterator[pd.DataFrame]:
    """The columns of `table`, then spreads and intervals."""
    data = ensemble.first.data
    for views in ensemble.parts_of(chosen):
        means, spreads, answers = ensemble.answers(views)
        if answers.problems:
            row, why = next(iter(answers.problems.items()))
            raise BadInput(f"--split {chosen}: row {row} of a part has no prediction: {why}.")
        graphs = views[0].table
        assert graphs.graph_ids is not None
        columns = {"graph": graphs.graph_ids.repeat_interleave(torch.from_numpy(answers.counts))}
        if ensemble.first.nodes:
            columns["node"] = torch.cat([torch.arange(count) for count in answers.counts.tolist()])
        predicted = torch.from_numpy(means[:, : ensemble.first.predicted])
        columns |= {"prediction": predicted, "target": graphs.columns["y"].reshape(len(means), -1)}
        further = ensemble.first.spread_columns(means) | ensemble.further_columns(means, spreads)
        yield pd.concat([table(data, columns, chosen), pd.DataFrame(further)], axis=1)


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
    """One row per graph (or node, or pair of nodes), in the order of the benchmark.

    Columns: `id`; `smiles` of molecules, for the report's drawings; `node` for node tasks, `head` and `tail` for pairs;
    `prediction...`; `target...` where known; what the loss learned beside predictions, as `TARGET_std`.
    """
    spec = data.spec
    predictions, targets = columns["prediction"], columns["target"]
    ids = data.ids(chosen)
    rows = columns["graph"]
    frame = pd.DataFrame({"id": [ids[i] for i in rows.tolist()]})
    if (smiles := _smiles(data, chosen)) is not None:
        frame["smiles"] = [smiles[i] for i in rows.tolist()]
    for name in ("node", "head", "tail"):
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
                spec.level == "node" and spec.kind == "classification" and bool((values < 0).any())
            ):  # empty where there is no label
                column = column.astype("Int64").mask(column < 0)
            frame["target" if targets.shape[1] == 1 else f"target_{names[number]}"] = column
    for key in (key for key in columns if key.startswith(SPREAD)):
        for number, label in enumerate(data.target_labels()):
            frame[f"{label}_{key.removeprefix(SPREAD)}"] = columns[key][:, number].numpy()
    order = torch.argsort(rows, stable=True)
    return frame.iloc[order.numpy()].reset_index(drop=True)


def _smiles(data: Benchmark, chosen: str) -> list[str] | None:
    """SMILES of the molecules of a split; None where the benchmark has none."""
    if data.spec.level != "graph" or not hasattr(data, "smiles"):
        return None
    try:
        found: list[str] = data.smiles(chosen)
    except BadInput:  # molecules whose source gives structures alone
        return None
    return found
