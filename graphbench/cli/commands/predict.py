"""`graphbench predict` and `graphbench embed`: write predictions, or representations, of new inputs or of a split."""

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
from graphbench.cli.trained import (
    Answer,
    answered_on,
    chosen_devices,
    chosen_split,
    on_split,
    predictor_of,
    training_facts,
)
from graphbench.contracts import InputPart
from graphbench.errors import BadInput, check_choice
from graphbench.inference.calibration import Temperature
from graphbench.inference.class_sets import ClassSets
from graphbench.inference.columns import OUTSIDE, PROBLEM, own_name
from graphbench.inference.distance_bins import DistanceBins
from graphbench.inference.ensemble import Ensemble
from graphbench.inference.intervals import Intervals
from graphbench.inference.output import STANDARD_OUTPUT, check_output, write_frames
from graphbench.inference.predictor import Level, parts_of_split

log = logging.getLogger(__name__)


def predict(arguments: Sequence[str]) -> int:
    """Predict a user's input, or a split, with the best checkpoint of a run, or of several together.

    Raises:
        BadInput: the input, split or file type is unknown, the benchmark cannot read new inputs, or the runs cannot
            answer together.
    """
    requests = _requests(arguments)
    options = requests[0].options
    if options.input is not None:
        return _predict_input(requests, arguments)
    return predict_split(requests, chosen_split(options))


def _requests(arguments: Sequence[str]) -> list[Request]:
    """Return the command line once for each run that it names.

    Raises:
        BadInput: a run is named twice, or a checkpoint is named beside several runs.
    """
    parser = CommandParser("predict", add_help=False)
    help_text = OWN["predict"]["run"]
    parser.add_argument("--run", "--run-folder", dest="run", nargs="+", action="extend", default=[], help=help_text)
    options, rest = parser.parse_known_args(list(arguments))
    if not options.run:
        return [split(own_parser("predict"), rest)]
    requests = [split(own_parser("predict"), ["--run", run, *rest]) for run in options.run]
    places = [request.run.path.resolve() for request in requests if request.run is not None]
    for number, (place, name) in enumerate(zip(places, options.run, strict=True)):
        if place in places[:number]:
            raise BadInput(f"--run names {name} twice: a model does not differ from itself.")
    if len(requests) > 1 and requests[0].options.checkpoint is not None:
        raise BadInput("--checkpoint names a file of one run, and --run several: leave one of them out.")
    return requests


def _predict_input(requests: Sequence[Request], arguments: Sequence[str]) -> int:
    options = requests[0].options
    output = file_to_write("--output", check_output(options.output, streams=True))
    if options.split is not None:
        raise BadInput("--input and --split exclude each other: name the input or the split.")
    ensemble = _ensemble(requests)
    learn_from_validation(ensemble, requests[0])
    counts, columns = {"rows": 0, PROBLEM: 0, OUTSIDE: 0}, {PROBLEM: PROBLEM, OUTSIDE: OUTSIDE}

    def count(frame: pd.DataFrame) -> None:
        counts["rows"] += len(frame)
        for name in (PROBLEM, OUTSIDE):
            if (column := own_name(frame, name)) is not None:
                counts[name] += int((frame[column] != "").sum())
                columns[name] = column

    devices = chosen_devices(arguments, ensemble.first.device)
    intervals = ensemble.intervals
    if isinstance(intervals, DistanceBins):
        if len(devices) > 1:
            raise BadInput(
                "--interval-by distance compares with the training split in one process: --trainer.devices 1."
            )
        intervals = None
    make = partial(_predicting, list(arguments), ensemble.temperature, intervals)
    with _rereadable(options.input, len(requests)) as source:
        parts = ensemble.read_input(source, options.smiles_column)
        one = len(devices) == 1
        frames = ensemble.predict_parts(parts, options.smiles_column) if one else answered_on(devices, make, parts)
        write_frames(frames, output, count)
    log.info(
        "%s: %d rows, %d without prediction (column %s), %d unlike the training graphs (column %s)",
        "standard output" if output == STANDARD_OUTPUT else output,
        counts["rows"], counts[PROBLEM], columns[PROBLEM], counts[OUTSIDE], columns[OUTSIDE],
    )  # fmt: skip
    return 0


def _predicting(
    arguments: list[str], temperature: Temperature | None, intervals: Intervals | ClassSets | None, devices: str
) -> Answer:
    """Load the models of a command line on one device, to predict parts of an input."""
    ensemble = Ensemble([predictor_of(request, devices) for request in _requests(arguments)])
    ensemble.temperature, ensemble.intervals = temperature, intervals
    return lambda views: next(ensemble.predict_parts([views]))


def _ensemble(requests: Sequence[Request]) -> Ensemble:
    """Load the models of the runs, with their own data open if the validation split is needed."""
    members = []
    for request in requests:
        if request.options.interval or request.options.calibrate:
            member = on_split(request)
            member.facts = training_facts(request)
        else:
            member = predictor_of(request)
        members.append(member)
    return Ensemble(members, names_of(requests))


@contextlib.contextmanager
def _rereadable(source: str, times: int) -> Iterator[str]:
    """Copy standard input to a file if several models read it."""
    if source != "-" or times == 1:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="graphbench-") as folder:
        path = Path(folder) / "standard-input.smi"
        with path.open("w", encoding="utf-8", newline="") as file:
            shutil.copyfileobj(sys.stdin, file)
        yield str(path)


# -- representations ---------------------------------------------------------------------------------------------------


def embed(arguments: Sequence[str]) -> int:
    """Write representations of graphs or nodes, of a user's input or a split, by a run's best checkpoint.

    Raises:
        BadInput: an option is unknown or missing, or the benchmark cannot read new inputs.
    """
    request = split(own_parser("embed"), arguments)
    options = request.options
    level: Level = options.level or "graph"
    check_choice("--level", level, ("graph", "node"))
    output = file_to_write("--output", check_output(options.output))
    of_split = options.input is None
    if of_split:
        chosen = chosen_split(options)
        predictor = on_split(request)
        parts = parts_of_split(predictor.data, chosen)
    else:
        predictor = predictor_of(request)
        parts = predictor.data.read_input(options.input, options.smiles_column)
    devices = chosen_devices(arguments, predictor.device)
    if len(devices) == 1:
        frames = predictor.embed_parts(parts, level)
    else:
        frames = answered_on(devices, partial(_embedding, list(arguments), level, of_split), map(_copied, parts))
    write_frames(frames, output, lambda frame: None)
    log.info("Representations of each %s: %s", level, output)
    return 0


def _embedding(arguments: list[str], level: Level, of_split: bool, devices: str) -> Answer:
    """Load the model of a command line on one device, to embed parts of an input or of a split."""
    request = split(own_parser("embed"), arguments)
    request.options.split = None  # the parts come with their tables, so this process opens no data
    predictor = predictor_of(request, devices)
    predictor.facts = None if of_split else predictor.facts
    return lambda part: next(predictor.embed_parts([part], level))


def _copied(part: InputPart) -> InputPart:
    """Copy the tensors of a part, since views would be sent with the whole split."""
    return replace(part, table=part.table.select(torch.arange(len(part.table))))
