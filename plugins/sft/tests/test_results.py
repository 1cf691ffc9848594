"""The pages' numbers of evaluation as trained, against the rows of its runs."""

import csv
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1]
NAMES = {"solids": "Solids, accuracy", "listops": "ListOps, accuracy", "amppeptides": "AMPPeptides, AP"}
MODELS = [(name, model) for name in NAMES for model in ("sft", "softmax", "dense")] + [("amppeptides", "sft-walks")]


def rows(name):
    return list(csv.DictReader((PLUGIN / "results" / name).open(encoding="utf-8")))


def per_cent(benchmark, model, evaluation):
    """Return the test scores of seeds 0 and 1, from four digits, in per cent as on the page."""
    found = {
        row["seed"]: Decimal(row["test"]) * 100
        for row in rows("evaluation.csv")
        if (row["benchmark"], row["model"], row["evaluation"]) == (benchmark, model, evaluation)
    }
    if not found:  # a model that samples nothing is evaluated in one way
        assert evaluation == "as_trained"
        found = {
            row["seed"]: Decimal(row["test"]).quantize(Decimal("0.0001")) * 100
            for row in rows("runs.csv")
            if (row["benchmark"], row["model"]) == (benchmark, model)
        }
    assert sorted(found) == ["0", "1"]
    return " / ".join(str(found[seed].quantize(Decimal("0.1"), ROUND_HALF_UP)) for seed in "01")


@pytest.mark.parametrize(("benchmark", "model"), MODELS)
def test_the_table_has_the_scores_of_the_rows(benchmark, model):
    page = (PLUGIN / "results" / "README.md").read_text(encoding="utf-8")
    table = page.partition("\n## Against dense transformers")[2].partition("\n## ")[0]
    block = table.partition(f"| {NAMES[benchmark]} | `sft`")
    line = next(line for line in "".join(block[1:]).splitlines() if f"| `{model}` |" in line).replace("**", "")
    assert f"| {per_cent(benchmark, model, 'as_trained')} |" in line
    assert model == "dense" or line.endswith(f"| {per_cent(benchmark, model, 'topk')} |")
    count = next(r for r in rows("runs.csv") if (r["benchmark"], r["model"]) == (benchmark, model))["parameters"]
    assert f"| {int(count):,} |" in line


def test_the_first_page_says_the_same():
    page = PLUGIN.parents[1] / "docs" / "explanation" / "measured.md"
    if not page.is_file():
        pytest.skip("the plug-in stands alone")

    def mean(benchmark, model):
        found = [float(r["test"]) for r in rows("runs.csv") if (r["benchmark"], r["model"]) == (benchmark, model)]
        return f"{100 * sum(found) / len(found):.1f}"

    solids, listops = ((mean(name, "sft"), mean(name, "dense")) for name in ("solids", "listops"))
    said = f"solids {solids[0]} against {solids[1]} %, ListOps {listops[0]} against {listops[1]} %"
    assert said in page.read_text(encoding="utf-8")
