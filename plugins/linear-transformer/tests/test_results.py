"""Numbers of table 2 on QM9 on the page, against the rows of its runs."""

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
