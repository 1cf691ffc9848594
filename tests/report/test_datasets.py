"""Runs on other files or splits are in tables of their own."""

from __future__ import annotations

import json

import pytest
import yaml

from graphbench.report import result_tables
from graphbench.report.datasets import split_sizes
from graphbench.report.loading import load_run


@pytest.fixture
def trained_on(make_run):
    """Writes a run with a record of its data: name of the file, its checksum, and options of the data."""

    def write(name, file="a.csv", content="a", architecture="GPS", seed=0, left_out=0, sizes=(80, 10, 10), **options):
        folder = make_run(name, architecture=architecture, seed=seed)
        config = yaml.safe_load(folder.config.read_text())
        config["data"]["init_args"] |= {"file": file, **options}
        folder.config.write_text(yaml.safe_dump(config))
        splits = {
            split: {"graphs": size, "content": f"{content} {split} {sorted(options.items())}"}
            for split, size in zip(("train", "val", "test"), sizes, strict=True)
        }
        record = {"benchmark": "NCI", "version": 1, "source": {"file": content, **options}, "splits": splits}
        folder.data.write_text(json.dumps(record | ({"left_out": left_out} if left_out else {})))
        return folder

    return write


def shown(tables):
    return [(table.benchmark, [(group.label, len(group.runs)) for group in table.groups]) for table in tables]


def test_other_files_are_other_tables_named_by_what_differs(trained_on):
    runs = [
        trained_on("a0"),
        trained_on("b0", file="b.csv", content="b"),
        trained_on("a1", architecture="GCN"),
        trained_on("b1", file="b.csv", content="b", seed=1),
    ]
    assert shown(result_tables(runs)) == [
        ("NCI (file a.csv)", [("GPS (file a.csv)", 1), ("GCN", 1)]),
        ("NCI (file b.csv)", [("GPS (file b.csv)", 2)]),
    ]


def test_a_copy_of_a_file_is_the_same_data(trained_on):
    (table,) = result_tables([trained_on("a"), trained_on("b", file="copy.csv", architecture="GCN")])
    assert table.benchmark == "NCI"


def test_a_file_that_changed_between_two_runs_is_two_kinds_of_data(trained_on):
    tables = result_tables([trained_on("a"), trained_on("b", content="changed", seed=1)])
    assert [table.benchmark for table in tables] == ["NCI (data 1)", "NCI (data 2)"]


def test_folds_and_seeds_of_splits_share_a_table_where_models_have_them(trained_on):
    folds = [
        trained_on(f"{model}-{fold}", architecture=model, folds=3, fold=fold)
        for model in ("GPS", "GCN")
        for fold in (0, 1)
    ]
    plain = trained_on("plain", architecture="GIN")
    tables = result_tables([*folds, plain])
    assert shown(tables) == [
        ("NCI (folds 3)", [("GPS", 2), ("GCN", 2)]),
        ("NCI (folds none)", [("GIN", 1)]),
    ]


def test_runs_that_do_not_say_their_data_stay_together(make_run, trained_on):
    (table,) = result_tables([make_run("old"), trained_on("new", architecture="GCN")])
    assert len(table.groups) == 2


def test_sizes_of_splits_and_left_out_rows_are_told(trained_on):
    one, other = trained_on("a", left_out=1234), trained_on("b", sizes=(81, 10, 9))
    assert split_sizes([load_run(one, "a"), load_run(other, "b")]) == (
        "Graphs: 80 to 81 training, 10 validation, 9 to 10 test. 1,234 rows of the file could not be used and were "
        "left out."
    )


@pytest.mark.parametrize("text", ["{}", '{"splits": 3}', '{"splits": {"train": {}}}', "["])
def test_a_broken_record_is_a_sentence(trained_on, text):
    folder = trained_on("a")
    folder.data.write_text(text)
    run = load_run(folder, "a")
    assert run.data == {}
    assert text == "{}" or any("data.json" in problem for problem in run.problems)
    assert split_sizes([run]) == ""
