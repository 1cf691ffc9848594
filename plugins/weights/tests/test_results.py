"""The page's tables against the rows of their runs."""

import csv
from pathlib import Path
from statistics import fmean

import pytest

PLUGIN = Path(__file__).parents[1]
PAGE = (PLUGIN / "README.md").read_text(encoding="utf-8")
SIMPLE = {
    "random forest, Morgan counts and descriptors": "random forest",
    "gradient boosting, the same": "gradient boosting",
    "chemprop 2.2.4, its defaults": "chemprop",
}
SEEDS = ["gentle", "gentle, seed 1", "gentle, seed 2"]
OURS = {"**`gentle`**, three members": ["gentle, 3 members"], "**`gentle`**": SEEDS}
SIZES = ["100", "300", "800"]
BEFORE = {"random weights": "random", "`frozen`": "frozen", "**`staged`**": "staged", "`whole`": "whole"}


def rows(name):
    return list(csv.DictReader((PLUGIN / "results" / f"{name}.csv").open(encoding="utf-8")))


def mean(name, models, column, **where):
    """Mean of a column over all splits and models."""
    found = [row for row in rows(name) if row["model"] in models and all(row[k] == v for k, v in where.items())]
    assert found, (name, models, where)
    return fmean(float(row[column]) for row in found)


def table(heading, first):
    """Map the first cell to the others in the table under this heading whose first line begins with `first`."""
    lines = iter(PAGE.partition(heading)[2].splitlines())
    next(line for line in lines if line.startswith(f"| {first} |"))
    next(lines)
    made = {}
    for line in lines:
        if not line.startswith("|"):
            return made
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        made[name] = cells
    raise AssertionError(heading)


def of_sizes(name, models):
    return [
        f"{mean(name, models, split, size=size):.3f}" for split in ("val", "test") for size in ("100", "300", "800")
    ]


@pytest.mark.parametrize("label", OURS | SIMPLE)
def test_a_thousand_solubilities(label):
    cells = table("\n1,000 of them", "MAE")[label]
    name = "aqsol_1000_gentle" if label in OURS else "aqsol_1000"
    assert cells == of_sizes(name, OURS.get(label) or [SIMPLE[label]])


@pytest.mark.parametrize("label", BEFORE | SIMPLE)
def test_the_schedule_before(label):
    model, cells = (BEFORE | SIMPLE)[label], table("### The schedule before", "MAE")[label]
    assert cells[:3] + cells[4:7] == of_sizes("aqsol_1000", [model])
    assert cells[3] == f"{fmean(mean('aqsol_1000', [model], 'val', size=size) for size in SIZES):.3f}"


@pytest.mark.parametrize(
    ("label", "name", "models"),
    [
        ("**three members (seeds 0 to 2)**", "aqsoldb_gentle", ["gentle, 3 members"]),
        ("**one**, mean of the three", "aqsoldb_gentle", SEEDS),
        ("chemprop 2.2.4, its defaults (50 epochs)", "aqsoldb_equal_time", ["chemprop"]),
        ("random forest, Morgan counts and descriptors", "aqsoldb", ["random forest"]),
        ("gradient boosting, the same", "aqsoldb", ["gradient boosting"]),
        ("ridge on Morgan counts", "aqsoldb", ["ridge on Morgan counts"]),
    ],
)
def test_all_of_aqsoldb(label, name, models):
    val, test, by_split, seconds = table("\nAll of AqSolDB", "MAE")[label]
    assert (val, test) == tuple(f"{mean(name, models, split):.3f}" for split in ("val", "test"))
    splits = [mean(name, models, "test", split=f"scaffold_{number}") for number in range(3)]
    assert by_split == ", ".join(f"{score:.3f}" for score in splits)
    assert seconds == f"{mean(name, models, 'seconds'):.0f}"


@pytest.mark.parametrize(("data", "splits"), [("FreeSolv", 3), ("ESOL", 2), ("BBBP", 3)])
def test_further_sets(data, splits):
    (cells,) = [cells for name, cells in table("\nOther data sets", "test error").items() if name.startswith(data)]
    for model, cell in zip(["gentle", "chemprop", "random forest", "gradient boosting"], cells[1:], strict=True):
        found = [row for row in rows("further_sets") if (row["set"], row["model"]) == (data, model)]
        found = [row for row in found if int(row["split"][-1]) < (1 if "split 0" in cell else splits)]
        assert cell.strip("*").removesuffix(" (split 0)") == f"{fmean(float(row['test']) for row in found):.3f}"


@pytest.mark.parametrize(
    ("label", "model"),
    [
        ("`staged` by steps, a fifth of the run frozen", "staged, 50 epochs or 5000 steps"),
        ("**`gentle`, 3e-4**", "gentle at 3e-4, warm-up 8 %"),
        ("`gentle`, 1e-4", "gentle at 1e-4"),
        ("`gentle`, 5e-4", "gentle at 5e-4"),
        ("`gentle`, 3e-4, 100 epochs", "gentle at 3e-4, 100 epochs"),
        ("`gentle`, 3e-4, a quarter of the steps as warm-up", "gentle at 3e-4, warm-up 25 %"),
    ],
)
def test_ways_to_go_on(label, model):
    columns = [("AqSolDB", "100"), ("AqSolDB", "300"), ("AqSolDB", "800"), ("FreeSolv", "513"), ("BBBP", "1631")]
    cells = table("### How the configuration fine-tunes", "validation error")[label]
    for (data, size), cell in zip(columns, cells, strict=True):
        assert not cell or cell == f"{mean('schedules', [model], 'val', set=data, size=size):.3f}"
