"""The table of the reviewers' questions: one budget, one size, and a row for every question."""

from __future__ import annotations

import pytest
from quick import one_of_each

import graphbench_baselines
import graphbench_sfi_former
from graphbench import registry
from graphbench.experiments.reproduce.recipes import expected, flat, settings
from graphbench.experiments.reproduce.tables import find_table
from graphbench.experiments.trainings import assign
from graphbench.nn import HeadConfig, RWSEEncoder

TABLE = find_table("sfi-former/questions")
SCORED = [cell for cell in TABLE.cells if cell.metric.startswith("test/")]
ARCHITECTURE = "model.architecture."


def options_of(cell):
    """Return the dotted options of a cell's recipe, and its further options."""
    content = {}
    for option in cell.options:
        assign(content, option.removeprefix("--").replace("+=", "="))
    return dict(flat(settings(cell.recipe))) | {name: value for name, value in flat(content) if "callbacks" not in name}


def test_every_row_has_the_same_budget():
    """All options of a column except the architecture are those of SFi-Former."""
    for column in ("zinc", "pattern"):
        shared = [
            {
                name: value
                for name, value in options_of(cell).items()
                if not name.startswith(("model.architecture", "expected"))
            }
            for cell in SCORED
            if cell.column == column
        ]
        assert len(shared) == 22
        assert all(one == shared[0] for one in shared)


def parameters(cell):
    given = options_of(cell)
    name = given.pop("model.architecture")
    found = {key.removeprefix(ARCHITECTURE): value for key, value in given.items() if key.startswith(ARCHITECTURE)}
    found["positional_encoders"] = [RWSEEncoder(**one["init_args"]) for one in found["positional_encoders"]]
    spec = registry.load("benchmarks", given["data"]).spec
    known = graphbench_baselines if name == "GPS" else graphbench_sfi_former
    if name != "SFiFormer":
        found = {key: value for key, value in found.items() if key not in ("penalty", "alpha")}
    model = getattr(known, name)(spec, **found)
    head = {key.removeprefix("model.head."): value for key, value in given.items() if key.startswith("model.head.")}
    made = HeadConfig(**head).mlp(model.dim, spec.output_dim)
    return sum(p.numel() for part in (model, made) for p in part.parameters())


@pytest.mark.parametrize("cell", one_of_each(SCORED, number=6), ids=lambda cell: f"{cell.row}-{cell.column}")
def test_every_row_has_the_same_size(cell):
    wanted = expected((f"sfi-former/questions/{cell.column}",)).parameters
    assert parameters(cell) == pytest.approx(wanted, rel=0.03)
    if cell.row == "sfi-former":
        assert parameters(cell) == wanted


def test_rows_differ_where_their_question_is():
    """No two rows of a column are the same training."""
    for column in ("zinc", "pattern"):
        every = [(cell.recipe, cell.options) for cell in SCORED if cell.column == column]
        assert len(set(every)) == len(every)


def test_columns_of_one_data_set_share_their_trainings():
    for row in {cell.row for cell in TABLE.cells}:
        jobs = {(cell.recipe, cell.options) for cell in TABLE.cells if cell.row == row}
        assert len(jobs) == 2
