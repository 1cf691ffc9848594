"""`graphbench predict`: write predictions of new inputs, or of a split, to a CSV or Parquet file."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from graphbench.cli.options import OWN, Request, own_parser, split
from graphbench.cli.parsers import CommandParser, file_to_write
from graphbench.cli.split_predictions import learn_from_validation, names_of, predict_split
from graphbench.cli.trained import Answer, answered_on, chosen_devices, on_split, predictor_of, training_facts
from graphbench.contracts import SPLITS, InputPart
from graphbench.errors import BadInput, check_choice
from graphbench.inference.calibration import Temperature
from graphbench.inference.columns import OUTSIDE, PROBLEM, own_name
from graphbench.inference.ensemble import Ensemble
from graphbench.inference.intervals import Intervals
from graphbench.inference.output import STANDARD_OUTPUT, check_output, write_frames
from graphbench.inference.predictor import Level, parts_of_split

log = logging.getLogger(__name__)


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
    return predict_split(requests, chosen)


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
    ensemble = _ensemble(requests)
    learn_from_validation(ensemble, requests[0])
    counts, called = {"rows": 0, PROBLEM: 0, OUTSIDE: 0}, {PROBLEM: PROBLEM, OUTSIDE: OUTSIDE}

    def count(frame: pd.DataFrame) -> None:
        counts["rows"] += len(frame)
        for name in (PROBLEM, OUTSIDE):
            if (own_column := own_name(frame, name)) is not None:
                counts[name] += int((frame[own_column] != "").sum())
                called[name] = own_column

    devices = chosen_devices(arguments, ensemble.first.device)
    make = partial(_answering, list(arguments), ensemble.temperature, ensemble.intervals)
    with _readable_again(own.input, len(requests)) as source:
        parts = ensemble.read_input(source, own.smiles_column)
        frames = ensemble.predict_parts(parts) if len(devices) == 1 else answered_on(devices, make, parts)
        write_frames(frames, output, count)
    log.info(
        "%s: %d rows, %d without prediction (column %s), %d unlike the training graphs (column %s)",
        "standard output" if output == STANDARD_OUTPUT else output,
        counts["rows"], counts[PROBLEM], called[PROBLEM], counts[OUTSIDE], called[OUTSIDE],
    )  # fmt: skip
    return 0


def _answering(
    arguments: list[str], temperature: Temperature | None, intervals: Intervals | None, devices: str
) -> Answer:
    """What the models that a command line names say of parts of an input, on one device."""
    ensemble = Ensemble([predictor_of(request, devices) for request in _requests(arguments)])
    ensemble.temperature, ensemble.intervals = temperature, intervals
    return lambda views: next(ensemble.predict_parts([views]))


def _ensemble(requests: Sequence[Request]) -> Ensemble:
    """The models of the runs; their own data are open where the validation split is asked for."""
    members = []
    for request in requests:
        opened = bool(request.own.interval or request.own.calibrate)
        member = on_split(request) if opened else predictor_of(request)
        if opened:
            member.facts = training_facts(request)
        members.append(member)
    return Ensemble(members, names_of(requests))


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


_LEVELS = ("graph", "node")


def embed(arguments: Sequence[str]) -> int:
    """Write representations of a user's input, or of a split, by a run's best checkpoint.

    Raises:
        BadInput: an option is not known or missing, or the benchmark cannot read new inputs.
    """
    request = _embed_request(arguments)
    level: Level = request.own.level or "graph"
    check_choice("--level", level, _LEVELS)
    output = file_to_write("--output", check_output(request.own.output))
    chosen: str | None = None
    if request.own.input is not None:
        predictor = predictor_of(request)
        parts = predictor.data.read_input(request.own.input, request.own.smiles_column)
    elif request.own.smiles_column:
        raise BadInput("--smiles-column names a column of --input FILE, which is missing.")
    else:
        chosen = request.own.split or "test"
        check_choice("--split", chosen, SPLITS)
        predictor = on_split(request)
        parts = parts_of_split(predictor.data, chosen)
    devices = chosen_devices(arguments, predictor.device)
    if len(devices) == 1:
        frames = predictor.embed_parts(parts, level)
    else:
        make = partial(_embedding_on, list(arguments), level, chosen is not None)
        frames = answered_on(devices, make, map(_by_itself, parts))
    write_frames(frames, output, lambda frame: None)
    log.info("Representations of each %s: %s", level, output)
    return 0


def _embed_request(arguments: Sequence[str]) -> Request:
    return split(own_parser("embed", **OWN["embed"]), arguments)


def _embedding_on(arguments: list[str], level: Level, of_split: bool, devices: str) -> Answer:
    """What the model of a command line makes of a part, on one device.

    Args:
        arguments: of the command.
        level: see `embed`.
        of_split: parts are of the run's own data, with which nothing is compared; the data stay closed in any case.
        devices: what `--trainer.devices` gets.
    """
    request = _embed_request(arguments)
    request.own.split = None
    predictor = predictor_of(request, devices)
    predictor.facts = None if of_split else predictor.facts
    return lambda part: next(predictor.embed_parts([part], level))


def _by_itself(part: InputPart) -> InputPart:
    """A part whose tensors are no views of a whole split, which would travel with them."""
    return replace(part, table=part.table.select(torch.arange(len(part.table))))
