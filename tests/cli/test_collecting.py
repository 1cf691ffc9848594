"""How often Python collects while a command starts, and once there is a model."""

import gc

import pytest
from command_line import SMALL_MODEL

from graphbench.cli import collecting, main
from graphbench.cli.collecting import collect_as_usual, seldom_collected


def test_what_was_usual_comes_back_whatever_happens():
    before = gc.get_threshold()
    seen = []

    def fail():
        with seldom_collected():
            seen.append(gc.get_threshold())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [(collecting._SELDOM, *before[1:])]
    assert gc.get_threshold() == before


def test_commands_inside_of_commands_end_apart():
    """As sweeps start trainings."""
    before = gc.get_threshold()
    with seldom_collected():
        collect_as_usual()
        with seldom_collected():
            assert gc.get_threshold() != before
        assert gc.get_threshold() == before
    assert gc.get_threshold() == before


def test_a_process_of_its_own_sets_aside_what_it_starts_with():
    try:
        with seldom_collected(own_process=True):
            assert gc.get_freeze_count() == 0
            collect_as_usual()
            assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


def test_nothing_is_changed_outside_of_a_command():
    before = gc.get_threshold()
    collect_as_usual()
    assert gc.get_threshold() == before


def test_a_training_collects_as_usual(data_options, tmp_path, monkeypatch):
    from pytorch_lightning import Trainer

    before, seen, fit = gc.get_threshold(), [], Trainer.fit

    def noted(self, *arguments, **options):
        seen.append(gc.get_threshold())
        return fit(self, *arguments, **options)

    monkeypatch.setattr(Trainer, "fit", noted)
    options = ["--trainer.max_steps", "1", "--run", str(tmp_path / "run")]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 0
    assert seen == [before] == [gc.get_threshold()]
