"""The ledger: every printed score once, judged by its records, and the page of this repository."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphbench.cli import main
from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.ledger import STATUSES, Ledger
from graphbench.experiments.reproduce.recipes import length_of
from graphbench.experiments.reproduce.tables import tables

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed():
    return tables()


def cell_of(installed, table, row, column):
    return installed[table].by_place[row, column]


def records_of(cell, scores, **more):
    """Return records of finished runs of a cell's recipe, one seed per score."""
    length = length_of(cell)
    return [
        Record(
            "trial", cell.row_name, cell.recipe, seed, cell.metric.removeprefix("test/"), score, options=cell.options,
            **{"epochs": length.epochs, "full": True, "data": "published", "higher_is_better": True, **more},
        )
        for seed, score in enumerate(scores)
    ]  # fmt: skip


def line_of(ledger, cell):
    (line,) = [one for one in ledger.lines if one.cell is cell]
    return line


def test_every_printed_score_of_the_papers_has_a_line(installed):
    """An audit counted 409 scores, and 51 values of SFT's tables 6 and 7, which scripts measure.

    There are also 20 values of a notebook, 9 of the baselines on ZINC and 52 of ECHO.
    """
    lines = Ledger(installed.values(), []).lines
    others = ("electric-flow/figure-1-notebook", "benchmarking-gnns/zinc", "echo/chem", "echo/synth")
    counts = [sum(line.table.name == name for line in lines) for name in others]
    assert counts == [20, 9, 22, 30]
    assert sum(line.cell.metric.startswith("test/") for line in lines) - sum(counts) == 409
    assert sum(line.table.name in ("sft/table-6", "sft/table-7") for line in lines) == 51
    assert {line.status for line in lines} <= set(STATUSES)
    assert len({(line.table.name, line.cell.row, line.cell.column) for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("scores", "more", "status"),
    [
        ((0.8674, 0.8670, 0.8668), {}, "met"),
        ((0.70, 0.70), {}, "not met"),
        ((0.99, 0.99), {}, "better"),
        ((0.8674,), {"full": False, "epochs": 3}, "short"),
        ((0.8674,), {"altered": ("model.loss: other",)}, "short"),
        ((0.8674,), {"data": "generated"}, "protocol differs"),
    ],
)
def test_records_are_judged_as_tables_judge_runs(installed, scores, more, status):
    cell = cell_of(installed, "sfi-former/table-2", "dfi-former", "pattern")
    printed = cell.printed
    shifted = [score - 0.8674 + printed.value for score in scores]
    line = line_of(Ledger(installed.values(), records_of(cell, shifted, **more)), cell)
    assert line.status == status
    assert line.seeds == tuple(range(len(scores)))


def test_a_departure_from_the_protocol_bars_a_verdict_and_is_printed(installed):
    cell = cell_of(installed, "sft/table-4", "s4", "text")
    assert "S4D" in cell.differs
    ledger = Ledger(installed.values(), records_of(cell, [cell.printed.value / 100]))
    assert line_of(ledger, cell).status == "protocol differs"
    assert cell.differs in ledger.text()


def test_short_trainings_are_never_mixed_with_whole_ones(installed):
    cell = cell_of(installed, "sfi-former/table-2", "dfi-former", "pattern")
    records = [*records_of(cell, [0.5], full=False, epochs=2), *records_of(cell, [cell.printed.value])]
    line = line_of(Ledger(installed.values(), records), cell)
    assert (line.status, len(line.seeds)) != ("short", 2)
    assert line.seeds == (0,)
    assert line.trained == f"{length_of(cell).epochs} epochs"


def test_a_line_prefers_runs_of_the_recipe_on_the_published_graphs(installed):
    cell = cell_of(installed, "sfi-former/table-2", "dfi-former", "pattern")
    whole = [records_of(cell, [cell.printed.value], data=data)[0] for data in ("redrawn", "published", "local")]
    short = {"full": False, "epochs": 2}
    altered = replace(records_of(cell, [0.5], **short)[0], seed=1, altered=("model.loss is other",))
    for records, data in ((whole, "published"), (whole[::2], "redrawn")):
        line = line_of(Ledger(installed.values(), records), cell)
        assert (line.seeds, line.status, "redrawn" in line.trained) == ((0,), "met", data == "redrawn")
    line = line_of(Ledger(installed.values(), [*records_of(cell, [0.5], **short), altered]), cell)
    assert (line.seeds, line.trained) == ((0,), "2 epochs")
    assert "model.loss" in line_of(Ledger(installed.values(), [altered]), cell).trained


def test_seeds_that_their_rate_ended_after_other_epochs_stand_together(installed):
    cell = cell_of(installed, "benchmarking-gnns/zinc", "gin", "layers-4")
    more = {"data": "redrawn", "higher_is_better": False, "seconds": 600.0}
    first, second = records_of(cell, [0.39, 0.38], **more)
    records = [replace(first, epochs=150), replace(second, epochs=170)]
    line = line_of(Ledger(installed.values(), records), cell)
    assert (line.status, line.seeds) == ("met", (0, 1))
    assert line.trained == "150 to 170 epochs, training set redrawn"
    assert line.hours == pytest.approx(4 * 600 / 3600)  # what a run took, not 1,000 epochs


def test_hours_follow_from_the_seconds_of_an_epoch(installed):
    table = installed["sfi-former/table-2"]
    cell = cell_of(installed, "sfi-former/table-2", "dfi-former", "pattern")
    records = records_of(cell, [0.5], full=False, epochs=2, seconds=360.0)
    line = line_of(Ledger(installed.values(), records), cell)
    assert line.hours == pytest.approx(0.05 * length_of(cell).epochs * (table.seeds or 1))
    other = cell_of(installed, "sfi-former/table-2", "dfi-former", "mnist")
    assert line_of(Ledger(installed.values(), records), other).hours is None


def test_the_ledger_of_this_repository_is_that_of_its_records(tmp_path):
    """Update with: graphbench reproduce --ledger LEDGER.md --records experiments/records plugins/*/results/records."""
    folders = [str(ROOT / "experiments" / "records"), *map(str, sorted(ROOT.glob("plugins/*/results/records")))]
    assert main(["reproduce", "--ledger", str(tmp_path / "LEDGER.md"), "--records", *folders]) == 0
    assert (tmp_path / "LEDGER.md").read_text(encoding="utf-8") == (ROOT / "LEDGER.md").read_text(encoding="utf-8")


def test_a_ledger_without_records_is_refused():
    assert main(["reproduce", "--ledger", "LEDGER.md"]) == 1
