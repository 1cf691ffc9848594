"""Explain rows of an input one by one: tables of scores, and drawings."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric.utils import subgraph

from graphbench.contracts import GraphBatch, GraphTable, InputPart
from graphbench.data.encode import encoded_here
from graphbench.diagnostics.figures.attributions import attribution_figure
from graphbench.diagnostics.figures.graphs import MOST_LAID_OUT, GraphDrawing, MoleculeDrawing, PlainDrawing
from graphbench.errors import BadInput, UnknownName
from graphbench.inference import Predictor, TrainingFacts
from graphbench.inference.attributions.attribution import Attribution, Method, attribute
from graphbench.inference.predictor import missing_encodings, on_device

log = logging.getLogger(__name__)

#: Share of a prediction's difference that the attributions may miss before a warning.
_GAP = 0.05
#: Names of the methods in drawings.
_WORDS: dict[Method, str] = {
    "integrated_gradients": "integrated gradients", "masking": "masking", "myerson": "Myerson values",
}  # fmt: skip


@dataclass(frozen=True)
class ChosenRow:
    """A row of an input with its graph.

    The table has only this graph, with encodings; rows are numbered from 0.
    """

    number: int
    table: GraphTable
    smiles: str | None


def choose_rows(
    predictor: Predictor, parts: Iterable[InputPart], numbers: Sequence[int], smiles: str | Sequence[str] | None
) -> list[ChosenRow]:
    """Choose the rows to explain, with their graphs; rows after the last of them are not read.

    Row numbers start at 0; `smiles` is the column of the input with SMILES, or the SMILES of all rows.

    Raises:
        BadInput: a row does not exist, or has no graph; the message says why.
    """
    chosen: dict[int, ChosenRow] = {}
    start = 0
    for part in parts:
        for number in numbers:
            row = number - start
            if 0 <= row < len(part.frame):
                text = part.frame[smiles].iloc[row] if isinstance(smiles, str) else smiles[number] if smiles else None
                chosen[number] = ChosenRow(number, _graph(predictor, part, row, number), text)
        start += len(part.frame)
        if len(chosen) == len(set(numbers)):
            return [chosen[number] for number in dict.fromkeys(numbers)]
    missing = next(number for number in numbers if number not in chosen)
    raise BadInput(f"--rows {missing}: the input has {start} rows, numbered from 0.")


def _graph(predictor: Predictor, part: InputPart, row: int, number: int) -> GraphTable:
    if row not in part.rows:
        raise BadInput(f"--rows {number}: this row cannot be explained: {part.problems.get(row, 'it has no graph')}.")
    graph = part.rows.index(row)
    table, data = part.table.slice(graph, graph + 1), predictor.data
    table, indices, failed = encoded_here(table, missing_encodings(table, data), data.spec.name, workers=1)
    if not indices:
        raise BadInput(f"--rows {number}: this row cannot be explained: {failed[0]}.")
    return table


def target_column(predictor: Predictor, name: str | None) -> int | None:
    """Return the column of the prediction with a target's or class's name; None for the most probable class."""
    spec = predictor.data.spec
    names = list(predictor.data.target_labels() if spec.num_classes is None else predictor.classes)
    if name is None:
        if spec.num_classes is None and len(names) > 1:
            raise BadInput(f"--target is missing: {spec.name} has several targets: {', '.join(names[:20])}.")
        return None if spec.num_classes is not None else 0
    if name not in names:
        raise UnknownName("target", name, names)
    if spec.num_classes == 2:
        if names.index(name) == 0:
            raise BadInput(f"--target {name}: two classes share one logit, that of {names[1]}; omit --target.")
        return 0
    return names.index(name)


@dataclass(frozen=True)
class Wanted:
    """Choice of the prediction to explain in every row and of the method that explains it.

    Args:
        facts: the means of the training part, the reference for attributions.
        target: column of the prediction; None for the most probable class.
        node: for a task about nodes: the node whose prediction is explained.
        method: see `attribute`.
        steps: for integrated gradients.
        samples: for Myerson values.
    """

    facts: TrainingFacts
    target: int | None
    node: int | None
    method: Method
    steps: int
    samples: int


def explain_row(predictor: Predictor, row: ChosenRow, wanted: Wanted) -> Attribution:
    """Compute attributions of one row, or of one of its nodes; warn if integrated gradients do not add up."""

    def copies(count: int) -> GraphBatch:
        return on_device(predictor.data, row.table.batch([0] * count), predictor.device)

    attribution = attribute(
        predictor.module, copies, wanted.facts, wanted.target, wanted.method, wanted.steps, wanted.samples, wanted.node
    )
    difference = abs(attribution.prediction - attribution.at_reference)
    if wanted.method == "integrated_gradients" and abs(attribution.gap) > _GAP * difference:
        log.warning(
            "Row %d: the attributions miss %.3g of a difference of %.3g. Use more --steps than %d.",
            row.number, abs(attribution.gap), difference, wanted.steps,
        )  # fmt: skip
    if attribution.orders and attribution.errors is not None:
        log.info(
            "Row %d: means over %d random orders, with standard errors of at most %.2g; a larger --samples uses more.",
            row.number, attribution.orders, float(attribution.errors.max()),
        )  # fmt: skip
    return attribution


def line_scores(table: GraphTable, pairs: Tensor, edges: Tensor) -> Tensor:
    """Sum attributions of edges `[num_edges]` over lines with the ends `[2, pairs]`: both directions of each.

    Examples:
        >>> graph = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}
        >>> line_scores(GraphTable.from_graphs([graph]), torch.tensor([[1, 0], [2, 1]]), torch.arange(4.0))
        tensor([5., 1.])
    """
    nodes = int(table.num_nodes[0])
    ends = table.columns["edge_index"].long().t().sort(0).values
    # A number for each line: a matrix of all pairs would need terabytes for a graph of a million nodes.
    lines, line = (ends[0] * nodes + ends[1]).unique(return_inverse=True)
    of_line = edges.new_zeros(len(lines)).index_add(0, line, edges)
    ordered = pairs.sort(0).values
    return of_line[torch.searchsorted(lines, ordered[0] * nodes + ordered[1])]


def drawing_of(row: ChosenRow) -> GraphDrawing:
    """Draw the molecule if its atoms are the nodes, else only the graph."""
    edge_index, num_nodes = row.table.columns["edge_index"].long().t(), int(row.table.num_nodes[0])
    if row.smiles:
        try:
            molecule = MoleculeDrawing.of(row.smiles, edge_index, num_nodes)
        except BadInput as error:
            log.warning("Molecules are drawn as bare graphs: %s", error)
        else:
            if molecule is not None:
                return molecule
            log.info("Row %d is drawn bare: its nodes and edges are not the atoms and bonds of its SMILES.", row.number)
    return PlainDrawing.of(edge_index, num_nodes, row.table.columns.get("pos"))


def tables_of(row: ChosenRow, attribution: Attribution, drawing: GraphDrawing) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return scores of nodes and of lines, a row each."""
    values, edges = attribution.nodes.numpy(), attribution.edges
    nodes = pd.DataFrame(
        {"row": row.number, "node": range(len(values)), "label": drawing.labels, "attribution": values}
    )
    if attribution.errors is not None:
        nodes["standard_error"] = attribution.errors.numpy()
    # With loops, which no drawing shows.
    pairs = row.table.columns["edge_index"].long().t().sort(0).values.unique(dim=1)
    scores: Any = line_scores(row.table, pairs, edges).numpy() if edges is not None else float("nan")
    lines = pd.DataFrame(
        {"row": row.number, "source": pairs[0].numpy(), "target": pairs[1].numpy(), "attribution": scores}
    )
    # Without edge values the file keeps its header, so that readers find the columns.
    return nodes, lines if edges is not None else lines.iloc[:0]


def figure_of(
    row: ChosenRow, attribution: Attribution, drawing: GraphDrawing, target: str, unit: str, wanted: Wanted
) -> Figure:
    """Draw a row, optionally for one of its nodes; of a large graph, the nodes with the largest attributions."""
    values, edges, pairs = attribution.nodes, attribution.edges, drawing.pairs
    what = f"row {row.number}" + ("" if wanted.node is None else f", node {wanted.node}")
    title = f"{what}: {target} {attribution.prediction:.4g}{f' {unit}' if unit else ''}"
    title += f", with average features {attribution.at_reference:.4g}"
    if isinstance(drawing, PlainDrawing) and drawing.takes_long:
        shown = values.abs().topk(MOST_LAID_OUT).indices.sort().values
        within, _ = subgraph(shown, pairs, relabel_nodes=True, num_nodes=drawing.num_nodes)
        drawing = PlainDrawing.of(within, MOST_LAID_OUT)
        title += f"; {MOST_LAID_OUT} of {len(values):,} nodes, those with the largest attributions"
        values, pairs = values[shown], shown[drawing.pairs]
    lines = None if edges is None else line_scores(row.table, pairs, edges)
    return attribution_figure(drawing, values, lines, title, unit, _WORDS[wanted.method])
