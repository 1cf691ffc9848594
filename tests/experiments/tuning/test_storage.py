"""Where a study is stored: a journal that several processes append to, or a database, never both."""

from __future__ import annotations

import json
import multiprocessing
import time

import pytest

from graphbench.errors import BadInput
from graphbench.experiments.tuning import Range, Study
from graphbench.experiments.tuning.storage import FolderLock

optuna = pytest.importorskip("optuna")


@pytest.fixture
def study(tmp_path):
    opened = []

    def open_study(name="study", storage=None):
        opened.append(Study(tmp_path / name, {"x": Range(0.0, 1.0)}, {}, "val/MAE", False, storage=storage))
        return opened[-1]

    yield open_study
    for one in opened:
        one.close()


def finish_one(study, total, score):
    begun = study.next(total)
    study.finish(begun, score)
    return begun.number


def test_optuna_reads_the_journal(study, tmp_path):
    """The file on disk is a study of Optuna with the finished scores."""
    one = study()
    for score in (3.0, 1.0, 2.0):
        finish_one(one, 3, score)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study" / "study.journal"))
    (name,) = optuna.get_all_study_names(storage := optuna.storages.JournalStorage(backend))
    read = optuna.load_study(study_name=name, storage=storage)
    assert [trial.value for trial in read.trials] == [3.0, 1.0, 2.0]


def test_a_torn_last_entry_is_removed(study, tmp_path):
    """A full disk leaves such an entry; a line appended to it would make the journal unreadable."""
    finish_one(study(), 2, 3.0)
    with (tmp_path / "study" / "study.journal").open("ab") as file:
        file.write(b'{"op_code": 5, "worker_id": "')
    one = study()
    assert finish_one(one, 2, 2.0) == 1
    assert [trial.value for trial in study().trials()] == [3.0, 2.0]


@pytest.mark.slow
def test_two_studies_in_one_database_do_not_meet(study, tmp_path):
    url = f"sqlite:///{tmp_path}/all.db"
    assert finish_one(study("a", url), 5, 1.0) == 0
    assert finish_one(study("b", url), 5, 2.0) == 0
    assert finish_one(study("a", url), 5, 3.0) == 1
    assert [trial.value for trial in study("a", url).trials()] == [1.0, 3.0]
    assert len(optuna.get_all_study_names(url)) == 2


def test_a_study_goes_on_where_it_lies(study, tmp_path):
    url = f"sqlite:///{tmp_path}/all.db"
    study("a", url)
    with pytest.raises(BadInput, match=r"started with --storage sqlite:///"):
        study("a")
    study("b")
    with pytest.raises(BadInput, match="started without --storage"):
        study("b", url)


@pytest.mark.slow
def test_a_study_of_an_earlier_version_goes_on_by_its_url(study, tmp_path):
    (tmp_path / "study").mkdir()
    url = f"sqlite:///{tmp_path}/study/study.db"
    old = optuna.create_study(storage=url, study_name="graphbench", direction="minimize")
    old.add_trial(optuna.trial.create_trial(value=0.7))
    with pytest.raises(BadInput, match=r"study\.db is a study of an earlier version\. Continue with --storage sqlite"):
        study()
    assert finish_one(study(storage=url), 2, 0.5) == 1
    assert [trial.value for trial in study(storage=url).trials()] == [0.7, 0.5]


def test_a_database_that_is_not_there_is_named_without_its_password(study, tmp_path):
    with pytest.raises(BadInput, match=r"--storage sqlite:////nowhere/at/all\.db: "):
        study(storage="sqlite:////nowhere/at/all.db")
    with pytest.raises(BadInput, match="must be the URL of a database") as wrong:
        study(storage="secret")
    assert "secret" not in str(wrong.value)
    study(storage=f"sqlite:///{tmp_path}/right.db")  # a wrong one leaves nothing behind
    record = json.loads((tmp_path / "study" / "storage.json").read_text())
    assert record["storage"].endswith("right.db")


def count_up(folder, times):
    lock, path = FolderLock(folder / "x"), folder / "count"
    for _ in range(times):
        with lock.held():
            value = int(path.read_text())
            time.sleep(0.001)
            path.write_text(str(value + 1))


def test_one_process_at_a_time_holds_the_lock(tmp_path):
    (tmp_path / "count").write_text("0")
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=count_up, args=(tmp_path, 20)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert (tmp_path / "count").read_text() == "60"
