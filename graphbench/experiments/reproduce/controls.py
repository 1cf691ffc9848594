"""Replace the models of a table by the four rows of their controls."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphbench.errors import BadInput
from graphbench.experiments.control import Measure, control_rows, families, has_control
from graphbench.experiments.reproduce.plan import is_trained
from graphbench.experiments.reproduce.printed import Printed
from graphbench.experiments.reproduce.tables import Cell, Table

log = logging.getLogger(__name__)


def controlled(table: Table, cells: Sequence[Cell], measure: Measure) -> tuple[Table, list[Cell]]:
    """Return a table with four rows for each row of the cells, and its cells, without models lacking a control.

    Printed values stay with the row that is their recipe.
    """
    chosen = [cell for cell in cells if is_trained(cell) and not cell.after and has_control(cell.recipe)]
    if not chosen:
        raise BadInput(f"--control: no value of {table.name} has a control; recipes in {', '.join(families())} do.")
    log.info("%s: %d of %d values have a control, of recipes in their folders", table.name, len(chosen), len(cells))
    controls = [one for cell in chosen for one in _rows(cell, measure)]
    names = {cell.row: cell.row_name for cell in controls}
    title = f"{table.title}: control of equal size"
    new = replace(
        table, name=f"{table.name}-control", title=title, cells=tuple(controls), row_names=names, seeds=table.seeds,
        figure={},
    )  # fmt: skip
    return new, list(new.cells)


def _rows(cell: Cell, measure: Measure) -> Iterator[Cell]:
    """Yield the four cells of a cell."""
    for row in control_rows(cell.recipe, cell.options, measure):
        log.info("%s, %s, %s", cell.row_name, cell.column_name, row)
        same = row.recipe == cell.recipe and not row.options
        yield replace(
            cell,
            row=f"{cell.row}-{row.key}",
            row_name=f"{cell.row_name}, {row.label}",
            recipe=row.recipe,
            options=(*cell.options, *row.options),
            printed=cell.printed if same else Printed(""),
            best=cell.best if same else "",
            note=f"{row.parameters:,} parameters, width {row.width}. {cell.note}".strip(),
        )
