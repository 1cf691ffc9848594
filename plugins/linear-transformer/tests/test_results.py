"""The page's numbers of table 2 on QM9 and of the figures, against the rows of their runs."""

import csv
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"
ROWS = list(csv.DictReader((RESULTS / "table-2-qm9.csv").open(encoding="utf-8")))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["encoding"])
def test_the_table_has_the_scores_of_the_rows(row):
    page = (RESULTS / "README.md").read_text(encoding="utf-8").partition("## Table 2 on QM9")[2]
    starts = [float(score) for score in row["first"].split()]
    assert int(row["chosen"]) == starts.index(min(starts))
    cells = [f"{int(row['parameters']):,}", ", ".join(f"{score:.3f}" for score in starts)]
    cells += [f"{float(row[split]):.3f}" for split in ("val", "test")]
    assert f" | {' | '.join(cells)} | " in page


def losses(figure, **where):
    """(target, family, layers) -> log loss of seed 0, whose eigenvectors are named loss_1-k."""
    found = {}
    for row in csv.DictReader((RESULTS / f"figure-{figure}.csv").open(encoding="utf-8")):
        if row["seed"] == "0" and all(row[name] == value for name, value in where.items()):
            target = row["target"] if row["target"] != "eigenvectors" else f"loss_1-{row['num_eigenvectors']}"
            found[target, row["family"], row["num_layers"]] = float(row["log_loss"])
    return found


def test_the_table_of_losses_has_those_of_the_rows():
    general, efficient = losses("1") | losses("2"), losses("15")
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    for target, family in dict.fromkeys(key[:2] for key in general):
        known = [side.get((target, family, layers)) for side in (general, efficient) for layers in "13579"]
        cells = [target, family, *("" if loss is None else f"{loss:.2f}" for loss in known)]
        assert cells in [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]


def test_differences_from_the_published_recipe_are_those_of_the_rows():
    page = (RESULTS / "README.md").read_text(encoding="utf-8").partition("## How far from")[2]
    reduced = losses("1")
    for batch in ("10000", "1000"):
        for key, loss in losses("1-published", batch_size=batch).items():
            cells = [*key, f"{int(batch):,}", f"{loss:.2f}", f"{reduced[key]:.2f}"]
            (line,) = [line for line in page.splitlines() if line.startswith(f"| {' | '.join(cells)} | ")]
            assert float(line.split("|")[-2]) == pytest.approx(reduced[key] - loss, abs=0.0051)
