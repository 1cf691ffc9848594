"""Numbers in addition to the graph of a user's molecule: columns of the file, categories, and RDKit descriptors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from graphbench.benchmarks.inputs import decimal_commas, input_cells
from graphbench.benchmarks.molecules.chemistry.descriptors import (
    DESCRIPTOR_SETS,
    DescriptorSet,
    descriptor_names,
)
from graphbench.benchmarks.molecules.chemistry.problems import quote
from graphbench.benchmarks.molecules.chemistry.tables import subset
from graphbench.contracts import Column, Features, GraphTable, InputPart
from graphbench.contracts.table import GRAPH, GRAPH_DENSE
from graphbench.errors import BadInput, check_choice
from graphbench.tables.cells import Missing, parse_number
from graphbench.tables.formats import SEPARATOR
from graphbench.tables.layout import point_for_comma


@dataclass(frozen=True)
class MoleculeFeatures:
    """Options of `Molecules` for what the head reads in addition to the graph.

    Args:
        columns: columns of the file, in the order of their numbers.
        categories: column -> its categories; each becomes a column of 0 and 1.
        descriptors: `rdkit2d`, `morgan` or None.

    Raises:
        BadInput: a column is repeated, or categories are not distinct or name an unknown column.
    """

    columns: tuple[str, ...] = ()
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    descriptors: DescriptorSet | None = None

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise BadInput(f"features: expected distinct columns, got {list(self.columns)}.")
        for name, values in self.categories.items():
            if name not in self.columns:
                raise BadInput(f"categories: {name!r} is not among features={list(self.columns)}.")
            if len(values) < 2 or len(set(values)) != len(values):
                raise BadInput(f"categories: {name!r} needs two or more distinct categories, got {list(values)}.")
        if self.descriptors is not None:
            check_choice("descriptors", self.descriptors, DESCRIPTOR_SETS)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the columns that contain numbers."""
        return tuple(name for name in self.columns if name not in self.categories)

    def names(self) -> tuple[str, ...]:
        """Name each number that the head reads.

        Examples:
            >>> MoleculeFeatures(("pH", "assay"), {"assay": ("A", "B")}).names()
            ('pH', 'assay=A', 'assay=B')
        """
        names: list[str] = []
        for column in self.columns:
            values = self.categories.get(column)
            names += [column] if values is None else [f"{column}={value}" for value in values]
        return (*names, *(() if self.descriptors is None else descriptor_names(self.descriptors)))

    def features(self) -> Features:
        """Describe the numbers for the specification."""
        names = self.names()
        return Features(dense=len(names), names=names)

    def parse(self, cells: Mapping[str, Sequence[str]]) -> tuple[np.ndarray, list[tuple[int, str, str]]]:
        """Parse the cells of the columns.

        Returns:
            float64 `[rows, numbers]`, with one-hot categories; and row, fault and text of each unusable cell.
        """
        missing, faults = Missing.of(None), []
        parts: list[np.ndarray] = []
        for name in self.columns:
            values = self.categories.get(name)
            part = np.zeros((len(cells[name]), 1 if values is None else len(values)))
            for row, text in enumerate(cells[name]):
                fault = ""
                if values is not None and text in values:
                    part[row, list(values).index(text)] = 1
                elif text in missing:
                    fault = "is missing"
                elif values is not None:
                    fault = f"is none of the categories {', '.join(map(repr, values))}"
                else:
                    number, fault = parse_number(text, "regression")
                    part[row, 0] = math.nan if fault else number
                if fault:
                    faults.append((row, f"feature {name!r} {fault}", text))
            parts.append(part)
        return np.concatenate(parts, axis=1) if parts else np.zeros((0, 0)), faults

    def key(self) -> dict[str, Any]:
        """Return the JSON values that determine what is read from a file."""
        if not self.columns:
            return {}
        return {"beside": [[name, list(self.categories.get(name, ()))] for name in self.columns]}

    def behind_columns(self, table: GraphTable, descriptors: torch.Tensor) -> GraphTable:
        """Append descriptors `[G, D]` to the columns of a table."""
        # Without columns they stay on disk: 2,048 counts take 8 KB a molecule.
        return with_numbers(
            table, torch.cat([table.columns[GRAPH_DENSE], descriptors], 1) if self.columns else descriptors
        )

    def join_inputs(self, parts: Iterable[InputPart], source: str) -> Iterator[InputPart]:
        """Add the columns to the graphs of an input, before their descriptors.

        A row with an unusable cell becomes a problem. Parts without rows and problems were not read.
        """
        commas: bool | None = None  # until a cell of the first parts decides it, as for labels
        for part in parts:
            if not self.columns or (not part.rows and not part.problems):
                yield part
                continue
            columns = input_cells(part.frame, self.columns, source, "which the model also reads")
            numbers = {name: columns[name] for name in self.numbers}
            if commas is None:
                commas = decimal_commas(numbers, part.frame.attrs.get(SEPARATOR, ""))
            if commas:
                columns |= {name: [point_for_comma(cell) for cell in cells] for name, cells in numbers.items()}
            yield self._behind_graphs(part, columns)

    def _behind_graphs(self, part: InputPart, columns: Mapping[str, Sequence[str]]) -> InputPart:
        """Attach the cells of a part to its graphs, without those whose cells cannot be used."""
        values, faults = self.parse(columns)
        problems = {row: f"{fault}: {quote(text)}" for row, fault, text in faults} | part.problems
        places = [place for place, row in enumerate(part.rows) if row not in problems]
        rows = [part.rows[place] for place in places]
        numbers = torch.from_numpy(values[rows]).float()
        table = subset(part.table, np.array(places, dtype=np.int64))
        descriptors = table.columns.get(GRAPH_DENSE)
        table = with_numbers(table, numbers if descriptors is None else torch.cat([numbers, descriptors], 1))
        return replace(part, table=table, rows=rows, problems=problems)


def with_numbers(table: GraphTable, values: torch.Tensor) -> GraphTable:
    """Attach numbers `[G, F]` to the graphs of a table."""
    return table.with_columns({GRAPH_DENSE: values}, {GRAPH_DENSE: Column(GRAPH)})
