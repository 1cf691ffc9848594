"""Torn files of a run: one line names the file, or the command works without it; never a traceback."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
from command_line import SMALL_MODEL
from forked import forked
from quick import one_of_each

from graphbench.cli import main


@pytest.fixture
def torn(finished_run, tmp_path):
    """Return a function that copies a finished run and truncates one of its files, or replaces its content."""

    def make(name, part=0.5, content=None):
        run = shutil.copytree(finished_run, tmp_path / "run")
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: int(part * len(whole))] if content is None else content)
        return run

    return make


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("config.yaml", b"data: {class_path: Molecules\n", ["test", "--run"]),
        ("config.yaml", b"data: {class_path: Molecules, init_args: {file: 2024-13-45}}\n", ["fit", "--resume"]),
        ("config.yaml", b"model: !!bool maybe\n", ["predict", "--run"]),
        ("results.json", None, ["test", "--run"]),
        ("results.json", None, ["predict", "--run"]),
        ("data.json", None, ["test", "--run"]),
        ("data.json", b'{"splits": {}, "source": [1]}', ["predict", "--run"]),
        ("checkpoints/best.ckpt", None, ["test", "--run"]),
    ],
)
def test_a_file_that_is_needed_is_named_before_anything_is_computed(torn, monkeypatch, capsys, name, content, command):
    run = torn(name, content=content)
    for loop in ("validate", "predict", "fit"):
        monkeypatch.setattr(f"pytorch_lightning.Trainer.{loop}", lambda *args, **kwargs: pytest.fail("computed"))
    if "data.json" in name:
        monkeypatch.undo()  # the data must be open before they are compared
    assert main([*command, str(run)]) == 1
    said = capsys.readouterr().err.strip()
    assert str(run / name) in said.splitlines()[-1]
    assert said.splitlines()[-1].startswith("graphbench: ")
    assert "Traceback" not in said


def test_a_best_checkpoint_that_is_gone_is_not_replaced_in_silence(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    (run / "checkpoints" / "best.ckpt").unlink()
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "out.csv")]) == 0
    assert "best.ckpt is missing: using last.ckpt, which may be worse." in capsys.readouterr().err


@pytest.mark.usefixtures("with_report")
def test_scores_and_report_do_without_a_table(finished_run, torn, capsys):
    expected = json.loads((finished_run / "results.json").read_text())["val"]
    run = torn("metrics.csv", part=0.7)
    assert main(["test", "--run", str(run)]) == 0
    assert "Traceback" not in capsys.readouterr().err
    results = json.loads((run / "results.json").read_text())
    assert results["val"] == expected
    assert "test/MAE" in results["test"]
    assert (run / "report.html").is_file()


@pytest.mark.parametrize(
    "name", one_of_each(["results.json", "config.yaml", "metrics.csv", "training.json", "environment.json"], number=2)
)
def test_a_report_leaves_a_torn_file_out_and_says_so(torn, tmp_path, capsys, name):
    run = torn(name, content=b'\xff\x00{"a": [1\n')
    assert main(["report", str(run), "--output", str(tmp_path / "page")]) == 0
    assert "Traceback" not in capsys.readouterr().err
    page = (tmp_path / "page" / "report.html").read_text()
    assert name in ("training.json",) or f"{name} cannot be read" in page


def test_another_number_of_heads_in_the_configuration_is_no_silent_change(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    config = (run / "config.yaml").read_text()
    assert config.count("num_heads: 4") == 1
    output = ["--output", str(tmp_path / "out.csv")]
    assert main(["predict", "--run", str(run), *output]) == 0
    assert "trained with" not in capsys.readouterr().err
    (run / "config.yaml").write_text(config.replace("num_heads: 4", "num_heads: 2"))
    assert main(["predict", "--run", str(run), *output]) == 0
    assert "model.architecture.num_heads is 2 instead of 4" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.json", None),
        ("metrics.csv", b"epoch,step,train/loss\n1,2,3\n1,5\n2,8,1.0,4.0\n"),
        ("metrics.csv", None),
    ],
)
def test_a_fit_goes_on_beside_torn_scores_and_rows(torn, capsys, name, content):
    run = torn(name, content=content)
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "5"]) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert json.loads((run / "results.json").read_text())["epochs"] == 5
    assert pd.read_csv(run / "metrics.csv")["train/loss"].notna().sum() >= 2


def test_a_store_that_takes_no_large_file_is_one_line(data_options, tmp_path):
    """The kernel refuses the write, as on a file system that limits file sizes; for quotas see tests/data."""
    resource = pytest.importorskip("resource")
    store = tmp_path / "store"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    words = ["prepare", *data_options, "--data.store", store, *SMALL_MODEL]
    ended = forked(tmp_path, *words, prepare=limit)
    assert ended.code == 1, ended.text
    assert "Traceback" not in ended.text
    said = ended.text.strip().splitlines()[-1]
    assert said.startswith(f"graphbench: The store {store} lacks ")
    assert "its file system takes no file of that size" in said
    assert [path.name for path in store.iterdir()] == [".locks"]
    assert forked(tmp_path, *words).code == 0
