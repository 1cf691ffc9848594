"""Runs that share a row or a table, and the names of both."""

from __future__ import annotations

import json

import pytest
import yaml

from graphbench.report import groups as module
from graphbench.report import result_tables
from graphbench.report.groups import differences, flatten, group_runs, replicate, split_sizes
from graphbench.report.loading import load_run, load_runs


def grouped(*folders):
    return group_runs(load_runs(folders))


def test_runs_that_differ_in_the_seed_are_one_group(make_run):
    groups = grouped(make_run("a", seed=0), make_run("b", architecture="GCN"), make_run("c", seed=1))
    assert [(group.label, group.replicates) for group in groups] == [("GPS", "0, 1"), ("GCN", "0")]
    assert groups[0].several
    assert not groups[1].several


def test_an_option_tells_groups_apart_and_is_their_name(make_run):
    groups = grouped(make_run("a", num_heads=2), make_run("b", num_heads=4), make_run("c", seed=1, num_heads=4))
    assert [group.label for group in groups] == ["GPS (num_heads 2)", "GPS (num_heads 4)"]
    assert [group.replicates for group in groups] == ["0", "0, 1"]
    assert differences(groups) == {"model.architecture.init_args.num_heads": ["2", "4"]}


def test_other_seeds_are_configuration(make_run):
    assert len(grouped(make_run("a", split_seed=0), make_run("b", seed=1, split_seed=1))) == 2


def test_many_differences_are_cut_and_labels_stay_different(make_run):
    options = {f"o{i}": i for i in range(5)}
    groups = grouped(
        make_run("a", **options), make_run("b", **(options | {"o4": 7})), make_run("c", **dict.fromkeys(options, 9))
    )
    labels = [group.label for group in groups]
    assert labels[2] == "GPS (o0 9, o1 9, o2 9, …)"
    assert labels[:2] == ["GPS (o0 0, o1 1, o2 2, …) [a]", "GPS (o0 0, o1 1, o2 2, …) [b]"]


def test_naming_flattens_every_configuration_once(make_run, monkeypatch):
    calls = []
    monkeypatch.setattr("graphbench.report.groups.flatten", lambda *given: calls.append(1) or flatten(*given))
    groups = grouped(*(make_run(str(heads), num_heads=heads) for heads in range(20)), make_run("b", architecture="GT"))
    assert [group.label for group in groups][18:] == ["GPS (num_heads 18)", "GPS (num_heads 19)", "GT"]
    assert len(calls) == 21


def test_hundreds_of_runs_are_not_compared_in_pairs(make_run, monkeypatch):
    made = [make_run(f"{heads}-{seed}", seed=seed, num_heads=heads) for heads in range(3) for seed in range(20)]
    for folder in made:
        folder.data.write_text(json.dumps({"splits": {"train": {"graphs": 3, "content": "x"}}}))
    calls = []
    monkeypatch.setattr(module, "replicate", lambda run: calls.append(1) or replicate(run))
    groups = grouped(*made)
    assert [[group.label for group in part] for part in module.on_same_data(groups)] == [[g.label for g in groups]]
    assert len(calls) == 2 * len(made)


def test_a_label_names_classes_first_and_what_was_left_out_last(make_run):
    groups = grouped(
        make_run("a", rate=None, encoder={"class_path": "graphbench.nn.RWSEEncoder"}),
        make_run("b", rate=0.1, encoder={"class_path": "graphbench.nn.LapPEEncoder"}),
    )
    assert [group.label for group in groups] == [
        "GPS (encoder RWSEEncoder, rate none)",
        "GPS (encoder LapPEEncoder, rate 0.1)",
    ]


def test_a_label_names_what_runs_have_otherwise_before_what_comes_with_a_class(make_run):
    def encoder(name, **options):
        return {"class_path": name, "init_args": {"dim": 6, "depth": 3, "width": 8, **options}}

    groups = grouped(
        make_run("a", encoder=encoder("zoo.Walks", start="ones")),
        make_run("b", encoder=encoder("zoo.Walks", start="zeros")),
        make_run("c", encoder={"class_path": "zoo.Plain"}),
    )
    assert groups[1].label == "GPS (encoder Walks, start zeros, depth 3, …)"


def test_of_a_long_path_the_end_is_shown(make_run):
    start = "runs/a-long-name/checkpoints/best.ckpt"
    groups = grouped(make_run("a", start=start), make_run("b", start="other"))
    assert groups[0].label == "GPS (start …e/checkpoints/best.ckpt)"


def test_of_a_long_name_in_a_module_the_end_is_shown(make_run):
    one = make_run("a", optimizer="graphbench.training.module.adam_w")
    two = make_run("b", optimizer="graphbench.training.module.sgd")
    labels = [group.label for group in group_runs(load_runs([one, two]))]
    assert "module.adam_w" in labels[0]
    assert "module.sgd" in labels[1]


def test_a_run_without_configuration_joins_nobody(make_run):
    folders = [make_run(name, seed=seed) for seed, name in enumerate("abc")]
    for folder in folders[1:]:
        folder.config.write_text("]")
    groups = grouped(*folders)
    assert len(groups) == 3
    assert len({group.label for group in groups}) == 3


def test_a_repeated_seed_is_known(make_run):
    (group,) = grouped(make_run("a", seed=1), make_run("b", seed=1), make_run("c", seed=2))
    assert group.repeated_seeds == ["1"]


def test_flatten_names_leaves():
    assert flatten({"a": {"b": [1, {"c": None}]}, "d": {}, "e": []}) == {
        "a.b.0": "1",
        "a.b.1.c": "none",
        "d": "{}",
        "e": "[]",
    }


@pytest.fixture
def trained_on(make_run):
    """Return a function that writes a run with a record of its data: file, content and data options."""

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
    told = split_sizes([load_run(one, "a"), load_run(other, "b")])
    for part in ("80 to 81 training", " 10 validation", "9 to 10 test", "1,234 rows"):
        assert part in told


@pytest.mark.parametrize("text", ["{}", '{"splits": 3}', '{"splits": {"train": {}}}', "["])
def test_a_broken_record_is_a_sentence(trained_on, text):
    folder = trained_on("a")
    folder.data.write_text(text)
    run = load_run(folder, "a")
    assert run.data == {}
    assert text == "{}" or any("data.json" in problem for problem in run.problems)
    assert split_sizes([run]) == ""
