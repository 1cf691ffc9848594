"""The pages' numbers of depth on ZINC against the rows of its runs."""

import csv
from pathlib import Path
from statistics import fmean, stdev

import pytest

PLUGIN = Path(__file__).parents[1]
ROWS = list(csv.DictReader((PLUGIN / "results" / "zinc_depth.csv").open(encoding="utf-8")))


def published(model, layers, split):
    """Mean and standard deviation over three seeds as the pages write them."""
    values = [float(row[split]) for row in ROWS if (row["model"], row["layers"]) == (model, str(layers))]
    assert len(values) == 3
    return f"{fmean(values):.3f} ± {stdev(values):.3f}"


@pytest.mark.parametrize("layers", [12, 24])
def test_the_table_has_means_and_deviations_of_the_rows(layers):
    page = (PLUGIN / "results" / "README.md").read_text(encoding="utf-8")
    cells = [published(model, layers, split) for model in ("deepgraph", "graphormer") for split in ("val", "test")]
    assert f"| {layers} | {' | '.join(cells)} |" in page


@pytest.mark.parametrize(
    "page", [PLUGIN / "README.md", PLUGIN.parents[1] / "docs" / "explanation" / "measured.md"], ids=["plug-in", "site"]
)
def test_the_first_pages_say_the_same_of_the_test_split(page):
    if not page.is_file():
        pytest.skip("the plug-in stands alone")
    text = " ".join(page.read_text(encoding="utf-8").split())
    for model in ("deepgraph", "graphormer"):
        assert " and ".join(published(model, layers, "test") for layers in (12, 24)) in text
