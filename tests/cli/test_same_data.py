"""A data file that changed after the fit is reported and refused by each command that uses the run."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
from command_line import SMALL_MODEL

from graphbench.benchmarks import Graphs, Molecules
from graphbench.cli import main
from graphbench.cli.same_data import differences, other_batches, refuse_other_source, source_of
from graphbench.errors import BadInput
from graphbench.runs import RunFolder

SHORT = [*SMALL_MODEL, "--trainer.max_epochs", "1", "--data.batch_size", "48"]


@pytest.fixture(scope="module")
def fitted(molecule_file, tmp_path_factory):
    """Return a folder with a file of molecules and a run on it."""
    folder = tmp_path_factory.mktemp("fitted")
    shutil.copy(molecule_file, folder / "mine.csv")
    data = ["--data", "Molecules", "--data.file", str(folder / "mine.csv"), "--data.target", "length"]
    data += ["--data.root", str(folder / "data")]
    assert main(["fit", *data, *SHORT, "--run", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def copy(fitted, tmp_path):
    """Return a copy of the run, which shares its data file; restore the file at the end."""
    before = (fitted / "mine.csv").read_bytes()
    shutil.copytree(fitted / "run", tmp_path / "run")
    yield tmp_path / "run"
    (fitted / "mine.csv").write_bytes(before)


def spoil(fitted, rows=20):
    """Remove molecules from the file, so that others are in the test split."""
    frame = pd.read_csv(fitted / "mine.csv")
    frame.iloc[rows:].to_csv(fitted / "mine.csv", index=False)


def content(run):
    """Return the files of a run's folder, except the empty logs that TensorBoard opens at first."""
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and "tfevents" not in path.name}


COMMANDS = [
    ["test", "--run"],
    ["validate", "--run"],
    ["predict", "--run"],
    ["fit", "--trainer.max_epochs", "2", "--resume"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_changed_file_is_refused_and_named(fitted, copy, capsys, command):
    before = content(copy)
    spoil(fitted)
    assert main([*command, str(copy)]) == 1
    said = capsys.readouterr().err
    assert f"The data are not those that {copy} was trained on: file is " in said
    assert "train has 80 graphs instead of 96" in said
    assert "--data-changed accept" in said
    assert "Traceback" not in said
    assert content(copy) == before


def test_other_options_of_the_split_are_refused(copy, capsys):
    assert main(["test", "--run", str(copy), "--data.split_seed", "5"]) == 1
    assert "train has other graphs, as many as before" in capsys.readouterr().err


@pytest.mark.slow
def test_who_accepts_goes_on_and_is_warned(fitted, copy, capsys):
    spoil(fitted)
    accept = ["--data-changed", "accept"]
    assert main(["test", "--run", str(copy), *accept]) == 0
    assert "used anyway" in capsys.readouterr().err
    assert "train has 80 graphs instead of 96" in json.loads((copy / "results.json").read_text())["data_changed"]
    assert main(["predict", "--run", str(copy), *accept]) == 0
    assert len(pd.read_csv(copy / "predictions-test.csv")) == 10
    record = json.loads((copy / "data.json").read_text())
    assert record["splits"]["train"]["graphs"] == 96, "only a fit changes what the run was trained on"
    # A run that resumes with other data was trained on both, and its record has the new ones
    assert main(["fit", "--resume", str(copy), "--trainer.max_epochs", "2", *accept]) == 0
    record = json.loads((copy / "data.json").read_text())
    assert record["splits"]["train"]["graphs"] == 80
    assert [earlier["splits"]["train"]["graphs"] for earlier in record["earlier"]] == [96]
    assert main(["test", "--run", str(copy)]) == 0
    assert "data_changed" not in json.loads((copy / "results.json").read_text())


@pytest.mark.slow
def test_equal_graphs_in_other_bytes_are_the_same_data(fitted, copy, capsys):
    text = (fitted / "mine.csv").read_text()
    (fitted / "mine.csv").write_text(text.replace("\n", "\r\n"), newline="")
    assert main(["validate", "--run", str(copy)]) == 0
    assert "trained on" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_of_an_earlier_version_is_used_with_one_line(copy, capsys):
    (copy / "data.json").unlink()
    assert main(["validate", "--run", str(copy)]) == 0
    said = capsys.readouterr().err
    assert said.count("whether they changed is unknown") == 1
    assert not (copy / "data.json").exists()
    assert main(["fit", "--resume", str(copy), "--trainer.max_epochs", "2"]) == 0
    assert json.loads((copy / "data.json").read_text())["splits"]["train"]["graphs"] == 96


@pytest.mark.slow
def test_bad_words_and_torn_records_are_named(copy, capsys):
    assert main(["test", "--run", str(copy), "--data-changed", "yes"]) == 1
    assert "--data-changed must be one of refuse, accept, but got 'yes'." in capsys.readouterr().err
    for text in ('{"splits": {"train"', "[]", '{"splits": {"train": 1}}', "{}"):
        RunFolder(copy).data.write_text(text)
        assert main(["test", "--run", str(copy)]) == 1
        said = capsys.readouterr().err
        assert "data.json cannot be read" in said
        assert "Traceback" not in said


@pytest.fixture(scope="module")
def solids(tmp_path_factory):
    """Train a run of one epoch on small point clouds."""
    folder = tmp_path_factory.mktemp("solids")
    data = ["--data", "Solids", "--data.sizes", "[36, 36, 36]", "--data.num_points", "16"]
    data += ["--data.root", str(folder / "data"), "--data.batch_size", "18"]
    assert main(["fit", *data, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(folder / "run")]) == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--data.unit", "deviation"], "unit is deviation instead of radius. Restore"),
        (["--data.rotations", "z/z"], "rotations is z/z instead of none. Restore"),
        (["--data.scaling", "[1, 1]"], "scaling is [1.0, 1.0] instead of [0.6, 1.4]. Restore"),
        (["--data.num_points", "8"], "num_points is 8 instead of 16; train has other graphs"),
        (["--data.train_fraction", "0.5"], "train_fraction is 0.5 instead of 1.0. Restore"),
    ],
)
def test_other_ways_of_point_clouds_to_the_model_are_refused(solids, tmp_path, capsys, options, said):
    run = shutil.copytree(solids, tmp_path / "run")
    before = content(run)
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "2", *options]) == 1
    assert said in capsys.readouterr().err
    assert content(run) == before


def test_who_accepts_other_point_clouds_trains_on_them_from_then_on(solids, tmp_path, capsys):
    run = shutil.copytree(solids, tmp_path / "run")
    other = ["--data.unit", "deviation", "--data-changed", "accept"]
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "2", *other]) == 0
    assert "unit is deviation instead of radius. They are used anyway." in capsys.readouterr().err
    record = json.loads((run / "data.json").read_text())
    assert (record["batches"]["unit"], record["earlier"][0]["batches"]["unit"]) == ("deviation", "radius")


def test_a_run_that_recorded_graphs_alone_goes_on_and_records_the_rest(solids, tmp_path):
    run = shutil.copytree(solids, tmp_path / "run")
    record = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({key: value for key, value in record.items() if key != "batches"}))
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "2", "--data.unit", "deviation"]) == 0
    record["batches"]["unit"] = "deviation"
    assert json.loads((run / "data.json").read_text()) == record


def test_options_of_batches_are_compared_where_both_are_known():
    then = {"batches": {"unit": "radius", "scaling": [0.6, 1.4]}}
    assert other_batches(then, then) == other_batches(then, {}) == other_batches({}, then) == []
    assert other_batches(then, {"batches": {"unit": "radius", "scaling": [1, 1], "new": 3}}) == [
        "scaling is [1, 1] instead of [0.6, 1.4]"
    ]


def test_graphs_of_one_source_that_another_machine_rounds_otherwise_are_the_same_data():
    def known(content, seed=1, graphs=4):
        return {"source": {"options": {"seed": seed}}, "splits": {"train": {"graphs": graphs, "content": content}}}

    assert differences(known("a"), known("b")) == []
    assert differences(known("a"), known("b", seed=2)) == [
        "options.seed is 2 instead of 1",
        "train has other graphs, as many as before",
    ]
    assert differences(known("a"), known("b", graphs=5)) == ["train has 5 graphs instead of 4"]
    assert differences(known("a"), {}) == [
        "options.seed is null instead of 1",
        "train has 0 graphs instead of 4",
    ]


def molecules(folder, **options):
    return Molecules(str(folder / "m.csv"), target="y", store=str(folder / "store"), **options)


def graphs(folder, **options):
    return Graphs(str(folder / "g.jsonl"), target="y", store=str(folder / "store"), **options)


@pytest.mark.parametrize(("make", "fold"), [(molecules, {"folds": 5}), (graphs, {"split": "k-fold", "num_folds": 5})])
def test_runs_of_data_that_changed_since_are_not_counted_as_done(make, fold, tmp_path):
    """Their split does not matter, and data that are gone are no error."""
    rows = [("C" * (1 + n % 9), n / 10) for n in range(40)]
    pd.DataFrame(rows, columns=["smiles", "y"]).to_csv(tmp_path / "m.csv", index=False)
    lines = [json.dumps({"nodes": {"a": [x / 2, 1.0]}, "edges": [[0, 1]], "y": y}) for x, (_, y) in enumerate(rows)]
    (tmp_path / "g.jsonl").write_text("\n".join(lines))
    runs = []
    for number, options in enumerate([{}, {"split_seed": 3}, {**fold, "fold": 2}]):
        run = RunFolder(tmp_path / str(number))
        run.path.mkdir()
        splits = {"train": {"graphs": 40, "content": "x"}}
        run.data.write_text(json.dumps({"splits": splits, "source": make(tmp_path, **options).source_key()}))
        runs.append(run)
    earlier = RunFolder(tmp_path / "earlier")
    earlier.path.mkdir()
    refuse_other_source([*runs, earlier], make(tmp_path), "")
    for name in ("m.csv", "g.jsonl"):
        (tmp_path / name).write_text((tmp_path / name).read_text().replace("3.9", "3.8"))
    for run in runs:
        with pytest.raises(BadInput, match="trained on other data"):
            refuse_other_source([run], make(tmp_path), "")
    refuse_other_source([earlier], make(tmp_path), "")
    gone = molecules(tmp_path)
    (tmp_path / "m.csv").unlink()
    assert source_of(gone) == {}
    refuse_other_source(runs, gone, "")
