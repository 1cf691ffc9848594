"""`graphbench explain`: which atoms and bonds, or nodes and edges, a prediction rests on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pandas as pd

from graphbench.cli.options import OWN, Request, check_needed, own_parser, split
from graphbench.cli.parsers import folder_to_write, whole_number
from graphbench.cli.trained import chosen_devices, on_split, predictor_of, training_means
from graphbench.contracts import SPLITS
from graphbench.data.files.writing import writing_together
from graphbench.errors import BadInput, check_choice
from graphbench.inference import Predictor
from graphbench.inference.attributions.attribution import Method
from graphbench.inference.attributions.rows import (
    ChosenRow,
    Wanted,
    choose_rows,
    drawing_of,
    explanations,
    figure_of,
    tables_of,
    target_column,
)
from graphbench.inference.output import write_frames
from graphbench.inference.predictor import parts_of_split

log = logging.getLogger(__name__)
#: What rows.csv calls what attributions are measured from.
_REFERENCE = "training mean"
#: Options of one method each, and their defaults.
_OF_METHOD: dict[str, tuple[Method, str]] = {"steps": ("integrated_gradients", "64"), "samples": ("myerson", "200")}


def explain(arguments: Sequence[str]) -> int:
    """Write attributions of some rows as tables and drawings.

    Raises:
        BadInput: an option is missing or of another method, a row cannot be explained, or the model reads features in a
            way of its own.
        MissingExtra: captum is not installed, and integrated gradients are asked for.
    """
    parser = own_parser("explain", **{name: text for name, text in OWN["explain"].items() if name != "rows"})
    parser.add_argument("--rows", nargs="+", help=OWN["explain"]["rows"])
    request = split(parser, arguments)
    numbers = [whole_number("--rows", text, at_least=0) for text in request.own.rows or ()]
    method, steps, samples = _method(request)
    check_needed("explain", request.own)
    output = folder_to_write("--output", request.own.output)
    predictor, rows = _rows(request, numbers)
    if (count := len(chosen_devices(arguments, predictor.device))) > 1:
        raise BadInput(f"--trainer.devices asks for {count}: explain works on one device, since rows are few.")
    target = target_column(predictor, request.own.target)
    node = None if request.own.node is None else whole_number("--node", request.own.node, at_least=0)
    wanted = Wanted(training_means(request, predictor), target, node, method, steps, samples)
    with writing_together(output) as staged:
        _write(predictor, rows, wanted, staged)
    log.info("Attributions of %d row%s: %s", len(rows), "s" * (len(rows) != 1), output)
    return 0


def _method(request: Request) -> tuple[Method, int, int]:
    """The method and the numbers that belong to one.

    Raises:
        BadInput: there is no such method, or a number is none or belongs to another one.
    """
    method: Method = request.own.method or "integrated_gradients"
    check_choice("--method", method, get_args(Method))
    for name, (needed, _) in _OF_METHOD.items():
        if getattr(request.own, name) is not None and method != needed:
            raise BadInput(f"--{name} belongs to --method {needed}, but the method is {method}.")
    steps, samples = (
        whole_number(f"--{name}", getattr(request.own, name) or default, at_least=2)
        for name, (_, default) in _OF_METHOD.items()
    )
    return method, steps, samples


def _rows(request: Request, numbers: Sequence[int]) -> tuple[Predictor, list[ChosenRow]]:
    """The model and the rows of the input, or of a split."""
    if request.own.input is not None:
        predictor = predictor_of(request)
        parts = predictor.data.read_input(request.own.input, request.own.smiles_column)
        column = request.own.smiles_column or getattr(predictor.data, "smiles_column", None)
        return predictor, choose_rows(predictor, parts, numbers, column if predictor.data.spec.molecules else None)
    if request.own.smiles_column:
        raise BadInput("--smiles-column names a column of --input FILE, which is missing.")
    chosen = request.own.split or "test"
    check_choice("--split", chosen, SPLITS)
    predictor = on_split(request)
    smiles = None
    if predictor.data.spec.molecules and hasattr(predictor.data, "smiles"):
        smiles = predictor.data.smiles(chosen)
    return predictor, choose_rows(predictor, parts_of_split(predictor.data, chosen), numbers, smiles)


def _write(predictor: Predictor, rows: Sequence[ChosenRow], wanted: Wanted, output: Path) -> None:
    """Tables of all rows and a drawing of each."""
    spec, target, node = predictor.data.spec, wanted.target or 0, wanted.node
    name = predictor.data.target_labels()[target] if spec.num_classes is None else "logit"
    unit = spec.target_units[target] if spec.kind == "regression" and spec.target_units else ""
    nodes, lines, summary = [], [], []
    for row, found in explanations(predictor, rows, wanted):
        drawing = drawing_of(row)
        of_nodes, of_lines = tables_of(row, found, drawing)
        nodes.append(of_nodes)
        lines.append(of_lines)
        summary.append({
            "row": row.number, **({} if node is None else {"node": node}), "smiles": row.smiles, "target": name,
            "method": wanted.method, "reference": _REFERENCE, "prediction": found.prediction,
            "at_reference": found.at_reference, "gap": found.gap,
        })  # fmt: skip
        figure_of(row, found, drawing, name, unit, wanted).savefig(output / f"row-{row.number}.png")
    frame = pd.DataFrame(summary)
    if frame["smiles"].isna().all():
        frame = frame.drop(columns="smiles")
    for file, content in (("nodes", pd.concat(nodes)), ("edges", pd.concat(lines)), ("rows", frame)):
        write_frames([content], output / f"{file}.csv", lambda written: None)
