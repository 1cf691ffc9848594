"""Table files: ways to obtain a value, refused files, and the contents of the shipped tables."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from graphbench import registry
from graphbench.errors import BadInput, NameClash, UnknownName
from graphbench.experiments.reproduce import tables as reader
from graphbench.experiments.reproduce.printed import Printed
from graphbench.experiments.reproduce.recipes import benchmark_of, expected
from graphbench.experiments.reproduce.tables import COSTS, find_table, read_table, table_files, tables
from graphbench.registry.configurations import configurations

ROOT = Path(__file__).parents[3]
#: Number of printed values by table; `SCORES` are the results that the four papers print.
SCORES = {
    "electric-flow/table-2": 6,
    "sft/table-1": 41, "sft/table-2": 46, "sft/table-3": 42, "sft/table-4": 50, "sft/table-5": 10,
    "sfi-former/table-1": 66, "sfi-former/table-2": 47, "sfi-former/table-3": 30,
    "deepgraph/table-1": 37, "deepgraph/table-2": 16, "deepgraph/table-3": 6, "deepgraph/appendix-j": 12,
}  # fmt: skip
OTHERS = {
    "electric-flow/table-1": 6, "electric-flow/figure-1": 0, "electric-flow/figure-2": 0, "electric-flow/figure-15": 0,
    "sft/table-6": 6, "sft/table-7": 45, "sft/table-8": 112, "sft/table-9": 108,
    "sft/figure-3": 0, "sft/figure-5": 0, "sft/figure-6": 0, "sft/figure-7": 0, "sft/figure-8": 0,
    "sfi-former/table-4": 27, "sfi-former/table-5": 84, "sfi-former/table-6": 62,
    "sfi-former/figure-3": 0, "sfi-former/figure-4": 0, "sfi-former/section-5.4": 5, "sfi-former/questions": 0,
    "deepgraph/figure-1": 0, "deepgraph/figure-3": 0, "deepgraph/appendix-c": 7, "deepgraph/appendix-h": 47,
}  # fmt: skip
SHIPPED = tables()
CELLS = [(name, cell) for name, table in SHIPPED.items() for cell in table.cells]


def test_every_table_of_the_four_papers_is_there_with_all_its_values():
    held = {name: sum(bool(cell.printed.text) for cell in table.cells) for name, table in SHIPPED.items()}
    assert {name: held.get(name) for name in (*SCORES, *OTHERS)} == SCORES | OTHERS
    assert sum(SCORES.values()) == 409
    for name in SCORES:
        assert all(cell.printed.value is not None for cell in SHIPPED[name].cells), name


def test_every_value_has_a_way_and_a_source():
    for name, cell in CELLS:
        assert cell.recipe or cell.what, (name, cell.row, cell.column)
        assert SHIPPED[name].place in cell.source
        if cell.way == "recipe":
            assert cell.metric.startswith(("test/", "diagnostics/")) or cell.metric in COSTS, (
                name,
                cell.row,
                cell.column,
            )


def test_every_named_recipe_is_installed():
    known = configurations()
    lost = {part for _, cell in CELLS for part in (*cell.recipe, *cell.after) if part not in known}
    assert not lost


def test_options_are_words_of_the_form_name_value():
    words = {word for _, cell in CELLS for word in cell.options}
    assert words
    assert all(re.fullmatch(r"--[a-z_.]+\+?=[^{}]+", word) for word in words), words


@pytest.mark.slow
def test_a_recipe_trains_on_the_data_of_its_column():
    for name, cell in CELLS:
        benchmark = SHIPPED[name].columns[cell.column].benchmark
        if cell.recipe and benchmark:
            assert benchmark_of(cell.recipe) == benchmark, (name, cell.row, cell.column)


def test_printed_values_and_those_that_recipes_expect_agree():
    """If they differ, the papers do, and the cell has a note."""
    compared = 0
    for name, cell in CELLS:
        said = expected(cell.recipe) if cell.way == "recipe" and not cell.options else None
        if said is None or cell.printed.value is None or said.value is None or said.metric != cell.metric:
            continue
        scale = SHIPPED[name].columns[cell.column].scale
        same = abs(said.value * scale - cell.printed.value) <= cell.printed.unit * (1 + 1e-6)
        assert same or cell.note, (name, cell.row, cell.column, said.value, cell.printed.text)
        if same and said.sd is not None and cell.printed.sd is not None and not cell.note:
            assert said.sd * scale == pytest.approx(cell.printed.sd, rel=0.06), (name, cell.row, cell.column)
        compared += same
    assert compared > 120


def test_a_disagreement_between_papers_stands_there_with_both_values():
    cell = find_table("sfi-former/table-1").by_place["gps-transformer", "coco-sp"]
    assert (cell.printed.value, cell.printed.sd) == (0.3774, 0.015)
    assert "0.3412" in cell.note


def test_a_best_known_value_is_better_than_the_printed_one_and_has_a_source():
    better = {"test/MAE": -1}
    held = [(name, cell) for name, cell in CELLS if cell.best]
    assert len(held) == 47
    for name, cell in held:
        gain = better.get(cell.metric, 1) * (Printed.read(cell.best).value - cell.printed.value)
        misprinted = (name, cell.row, cell.column) == ("sft/table-4", "s4", "listops")
        assert misprinted or gain > 0, (name, cell.row, cell.column)
        assert cell.best_known == f"{cell.best} ({cell.best_source})"
        assert re.search(r"arXiv|ICML|NeurIPS|repository", cell.best_source), cell.best_source


def test_a_best_known_value_without_a_source_is_refused(table_text, tmp_path):
    path = tmp_path / "table-1.yaml"
    row = "{name: SAN, missing: SAN, cells: {pattern: 86.58 ± 0.04}"
    path.write_text(table_text.replace(row, f"{row}, best: {{pattern: 86.9}}"), encoding="utf-8")
    with pytest.raises(BadInput, match="best_source"):
        read_table(path, "somebody/table-1")
    path.write_text(table_text.replace(row, f"{row}, best: {{patern: 86.9}}"), encoding="utf-8")
    with pytest.raises(BadInput, match="Did you mean pattern"):
        read_table(path, "somebody/table-1")


def test_the_nearest_way_counts(table):
    assert table.by_place["ours", "pattern"].recipe == ("sfi-former/pattern",)
    assert table.by_place["ours", "epochs"].way == "setting"
    assert table.by_place["plus", "pattern"].after == ("sfi-former/pattern", "sfi-former/overlays/dense")
    other = table.by_place["other", "pattern"]
    assert (other.way, other.what, other.recipe, other.is_open) == ("missing", "SAN", (), False)
    curve = table.by_place["curve", "pattern"]
    assert (curve.printed.text, curve.options) == ("", ("--data.init_args.batch_size=8",))
    assert table.by_place["ours", "pattern"].source == "Somebody, 2026, table 1, SFi-Former, PATTERN, %"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("missing: SAN", "mising: SAN", "Did you mean missing"),
        ("missing: SAN, ", "", "does not say how to obtain its value"),
        ("printed: 4", "printed: 5", "has 4 printed values, but says 5"),
        ("batch_size={b}", "batch_size={c}", "cannot be filled in"),
        ("place: table 1", "", "place is missing"),
        ("cells: {pattern: 86.58 ± 0.04}", "cells: {patern: 86.58 ± 0.04}", "Did you mean pattern"),
    ],
)
def test_a_damaged_table_is_refused_with_the_place(table_text, tmp_path, old, new, told):
    path = tmp_path / "table.yaml"
    path.write_text(table_text.replace(old, new), encoding="utf-8")
    with pytest.raises(BadInput, match=told):
        read_table(path, "somebody/table-1")


def test_an_unknown_table_gets_near_names():
    with pytest.raises(UnknownName, match="Did you mean sft/table-4"):
        find_table("sft/tabel-4")


def test_tables_are_listed_in_their_order():
    names = [name for name in table_files() if name.startswith("electric-flow/figure")]
    assert names == [f"electric-flow/figure-{name}" for name in ("1", "1-notebook", "2", "15")]


@pytest.fixture
def entries(monkeypatch, tmp_path, table_text):
    """Write two packages with a table each; return the list of registered entries."""
    for package in ("one", "two"):
        (tmp_path / f"tables_of_{package}" / "tables").mkdir(parents=True)
        (tmp_path / f"tables_of_{package}" / "__init__.py").touch()
        (tmp_path / f"tables_of_{package}" / "tables" / "table-1.yaml").write_text(table_text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    monkeypatch.setattr(registry, "table_entries", lambda: tuple(found))
    return found


def entry(prefix, package):
    return registry.ConfigEntry(prefix, f"graphbench-{package}", "1.0", f"tables_of_{package}", "tables")


def test_a_plugin_adds_its_own_and_one_without_files_is_named(entries, monkeypatch):
    told = []
    monkeypatch.setattr(reader.log, "warning", lambda text, *words: told.append(text % words))
    entries += [entry("mine", "one"), entry("lost", "nobody")]
    assert {name: owner for name, (_, owner) in table_files().items()} == {"mine/table-1": "graphbench-one"}
    assert [line for line in told if "lost of graphbench-nobody" in line]
    assert find_table("mine/table-1").distribution == "graphbench-one"


def test_one_name_of_two_distributions_is_refused(entries):
    entries += [entry("mine", "one"), entry("mine", "two")]
    with pytest.raises(NameClash, match="shipped by graphbench-one and graphbench-two"):
        table_files()


def test_a_wheel_holds_the_tables(tmp_path):
    pytest.importorskip("hatchling", reason="pip install hatchling, the build backend")
    folder = ROOT / "plugins" / "sft"
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=folder, capture_output=True, text=True, check=True
    )
    names = zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]).namelist()
    inside = {name.rpartition("/")[2] for name in names if name.startswith("graphbench_sft/tables/")}
    assert inside == {path.name for path in (folder / "tables").glob("*.yaml")} != set()
