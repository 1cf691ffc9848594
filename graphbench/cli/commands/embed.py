"""`graphbench embed`: write a model's representations of graphs or nodes to a Parquet or CSV file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from graphbench.cli.options import OWN, Request, own_parser, split
from graphbench.cli.parsers import file_to_write
from graphbench.cli.several_devices import Answer, answered_on, chosen_devices
from graphbench.cli.trained import on_split, predictor_of
from graphbench.contracts import SPLITS, InputPart
from graphbench.errors import BadInput, check_choice
from graphbench.inference.output import check_output, write_frames
from graphbench.inference.predictor import Level, parts_of_split

log = logging.getLogger(__name__)
_LEVELS = ("graph", "node")


def embed(arguments: Sequence[str]) -> int:
    """Write representations of a user's input, or of a split, by a run's best checkpoint.

    Raises:
        BadInput: an option is not known or missing, or the benchmark cannot read new inputs.
    """
    request = _request(arguments)
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
        make = partial(_answering, list(arguments), level, chosen is not None)
        frames = answered_on(devices, make, map(_by_itself, parts))
    write_frames(frames, output, lambda frame: None)
    log.info("Representations of each %s: %s", level, output)
    return 0


def _request(arguments: Sequence[str]) -> Request:
    return split(own_parser("embed", **OWN["embed"]), arguments)


def _answering(arguments: list[str], level: Level, of_split: bool, devices: str) -> Answer:
    """What the model of a command line makes of a part, on one device.

    Args:
        arguments: of the command.
        level: see `embed`.
        of_split: parts are of the run's own data, with which nothing is compared; the data stay closed in any case.
        devices: what `--trainer.devices` gets.
    """
    request = _request(arguments)
    request.own.split = None
    predictor = predictor_of(request, devices)
    predictor.facts = None if of_split else predictor.facts
    return lambda part: next(predictor.embed_parts([part], level))


def _by_itself(part: InputPart) -> InputPart:
    """A part whose tensors are no views of a whole split, which would travel with them."""
    return replace(part, table=part.table.select(torch.arange(len(part.table))))
