"""The first page is short, its links work, and its scores are those of the records."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from graphbench import registry

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Pages with a table of options and their defaults.
PAGES_OF_OPTIONS = [
    page for page in sorted(ROOT.glob("plugins/*/README.md")) if "| option of `" in page.read_text(encoding="utf-8")
]
RESULTS = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
#: The web address of a file of the repository.
REPOSITORY = (
    r"https://(?:github\.com/graphbench-lightning/graphbench/blob|raw\.githubusercontent\.com/graphbench-lightning/graphbench)"
    r"/main/([^#]+)"
)
#: Name of an architecture in README -> name in the records.
NAMES = {
    "NeuralWalker with convolutions (random walks)": "NeuralWalker (sequence_layer=conv)",
    "GNN+ with GCN layers (message passing)": "GNNPlus (layer=GCN)",
    "SFi-Former": "SFiFormer",
    "SigGate-GT": "SigGateGT",
}


def rows(text):
    """Return the cells of every row of a Markdown table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def recorded(benchmark):
    """Return test scores by model from the equal-budget section of a benchmark."""
    section = RESULTS.partition(f"## All models at one equal small budget, {benchmark}\n")[2].partition("\n## ")[0]
    head, _, *body = rows(section)
    return {row[head.index("model")]: row[head.index("test")].rpartition(" ")[0] for row in body}


def test_it_is_read_in_a_minute():
    assert len(README.splitlines()) <= 120


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("plugins/*/README.md"))], ids=str)
def test_links_lead_somewhere_from_the_index_too(page):
    """A package index shows this text without the files of the repository, so links are complete addresses."""
    text = page.read_text(encoding="utf-8")
    named = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, re.MULTILINE))
    used = set(re.findall(r"\]\[([^\]]+)\]", text))
    assert used == named.keys()
    links = [*named.values(), *re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)]
    assert page != ROOT / "README.md" or len(links) > 15
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [match[1] for link in links if (match := re.match(REPOSITORY, link))]
    assert [path for path in ours if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES_OF_OPTIONS, ids=lambda page: page.parent.name)
def test_defaults_in_tables_of_options_are_those_of_the_classes(page):
    """Compare numbers, names, true and false; words such as "the benchmark's" are left to the reader."""
    tables, compared = r"^\| option of `(\w+)` \|.*\n\|[-|]+\n((?:\|.*\n)+)", 0
    for owner, body in re.findall(tables, page.read_text(encoding="utf-8"), re.MULTILINE):
        for first, *_, last in rows(body):
            names, _, other = first.partition(" of ")
            options = signature(registry.load("architectures", other.strip("`") or owner)).parameters
            for option, shown in zip(re.findall(r"`(\w+)`", names), last.split(", "), strict=False):
                default = options[option].default
                if re.fullmatch(r"[\w.+-]+", shown):
                    number = str(float(shown)) if re.fullmatch(r"[\d.e-]+", shown) else ""
                    stands = {"null", "none"} if default is None else {str(default), str(default).lower()}
                    assert {shown, number} & stands, (owner, option, shown, default)
                    compared += 1
    assert compared


@pytest.mark.parametrize(("benchmark", "column"), [("ZINC", 1), ("PATTERN", 2)])
def test_its_scores_are_those_of_the_records(benchmark, column):
    scores = recorded(benchmark)
    shown = {row[0]: row[column] for row in rows(README) if any("±" in cell for cell in row)}
    assert len(shown) == 8
    for name, score in shown.items():
        model = NAMES.get(name, name.partition(" (")[0])
        assert score in ("-", scores.get(model))


def test_it_counts_the_architectures_of_the_records():
    models = {re.match(r"\w+", name)[0] for benchmark in ("ZINC", "PATTERN") for name in recorded(benchmark)}
    assert f"All {len(models)} architectures" in README


def test_what_it_says_to_be_met_is_met_in_the_ledger():
    """The sentence on published lengths names exactly the models that the ledger counts as met in that table."""
    sentence = re.search(r"At published length (.+?) with 4 layers meet their printed MAE on ZINC", README, re.DOTALL)
    named = set(re.split(r", | and ", sentence[1].replace("\n", " ")))
    ledger = (ROOT / "LEDGER.md").read_text(encoding="utf-8")
    section = ledger.partition("\n## benchmarking-gnns/zinc:")[2].partition("\n## ")[0]
    head, _, *body = rows(section)
    met = {(row[head.index("row")], row[head.index("column")]) for row in body if row[head.index("status")] == "met"}
    assert "and so they do with 16, as does GatedGCN-E" in README
    deepest = {("GatedGCN-E", "16 layers")}
    assert met == {(name, f"{depth} layers") for name in named for depth in (4, 16)} | deepest


def test_the_page_of_measurements_counts_as_the_ledger_does():
    page = (ROOT / "docs" / "explanation" / "measured.md").read_text(encoding="utf-8").replace("\n", " ")
    told = re.search(
        r"Of the (\d+) values that the papers print, (\d+) are met \((\d+) by runs .*? (\d+) by counted operations\); "
        r"(\d+) were not trained",
        page,
    )
    ledger = (ROOT / "LEDGER.md").read_text(encoding="utf-8")
    head, _, *body = rows(ledger.partition("\n## ")[0])
    counts = {row[head.index("status")]: int(row[head.index("all")]) for row in body}
    operations = ledger.partition("\n## sft/table-7:")[2].partition("\n## ")[0].count("| met |")
    met = [counts["met"], counts["met"] - operations, operations]
    assert [int(number) for number in told.groups()] == [sum(counts.values()), *met, counts["not run"]]
