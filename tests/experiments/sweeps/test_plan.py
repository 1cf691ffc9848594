"""The trainings of a sweep."""

import pytest

from graphbench.errors import BadInput
from graphbench.experiments.sweeps.plan import Sweep, parse_numbers, parse_variation


def names(sweep):
    return [f"{training.name}-{training.seed}" for _, training in sweep.trainings()]


def test_models_variations_splits_folds_and_seeds_are_multiplied(tmp_path):
    sweep = Sweep(
        configs=["gps/zinc", "sat/zinc.yaml"],
        seeds=[3, 4],
        variations={"trainer.max_epochs": ["1", "2"], "model.kind": ["a/b"]},
        folds=3,
        split_seeds=[7, 8],
        options=["--trainer.accelerator=cpu"],
    )
    every = names(sweep)
    assert len(every) == len(set(every)) == 2 * 2 * 2 * 3 * 2
    assert every[0] == "gps-zinc-max_epochs=1-kind=a_b-split7-fold0-3"
    assert all(name.endswith("-3") for name in every[:24]), "all of the first seed come first"
    _, training = sweep.trainings()[-1]
    assert training.folder(tmp_path).name == every[-1] == "sat-zinc-max_epochs=2-kind=a_b-split8-fold2-4"
    assert training.arguments(tmp_path) == [
        "--config", "sat/zinc.yaml", "--trainer.accelerator=cpu", "--trainer.max_epochs=2", "--model.kind=a/b",
        "--data.init_args.split_seed=8", "--data.init_args.folds=3", "--data.init_args.fold=2", "--seed_everything=4",
    ]  # fmt: skip


def test_files_of_one_name_are_told_apart_by_their_folders():
    assert names(Sweep(["a/x.yaml", "b/x.yaml"])) == ["a-x-0", "b-x-0"]
    assert names(Sweep(["a/x.yaml"])) == ["x-0"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (Sweep(["a/x", "a/x"]), "would have the folder x"),
        (Sweep(["x"], variations={"a": ["1/2", "1,2"]}), "would have the folder x-a=1_2"),
        (Sweep(["x"], seeds=range(1000), folds=3), "has 3,000 trainings; at most 1,000"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(sweep, message):
    with pytest.raises(BadInput, match=message):
        sweep.trainings()


def test_numbers_and_ranges():
    assert parse_numbers("--seeds", " 4, 0-2,1 ") == [4, 0, 1, 2]
    for text in ("", "a", "3-1", "-1", "0-1000", "4294967296", "1.5"):
        with pytest.raises(BadInput, match=r"--seeds .*: expected numbers and ranges such as 0-4 or 0,2,7-9"):
            parse_numbers("--seeds", text)


def test_variations_keep_values_as_they_were_meant():
    assert parse_variation("--a.b=true,null,1e-3,GINE,[4, 2],x") == (
        "a.b",
        ["true", "null", "1e-3", "GINE", "[4, 2]", "x"],
    )
    typed = ["1:00:00:00", "01:30", "010", "no", "on", "2026-01-02", "0x1F"]
    assert parse_variation(f"x={','.join(typed)}")[1] == typed, "YAML 1.1 has other meanings for these"
    assert parse_variation("x='1','a, b'")[1] == ["1", "a, b"]
    for text in ("a", "=3", "a=", "a=[1", "a=1]: [2"):
        with pytest.raises(BadInput, match="expected OPTION=VALUE,VALUE"):
            parse_variation(text)


def test_benchmarks_are_multiplied_with_models_and_have_folds_of_their_own(tmp_path):
    folds = {"x-CSL": [{"fold": 0}, {"fold": 1}], "x-Graphs": [{"split": "k-fold", "fold": 0}, {"fold": 1}]}
    sweep = Sweep(["x"], folds=2, fold_options=folds, benchmarks=["CSL", "Graphs --data.source 'a b.pt'"])
    assert names(sweep) == ["x-CSL-fold0-0", "x-Graphs-fold0-0", "x-CSL-fold1-0", "x-Graphs-fold1-0"]
    _, training = sweep.trainings()[1]
    assert training.arguments(tmp_path) == [
        "--config", "x", "--data", "Graphs", "--data.source", "a b.pt", "--data.init_args.split=k-fold",
        "--data.init_args.fold=0", "--seed_everything=0",
    ]  # fmt: skip
    for wrong in ("", "--data.source x", "Graphs 'a", "Graphs source=x", "Graphs --run here"):
        with pytest.raises(BadInput, match="expected a name and options of its data"):
            names(Sweep(["x"], benchmarks=[wrong]))
