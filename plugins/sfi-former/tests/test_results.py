"""The page's numbers on PATTERN against the records of its runs."""

import csv
import json
from pathlib import Path
from statistics import fmean, stdev

import pytest

RESULTS = Path(__file__).parents[1] / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
MODELS = {
    "sfi-former": "SFi-Former",
    "gps": "GPS",
    "gatedgcn": "GatedGCN, the same without attention and adjacency matrix",
}


@pytest.mark.parametrize("model", MODELS)
def test_the_table_has_means_and_deviations_of_the_records(model):
    runs = [json.loads(path.read_text()) for path in (RESULTS / "records").glob(f"pattern-{model}-?.json")]
    runs = [run for found in runs for run in (found if isinstance(found, list) else [found])]
    cells = [MODELS[model], f"{runs[0]['parameters']:,}", str(len(runs))]
    scores = [[run[split] for run in runs] for split in ("val", "test")]
    cells += [f"{fmean(values):.4f} ± {stdev(values):.4f}" for values in scores]
    with (RESULTS / "gradient_norms.csv").open(encoding="utf-8") as file:
        norms = [row for row in csv.DictReader(file) if row["model"] == model]
    ratios = [float(row["max_gradient_norm"]) / float(row["median_gradient_norm"]) for row in norms]
    digits = 1 if max(ratios) < 10 else 0
    cells += [f"{min(ratios):.{digits}f} to {max(ratios):.{digits}f}"]
    assert f"| {' | '.join(cells)} |" in PAGE
