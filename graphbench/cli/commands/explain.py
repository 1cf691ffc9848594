"""`graphbench explain`: show the atoms and bonds, or nodes and edges, that a prediction depends on."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pandas as pd

from graphbench.cli.options import Request, check_needed, own_parser, parse_request
from graphbench.cli.parsers import folder_to_write, whole_number
from graphbench.cli.trained import chosen_devices, chosen_split, on_split, predictor_of, training_means
from graphbench.contracts.benchmark import PART_ROWS
from graphbench.data.files.writing import writing_together
from graphbench.errors import BadInput, check_choice
from graphbench.inference import Predictor
from graphbench.inference.attributions.attribution import Method
from graphbench.inference.attributions.rows import (
    ChosenRow,
    Wanted,
    choose_rows,
    drawing_of,
    explain_row,
    figure_of,
    tables_of,
    target_column,
)
from graphbench.inference.output import write_frames
from graphbench.inference.predictor import parts_of_split

log = logging.getLogger(__name__)
#: Option of one method -> the method, and the default.
_OF_METHOD: dict[str, tuple[Method, str]] = {"steps": ("integrated_gradients", "64"), "samples": ("myerson", "200")}


def explain(arguments: Sequence[str]) -> int:
    """Write attributions of some rows as tables and drawings."""
    request = parse_request(own_parser("explain"), arguments)
    options = request.options
    numbers = [whole_number("--rows", text, at_least=0) for text in options.rows or ()]
    method, steps, samples = _method(options)
    check_needed("explain", options)
    output = folder_to_write("--output", options.output)
    predictor, rows = _rows(request, numbers)
    if (count := len(chosen_devices(arguments, predictor.device))) > 1:
        raise BadInput(f"--trainer.devices requests {count}: explain uses one device, since rows are few.")
    target = target_column(predictor, options.target)
    node = None if options.node is None else whole_number("--node", options.node, at_least=0)
    wanted = Wanted(training_means(request, predictor), target, node, method, steps, samples)
    with writing_together(output) as staged:
        _write(predictor, rows, wanted, staged)
    log.info("Attributions of %d row%s: %s", len(rows), "s" * (len(rows) != 1), output)
    return 0


def _method(options: argparse.Namespace) -> tuple[Method, int, int]:
    """Return the method and its numbers of quadrature nodes and of random orders."""
    method: Method = options.method or "integrated_gradients"
    check_choice("--method", method, get_args(Method))
    for name, (needed, _) in _OF_METHOD.items():
        if getattr(options, name) is not None and method != needed:
            raise BadInput(f"--{name} belongs to --method {needed}, but the method is {method}.")
    steps, samples = (
        whole_number(f"--{name}", getattr(options, name) or default, at_least=2)
        for name, (_, default) in _OF_METHOD.items()
    )
    return method, steps, samples


def _rows(request: Request, numbers: Sequence[int]) -> tuple[Predictor, list[ChosenRow]]:
    """Load the model and the rows of the input or split."""
    if request.options.input is not None:
        predictor = predictor_of(request)
        # Graphs of other parts are not built: the last rows of a large file would take minutes.
        parts = predictor.data.read_chosen(
            request.options.input,
            request.options.smiles_column,
            lambda first: any(first <= number < first + PART_ROWS for number in numbers),
        )
        column = request.options.smiles_column or getattr(predictor.data, "smiles_column", None)
        return predictor, choose_rows(predictor, parts, numbers, column if predictor.data.spec.molecules else None)
    chosen = chosen_split(request.options)
    predictor = on_split(request)
    smiles = None
    if predictor.data.spec.molecules and hasattr(predictor.data, "smiles"):
        smiles = predictor.data.smiles(chosen)
    return predictor, choose_rows(predictor, parts_of_split(predictor.data, chosen), numbers, smiles)


def _write(predictor: Predictor, rows: Sequence[ChosenRow], wanted: Wanted, output: Path) -> None:
    """Write tables of all rows and a drawing of each."""
    spec, target, node = predictor.data.spec, wanted.target or 0, wanted.node
    name = predictor.data.target_labels()[target] if spec.num_classes is None else "logit"
    unit = spec.target_units[target] if spec.kind == "regression" and spec.target_units else ""
    nodes, lines, summary = [], [], []
    for row in rows:
        explanation, drawing = explain_row(predictor, row, wanted), drawing_of(row)
        of_nodes, of_lines = tables_of(row, explanation, drawing)
        nodes.append(of_nodes)
        lines.append(of_lines)
        summary.append({
            "row": row.number, **({} if node is None else {"node": node}), "smiles": row.smiles, "target": name,
            "method": wanted.method, "reference": "training mean", "prediction": explanation.prediction,
            "at_reference": explanation.at_reference, "gap": explanation.gap,
        })  # fmt: skip
        figure_of(row, explanation, drawing, name, unit, wanted).savefig(output / f"row-{row.number}.png")
    frame = pd.DataFrame(summary)
    if frame["smiles"].isna().all():
        frame = frame.drop(columns="smiles")
    for file, content in (("nodes", pd.concat(nodes)), ("edges", pd.concat(lines)), ("rows", frame)):
        write_frames([content], output / f"{file}.csv", lambda written: None)
