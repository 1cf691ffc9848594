"""A command that is killed at any of its writes leaves all of its files in a folder or none of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from command_line import SMALL_MODEL
from forked import forked, killed_at_write

from graphbench.cli.commands import score
from graphbench.cli.trained import written_together
from graphbench.data.files.sharing import acquire_lock
from graphbench.data.files.writing import finish_writing
from graphbench.runs import RunFolder
from graphbench.runs.holding import InUse, locked
from graphbench.runs.tables import load_table

pytestmark = pytest.mark.usefixtures("with_report")
GAP = "diagnostics/train_test_gap.csv"


@pytest.fixture(scope="module")
def fitted(data_options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    options = ["--trainer.max_epochs", "2", "--trainer.callbacks+=TrainTestGap"]
    ended = forked(folder, "fit", *data_options, *SMALL_MODEL, *options, "--run", folder / "run")
    assert ended.code == 0, ended.text
    return folder / "run"


def of_test(run):
    """Return which outputs exist: scores, and rows of the table; a report must show the scores."""
    stages = [row["stage"] for row in load_table(run / GAP).as_dicts()]
    assert stages[:4] == ["fit"] * 4, "rows of the training stay"
    results = json.loads((run / "results.json").read_text())
    if "test" in results and (run / "report.html").is_file():
        assert f"{results['test']['test/MAE']:.4f}" in (run / "report.html").read_text()
    return {"test" in results, "test" in stages}


def of_prediction(run):
    table = run / "predictions-test.csv"
    intervals = "intervals" in json.loads((run / "results.json").read_text())
    return {intervals, table.is_file() and len(pd.read_csv(table).filter(like="_low").columns) == 1}


def of_comparison(run):
    names = ("report.html", "table.md", "table.csv", "table.tex")
    return {(run / "page" / name).is_file() for name in names}


def of_explanation(run):
    return {(run / "why" / name).is_file() for name in ("nodes.csv", "edges.csv", "rows.csv", "row-0.png")}


COMMANDS = {
    "test": (lambda run: ["test", "--run", run], of_test),
    "predict": (lambda run: ["predict", "--run", run, "--interval", "0.5"], of_prediction),
    "report": (lambda run: ["report", run, "--output", run / "page"], of_comparison),
    "explain": (
        lambda run: ["explain", "--run", run, "--rows", "0", "--steps", "2", "--output", run / "why"],
        of_explanation,
    ),
}


def survives(fitted, folder, name, number, where=""):
    """Kill a command at its n-th write; return whether it ended before, and which outputs exist."""
    run = shutil.copytree(fitted, folder / "run")
    words, outputs = COMMANDS[name]
    ended = forked(folder, *words(run), prepare=killed_at_write(Path(f"{run}{where}"), number))
    assert ended.code in (-signal.SIGKILL, 0), ended.text
    for folder_of_files in (run, run / "page", run / "why"):  # as by the next command that opens them
        finish_writing(folder_of_files)
    there = outputs(run)
    assert len(there) == 1, f"in part after a kill at write {number}: {ended.text}"
    assert not [*run.rglob(".commit-*"), *run.rglob(".staged-*")]
    shutil.rmtree(run)
    return ended.code == 0, there


def test_a_test_that_is_killed_between_its_files_is_whole_when_the_run_is_opened(fitted, tmp_path):
    assert survives(fitted, tmp_path, "test", 2, "/.commit-") == (False, {True})


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_kill_at_any_write_leaves_all_or_nothing(fitted, tmp_path, name):
    number, seen, finished = 0, set(), False
    while not finished:
        number += 1
        finished, there = survives(fitted, tmp_path / str(number), name, number)
        seen |= there
    assert there == {True}
    assert number > 3
    assert seen == {True, False}


def test_scores_of_a_named_checkpoint_do_not_count_as_not_looked_at(fitted, tmp_path):
    run = shutil.copytree(fitted, tmp_path / "run")
    ended = forked(tmp_path, "test", "--run", run, "--checkpoint", run / "checkpoints" / "last.ckpt")
    assert ended.code == 0, ended.text
    assert forked(tmp_path, "report", run, "--output", tmp_path / "page").code == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert "not recorded" in page
    assert page.count("not looked at") == 1, "only in the explanation of the columns"


def files_of(run):
    paths = [path for path in run.rglob("*") if path.is_file() and path.name not in (".lock", ".holder")]
    return {path: path.read_bytes() for path in paths}


def test_nothing_is_written_beside_a_fit_or_over_one_that_has_begun_meanwhile(tmp_path, caplog):
    run = RunFolder(tmp_path)
    request = SimpleNamespace(run=run)
    with locked(run.path), written_together(request) as (staged, _):
        assert staged is None
    assert f"is being trained by process {os.getpid()} on " in caplog.text
    writing = written_together(request)
    staged, _ = writing.__enter__()
    (staged.path / "results.json").write_text("{}")
    with locked(run.path), pytest.raises(InUse):
        writing.__exit__(None, None, None)
    assert files_of(run.path) == {}
    with written_together(request) as (staged, _):
        (staged.path / "results.json").write_text("{}")
    assert [path.name for path in files_of(run.path)] == ["results.json"]


@pytest.mark.slow
def test_a_test_leaves_a_run_that_is_being_trained_as_it_is(fitted, tmp_path):
    """It would restore the tables and results that it read, without what the fit has written since."""
    run = shutil.copytree(fitted, tmp_path / "run")
    before = files_of(run)
    with locked(run):
        ended = forked(tmp_path, "test", "--run", run)
        assert files_of(run) == before
    assert ended.code == 0
    assert "MAE" in ended.text
    assert f"is being trained by process {os.getpid()} on " in ended.text
    assert "nothing is stored in it" in ended.text

    def begin_fit():
        show = score._show

        def shown(*arguments):
            held.append(acquire_lock(run / ".lock"))
            show(*arguments)

        held = []
        score._show = shown

    ended = forked(tmp_path, "test", "--run", run, prepare=begin_fit)
    assert (ended.code, "is in use: another process writes to it" in ended.text) == (1, True), ended.text
    assert files_of(run) == before
    assert forked(tmp_path, "test", "--run", run).code == 0
    assert of_test(run) == {True}
