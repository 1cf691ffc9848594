"""`graphbench embed`: write a model's representations of graphs or nodes to a Parquet or CSV file."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from graphbench.cli.options import OWN, own_parser, split
from graphbench.cli.trained import on_split, predictor_of
from graphbench.contracts import SPLITS
from graphbench.errors import BadInput, check_choice
from graphbench.prediction.output import check_output, write_frames
from graphbench.prediction.predictor import Level, parts_of_split

log = logging.getLogger(__name__)
_LEVELS = ("graph", "node")


def embed(arguments: Sequence[str]) -> int:
    """Write representations of a user's input, or of a split, by a run's best checkpoint.

    Raises:
        BadInput: an option is not known or missing, or the benchmark cannot read new inputs.
    """
    request = split(own_parser("embed", **OWN["embed"]), arguments)
    level: Level = request.own.level or "graph"
    check_choice("--level", level, _LEVELS)
    output = check_output(request.own.output)
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
    write_frames(predictor.embed_parts(parts, level), output, lambda frame: None)
    log.info("Representations of each %s: %s", level, output)
    return 0
