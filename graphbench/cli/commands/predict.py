"""`graphbench predict` and `graphbench embed`: write predictions, or representations, of new inputs or of a split."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import rdkit
import torch

import graphbench
from graphbench.cli.command_line import CommandLine
from graphbench.cli.options import FLAGS, SEVERAL, Request, own_parser, parse_request, share_of
from graphbench.cli.parsers import file_to_write, folder_to_write
from graphbench.cli.same_data import SameData
from graphbench.cli.split_predictions import check_learning, learn_from_validation, names_of, predict_split
from graphbench.cli.trained import (
    Answer,
    answered_on,
    chosen_devices,
    chosen_split,
    on_split,
    open_data,
    predictor_of,
)
from graphbench.contracts import InputPart
from graphbench.data.files.listing import files_below
from graphbench.data.package_files import file_sha256
from graphbench.data.parts.shares import AUTO, alone
from graphbench.errors import BadInput, check_choice
from graphbench.experiments.launchers import Cluster, Unit, launch
from graphbench.experiments.launchers.launching import ROOM
from graphbench.experiments.status import read_status, shares_of, summarize
from graphbench.inference.calibration import Temperature
from graphbench.inference.class_sets import ClassSets
from graphbench.inference.distance_bins import DistanceBins
from graphbench.inference.ensemble import Ensemble
from graphbench.inference.intervals import Intervals
from graphbench.inference.output import STANDARD_OUTPUT, Counts, check_output, counted, names_parts, write_frames
from graphbench.inference.parts import PartsFolder
from graphbench.inference.predictor import Level, parts_of_split
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import trained_weights
from graphbench.runs.environment import describe_kernels

log = logging.getLogger(__name__)


def predict(arguments: Sequence[str]) -> int:
    """Predict a user's input, or a split, with the best checkpoint of a run, or of several together."""
    requests = _parse_requests(arguments)
    options = requests[0].options
    if options.interval_by and not options.interval:
        by = options.interval_by
        raise BadInput(f"--interval-by {by} needs --interval and a coverage, such as --interval 0.9.")
    if options.input is not None:
        if options.split is not None:
            raise BadInput("--input and --split exclude each other: name the input or the split.")
        in_parts = names_parts(options.output)
        if in_parts and (cluster := Cluster.of(options)) is not None:
            return _launch(options, cluster, arguments)
        return _predict_in_parts(requests, arguments) if in_parts else _predict_input(requests, arguments)
    return predict_split(requests, chosen_split(options))


def _parse_requests(arguments: Sequence[str]) -> list[Request]:
    """Parse the command line once for each run that it names; refuse a run named twice."""
    line = CommandLine.parse(arguments, SEVERAL["predict"], FLAGS)
    runs = [run for option in line.named(*SEVERAL["predict"]) for run in option.values]
    if not runs:
        return [parse_request(own_parser("predict"), arguments)]
    # Each run's configuration precedes what was typed.
    rest = line.without(*SEVERAL["predict"]).words
    requests = [parse_request(own_parser("predict"), ["--run", run, *rest]) for run in runs]
    places = [request.run.path.resolve() for request in requests if request.run is not None]
    for number, (place, name) in enumerate(zip(places, runs, strict=True)):
        if place in places[:number]:
            raise BadInput(f"--run names {name} twice: name each run once.")
    if len(requests) > 1 and requests[0].options.checkpoint is not None:
        raise BadInput("--checkpoint names a file of one run, but --run names several: leave one of them out.")
    return requests


def _predict_input(requests: Sequence[Request], arguments: Sequence[str]) -> int:
    options = requests[0].options
    output = file_to_write("--output", check_output(options.output, streams=True))
    ensemble = _load_ensemble(requests, arguments)
    counts = Counts()
    with _rereadable(options.input, ensemble.readings) as source:
        blocks = ensemble.read_input(source, options.smiles_column)
        frames = _predict_blocks(ensemble, blocks, options.smiles_column, arguments)
        if output != STANDARD_OUTPUT:  # there the rows themselves show it
            frames = counted(frames, "Predicting")
        write_frames(frames, output, counts.add)
    log.info("%s: %s", "standard output" if output == STANDARD_OUTPUT else output, counts)
    return 0


def _predict_in_parts(requests: Sequence[Request], arguments: Sequence[str]) -> int:
    """Write a share of a table's parts into a folder."""
    options = requests[0].options
    share, part_rows, resume = share_of(options)
    folder = folder_to_write("--output", options.output)
    identity, named = _identity(requests)
    with alone() if options.part == AUTO else contextlib.nullcontext():
        ensemble = _load_ensemble(requests, arguments)
        identity |= {"device": ensemble.first.device.type, "learned": _learned_values(ensemble)}
        with PartsFolder.opened(folder, identity, named, share, part_rows, resume) as parts:
            blocks = parts.wanted(ensemble.read_input(options.input, options.smiles_column, parts.is_wanted))
            frames = _predict_blocks(ensemble, blocks, options.smiles_column, arguments)
            parts.write(counted(frames, "Predicting"))
            done, total, counts = parts.finish()
    if done < total:
        log.info("%s: share %s is written; %d of %d parts exist, with %s", folder, share, done, total, counts)
    else:
        log.info("%s: all %d parts exist, with %s", folder, total, counts)
    return 0


def _launch(options: argparse.Namespace, cluster: Cluster, arguments: Sequence[str]) -> int:
    """Write a table in parts with jobs, a share each; return 1 if parts are missing, else 0."""
    if options.part is not None:
        raise BadInput(f"--part {options.part}: with --launcher submitit every job gets a share; leave it out.")
    _, _, resume = share_of(options)
    folder, count = folder_to_write("--output", options.output), cluster.number("shares of the input")
    if not resume and any(folder.glob("part-*.parquet")):
        raise BadInput(f"--output {folder}: parts exist. Continue with --if-exists resume, or name another folder.")
    line = CommandLine.parse(arguments, SEVERAL["predict"], FLAGS).without("--launcher", "--if-exists")
    shares = [(f"share-{number}-of-{count}", f"{number}/{count}") for number in range(1, count + 1)]
    # With `resume`, since a requeued job finds its own parts.
    units = [
        Unit(name, ("predict", *line.words, "--if-exists", "resume", "--part", share), folder / ROOM / f"{name}.log")
        for name, share in shares
    ]
    waiting = f"{count} units: {count} waiting"
    # Not judged by job states: a job that refuses to continue leaves the parts that an earlier call finished.
    failed = launch(
        [units], cluster, folder, describe=lambda: summarize(read_status(folder)) if shares_of(folder) else waiting
    )
    for unit in failed:
        log.error("%s has failed: see %s.", unit.name, unit.log)
    return 1 if failed else 0


def _predict_blocks(
    ensemble: Ensemble, blocks: Iterator[Sequence[InputPart]], column: str | None, arguments: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Predict blocks of an input on one device or several, in order."""
    devices, intervals = chosen_devices(arguments, ensemble.first.device), ensemble.intervals
    if len(devices) == 1:
        return ensemble.predict_parts(blocks, column)
    assert not isinstance(intervals, DistanceBins), "refused before the models learn"
    return answered_on(devices, partial(_load_predictor, list(arguments), ensemble.temperature, intervals), blocks)


def _identity(requests: Sequence[Request]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what must be equal to continue a table in parts, and paths, which may differ."""
    options, typed = requests[0].options, CommandLine.parse(requests[0].typed).options
    # All that changes a prediction: parts of two tables in one folder would look like one table.
    identity = {
        "input": _describe_contents(Path(options.input)),
        "models": list(map(_model_checksums, requests)),
        "options": {
            "smiles_column": options.smiles_column,
            "interval": options.interval,
            "interval_by": options.interval_by,
            "calibrate": options.calibrate,
            "further": [word for option in typed if option.path != "trainer.devices" for word in option.words],
        },
        "versions": {"graphbench": graphbench.__version__, "torch": torch.__version__, "rdkit": rdkit.__version__},
        "kernels": describe_kernels(),
    }
    return identity, {"input": str(Path(options.input).absolute()), "runs": names_of(requests)}


def _model_checksums(request: Request) -> dict[str, str]:
    """Return the checksums of the files that decide what a run predicts."""
    files = {"weights": Path(request.options.checkpoint or trained_weights(request.run or RunFolder(Path())))}
    if request.run is not None:
        files |= {"configuration": request.run.config, "training": request.run.training}
    return {name: file_sha256(path) for name, path in files.items() if path.is_file()}


def _describe_contents(source: Path) -> dict[str, Any]:
    """Return size and checksum of a file; for a folder, of the names, sizes and times of its files."""
    if source.is_file():
        return {"bytes": source.stat().st_size, "sha256": file_sha256(source)}
    if not source.is_dir():
        return {"name": str(source)}
    files = files_below(source, hidden=True)
    stamps = [(str(path.relative_to(source)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    listing = hashlib.sha256(json.dumps(stamps).encode()).hexdigest()
    return {"files": len(files), "bytes": sum(size for _, size, _ in stamps), "listing": listing}


def _learned_values(ensemble: Ensemble) -> dict[str, Any]:
    """Return what was learned from the validation split."""
    learned: dict[str, Any] = {}
    if ensemble.temperature is not None:
        learned["temperature"] = ensemble.temperature.value
    if ensemble.intervals is not None:
        learned["intervals"] = ensemble.intervals.record()
    return learned


def _load_predictor(
    arguments: list[str], temperature: Temperature | None, intervals: Intervals | ClassSets | None, devices: str
) -> Answer:
    """Load the models of a command line on one device; return a function that predicts a part of an input."""
    ensemble = Ensemble([predictor_of(request, devices) for request in _parse_requests(arguments)])
    ensemble.temperature, ensemble.intervals = temperature, intervals
    return lambda views: next(ensemble.predict_parts([views]))


def _load_ensemble(requests: Sequence[Request], arguments: Sequence[str]) -> Ensemble:
    """Load the models of the runs; open their data if the validation split is needed, and learn from it."""
    options = requests[0].options
    ensemble = Ensemble([predictor_of(request) for request in requests], names_of(requests))
    check_learning(ensemble, requests[0])
    by_distance = "distance" in (options.interval_by or "").split(",")
    if by_distance and len(chosen_devices(arguments, ensemble.first.device)) > 1:
        raise BadInput("--interval-by distance compares with the training split in one process: --trainer.devices 1.")
    if options.interval or options.calibrate:
        for member, request in zip(ensemble.members, requests, strict=True):
            open_data(member, SameData(request.run, request.options.data_changed))
        learn_from_validation(ensemble, requests[0])
    return ensemble


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
    """Write representations of graphs or nodes, of a user's input or a split, by a run's best checkpoint."""
    request = parse_request(own_parser("embed"), arguments)
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
        frames = answered_on(
            devices, partial(_load_embedder, list(arguments), level, of_split), map(_copy_tensors, parts)
        )
    write_frames(counted(frames, "Embedding"), output, lambda frame: None)
    log.info("Representations of each %s: %s", level, output)
    return 0


def _load_embedder(arguments: list[str], level: Level, of_split: bool, devices: str) -> Answer:
    """Load the model of a command line on one device; return a function that embeds a part of an input or split."""
    request = parse_request(own_parser("embed"), arguments)
    request.options.split = None  # the parts carry their tables, so this process opens no data
    predictor = predictor_of(request, devices)
    predictor.facts = None if of_split else predictor.facts
    return lambda part: next(predictor.embed_parts([part], level))


def _copy_tensors(part: InputPart) -> InputPart:
    """Copy the tensors of a part, since views are pickled with the whole split."""
    return replace(part, table=part.table.select(torch.arange(len(part.table))))
