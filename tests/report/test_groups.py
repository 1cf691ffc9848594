"""Which runs share a row, and what the rows are called."""

from graphbench.report.groups import differences, flatten, group_runs
from graphbench.report.loading import load_runs


def grouped(*folders):
    return group_runs(load_runs(folders))


def test_runs_that_differ_in_the_seed_are_one_group(make_run):
    groups = grouped(make_run("a", seed=0), make_run("b", architecture="GCN"), make_run("c", seed=1))
    assert [(group.label, group.seeds) for group in groups] == [("GPS", ["0", "1"]), ("GCN", ["0"])]
    assert groups[0].several
    assert not groups[1].several


def test_an_option_tells_groups_apart_and_is_their_name(make_run):
    groups = grouped(make_run("a", num_heads=2), make_run("b", num_heads=4), make_run("c", seed=1, num_heads=4))
    assert [group.label for group in groups] == ["GPS (num_heads 2)", "GPS (num_heads 4)"]
    assert [group.seeds for group in groups] == [["0"], ["0", "1"]]
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
