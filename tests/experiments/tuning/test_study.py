"""Studies without trainings: the next trial, killed processes, several processes, other spaces."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import time

import pytest
from waits import wait_until

from graphbench.errors import BadInput, CorruptData, MissingExtra
from graphbench.experiments.tuning import Choice, PruneTrial, Range, Study, workers
from graphbench.runs import RunFolder

optuna = pytest.importorskip("optuna")

SPACE = {"x": Range(-2.0, 2.0), "layers": Range(1, 8), "kind": Choice(("a", "b"))}


@pytest.fixture
def study(tmp_path):
    """Return a function that opens the study of a folder; close all at the end."""
    opened = []

    def open_study(folder=tmp_path / "study", space=SPACE, facts=None, maximize=False, **options):
        opened.append(Study(folder, space, facts or {"trainer.max_epochs": 3}, "val/MAE", maximize, **options))
        return opened[-1]

    yield open_study
    for one in opened:
        one.close()


def parabola(params):
    return (params["x"] - 1) ** 2 + params["layers"] / 100


def run(study, total, most=None):
    """Finish trials until the study has `total`, or `most` of them; return their numbers."""
    numbers = []
    while (most is None or len(numbers) < most) and (begun := study.next(total)) is not None:
        study.finish(begun, parabola(begun.trial.params))
        numbers.append(begun.number)
    return numbers


@pytest.mark.slow
def test_the_best_of_all_trials_is_found(study):
    one = study()
    assert run(one, 16) == list(range(16))
    assert run(one, 16) == [], "the study has all its trials"
    best = one.best()
    assert best.value == min(parabola(trial.params) for trial in one.trials())
    shares = one.importances()
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=shares.get) == "x", "it decides nearly all of the score"


def test_a_study_that_was_cut_off_tries_what_it_would_have_tried(study, tmp_path, monkeypatch):
    monkeypatch.setattr("graphbench.experiments.tuning.study._RANDOM_TRIALS", 2)
    whole, parts = study(tmp_path / "whole"), tmp_path / "parts"
    run(whole, 6)
    first = study(parts)
    run(first, 6, most=4)
    first.close()
    second = study(parts)
    assert run(second, 6) == [4, 5]
    assert [trial.params for trial in second.trials()] == [trial.params for trial in whole.trials()]
    for number in (0, 1):  # killed before the options of a trial were chosen
        left = study(tmp_path / f"left{number}")
        run(left, 6, most=number)
        left._study.ask()
        left.close()
        begun = study(tmp_path / f"left{number}").next(6)
        assert (begun.number, begun.trial.params) == (number, whole.trials()[number].params)


def test_a_trial_of_a_killed_process_goes_on_under_its_number(study, tmp_path):
    folder = tmp_path / "study"
    study(folder).close()
    child = os.fork()
    if child == 0:  # killed in its second trial
        one = Study(folder, SPACE, {"trainer.max_epochs": 3}, "val/MAE", False)
        run(one, 9, most=1)
        begun = one.next(9)
        begun.trial.report(0.5, 0)
        os._exit(9)
    os.waitpid(child, 0)
    one = study(folder)
    left = one.trials()[1]
    begun = one.next(9)
    assert (begun.number, begun.trial.params) == (1, left.params)
    assert begun.run == RunFolder(folder / "trials" / "1")
    begun.trial.report(0.4, 1)
    one.finish(begun, 0.4)
    assert one.trials()[1].intermediate_values == {0: 0.5, 1: 0.4}
    assert one.next(9).number == 2


def test_a_trial_of_a_living_process_is_left_alone(study):
    first, second = study(), study()
    begun = first.next(5)
    assert second.next(5).number == 1
    assert begun.number == 0


def test_several_processes_share_the_trials(study, tmp_path):
    folder = tmp_path / "study"
    study(folder).close()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                one = Study(folder, SPACE, {"trainer.max_epochs": 3}, "val/MAE", False)
                while (begun := one.next(6)) is not None:
                    time.sleep(0.02)
                    begun.trial.set_user_attr("by", [*begun.trial.user_attrs.get("by", []), os.getpid()])
                    one.finish(begun, parabola(begun.trial.params))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    trials = study(folder).trials()
    assert [trial.number for trial in trials] == list(range(6))
    assert all(len(trial.user_attrs["by"]) == 1 for trial in trials), "no trial ran twice"
    assert all(trial.state.name == "COMPLETE" for trial in trials)


def test_failed_and_pruned_trials_are_never_the_best(study):
    one = study(maximize=True)
    begun = one.next(4)
    one.finish(begun, None, "it broke")
    begun = one.next(4)
    one.finish(begun, float("nan"))
    begun = one.next(4)
    begun.trial.report(9.0, 0)
    begun.trial.set_user_attr("pruned_in_epoch", 0)
    one.finish(begun, 9.0)
    assert one.best() is None
    one.finish(one.next(4), 0.3)
    assert one.best().number == 3
    assert [trial.state.name for trial in one.trials()] == ["FAIL", "FAIL", "PRUNED", "COMPLETE"]
    assert [trial.user_attrs.get("problem") for trial in one.trials()[:2]] == ["it broke", "val/MAE is not a number"]
    assert one.importances() == {}


def test_another_space_or_configuration_is_refused_by_name(study):
    study().close()
    with pytest.raises(BadInput, match=r"--space is not that of the study in .*: layers was .*'high': 8.*'high': 9"):
        study(space=SPACE | {"layers": Range(1, 9)})
    with pytest.raises(BadInput, match=r"--space .*: kind was \{'values': \['a', 'b'\]\}, now absent"):
        study(space={name: SPACE[name] for name in ("x", "layers")})
    with pytest.raises(BadInput, match=r"the configuration is not .*: trainer.max_epochs was 3, now 4"):
        study(facts={"trainer.max_epochs": 4})


def test_folders_that_hold_something_else_are_refused(study, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    with pytest.raises(BadInput, match="has the run of a fit"):
        study(tmp_path / "run")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.journal").write_text("no journal\n" * 100)
    with pytest.raises(CorruptData, match=r"study\.journal cannot be read as a study"):
        study()


def test_without_optuna_one_line_says_what_to_install(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"'optuna'.*pip install 'graphbench-lightning\[tune\]'"):
        study()


class Trainer:
    """The attributes of a trainer that the callback reads."""

    def __init__(self, epoch, score, sanity_checking=False):
        self.current_epoch, self.sanity_checking, self.should_stop = epoch, sanity_checking, False
        self.callback_metrics = {"val/MAE": score}


def epoch(callback, number, score, validated=True):
    trainer = Trainer(number, score)
    if validated:
        callback.on_validation_end(trainer, None)
    callback.on_train_epoch_end(trainer, None)
    return trainer.should_stop


def test_a_trial_behind_the_median_of_its_epoch_ends(study):
    """From the sixth trial on, Optuna prunes a trial whose best score is worse than the others' median."""
    one = study()
    for place in range(5):
        begun = one.next(6)
        callback = PruneTrial(begun.trial, "val/MAE")
        assert not any(epoch(callback, number, place + 1.0 - number / 10) for number in range(3))
        one.finish(begun, place + 0.8)
    begun = one.next(6)
    callback = PruneTrial(begun.trial, "val/MAE")
    assert not epoch(callback, 0, 2.9), "the median of 1 to 5 is 3"
    assert not epoch(callback, 1, 99.0, validated=False), "an epoch without a validation has no score"
    assert epoch(callback, 2, 2.91), "the best so far, 2.9, is not below the median of the best, 2.8"
    assert callback.pruned
    assert begun.pruned
    one.finish(begun, 2.9)
    assert one.trials()[5].state.name == "PRUNED"
    assert one.trials()[5].intermediate_values == {0: 2.9, 2: 2.91}


def test_nothing_is_pruned_where_nobody_wants_it(study):
    one = study(prune=False)
    for score in (1.0,) * 6 + (99.0,):
        begun = one.next(7)
        assert not epoch(PruneTrial(begun.trial, "val/MAE"), 0, score)
        one.finish(begun, score)


def test_a_file_system_without_locks_has_signs_of_life(study, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = study(), study()
    assert first.next(2).number == 0
    assert second.next(2).number == 1, "the trial of a living process"


# -- several machines ------------------------------------------------------------------------------------------------


def on_another_machine(work):
    """Fork a process that seems to be on another machine: another host name, and locks that are not seen here."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        workers.this_machine = lambda: f"elsewhere-{os.getpid()}"
        work()
        status = 0
    finally:
        os._exit(status)


def test_two_machines_do_the_trials_of_one_study(study, tmp_path):
    folder, there = tmp_path / "study", tmp_path / "there"
    there.mkdir()

    def work():
        one = Study(folder, SPACE, {"trainer.max_epochs": 3}, "val/MAE", False)
        while (begun := one.next(8)) is not None:
            (there / str(os.getpid())).touch()
            wait_until(lambda: len(list(there.iterdir())) == 2)  # the other one has begun a trial, too
            begun.trial.set_user_attr("by", [*begun.trial.user_attrs.get("by", []), os.getpid()])
            one.finish(begun, parabola(begun.trial.params))

    children = [on_another_machine(work) for _ in range(2)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    trials = study(folder).trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 8
    assert {len(trial.user_attrs["by"]) for trial in trials} == {1}, "no trial ran twice"
    assert {trial.user_attrs["by"][0] for trial in trials} == set(children), "both took some"


@pytest.mark.slow
def test_a_trial_that_another_machine_left_goes_on_after_its_signs_of_life(study, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "BEAT", 0.1)
    monkeypatch.setattr(workers, "STALE", 6.0)
    folder, begun_there = tmp_path / "study", tmp_path / "begun"

    def work():
        begun = Study(folder, SPACE, {"trainer.max_epochs": 3}, "val/MAE", False).next(1)
        begun.trial.report(0.5, 0)
        begun_there.touch()
        time.sleep(60)

    child = on_another_machine(work)
    wait_until(begun_there.exists)
    one = study(folder)
    assert one.next(1) is None, "it is alive"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    time.sleep(0.5)  # several signs of life are missing, too few to be sure
    begun = one.next(1)
    assert (begun.number, one.trials()[0].intermediate_values) == (0, {0: 0.5})
    one.finish(begun, 0.4)
    assert one.best().value == 0.4


def test_a_process_that_seemed_gone_does_not_overwrite_its_successor(study, monkeypatch):
    first, second = study(), study()
    begun = first.next(1)
    monkeypatch.setattr(second._worker, "is_alive", lambda name: False)  # the first was suspended for minutes
    again = second.next(1)
    assert again.number == begun.number
    first.finish(begun, 7.0)
    assert second.trials()[0].state.name == "RUNNING"
    second.finish(again, 0.3)
    first.finish(begun, 7.0)
    assert second.trials()[0].value == 0.3


def test_pruning_compares_trials_of_all_machines(study, tmp_path):
    def work():
        one = Study(tmp_path / "study", SPACE, {"trainer.max_epochs": 3}, "val/MAE", False)
        for place in range(5):
            begun = one.next(7)
            for number in range(3):
                epoch(PruneTrial(begun.trial, "val/MAE"), number, place + 1.0)
            one.finish(begun, place + 1.0)

    child = on_another_machine(work)
    assert os.waitpid(child, 0)[1] == 0
    one = study()
    assert not epoch(PruneTrial(one.next(7).trial, "val/MAE"), 0, 2.9), "the median of 1 to 5 is 3"
    assert epoch(PruneTrial(one.next(7).trial, "val/MAE"), 0, 3.1)


def test_trials_of_other_data_are_not_compared(study):
    one = study(data={"file": "a1", "columns": ["smiles", ("y",)]})
    run(one, 2)
    one.close()
    assert run(study(data={"file": "a1", "columns": ["smiles", ["y"]]}), 3) == [2]
    with pytest.raises(BadInput, match="file was a1, now b2"):
        study(data={"file": "b2", "columns": ["smiles", ["y"]]})


def test_a_study_that_did_not_keep_its_data_goes_on(study):
    one = study(data={"file": "a1"})
    kept = one._study.user_attrs["of"]
    one._study.set_user_attr("of", {part: kept[part] for part in ("space", "configuration")})
    one.close()
    assert run(study(data={"file": "b2"}), 1) == [0]
