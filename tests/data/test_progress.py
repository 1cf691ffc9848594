from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from graphbench.data import progress as module
from graphbench.data.progress import progress, track


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(module, "DELAY", -1.0)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


@pytest.fixture
def terminal(monkeypatch):
    """Replace standard error by a fake terminal."""
    screen = io.StringIO()
    monkeypatch.setattr(module, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    return screen


def test_track_passes_everything_on(at_once):
    assert list(track(iter(range(5)), "counting")) == list(range(5))


def test_short_work_is_silent(caplog, terminal):
    with caplog.at_level(logging.INFO):
        list(track(range(5), "counting"))
    assert caplog.text == ""
    assert terminal.getvalue() == ""


def test_two_lines_without_a_terminal(at_once, caplog):
    with caplog.at_level(logging.INFO):
        list(track(range(5), "counting", unit="graphs"))
    begin, end = caplog.messages
    assert begin == "counting: 1 of 5 graphs so far"
    assert end.startswith("counting: 5 graphs in ")


def test_an_unknown_amount_is_counted(at_once, caplog):
    with caplog.at_level(logging.INFO), progress("counting", unit="rows") as advance:
        advance(1024)
    assert caplog.messages[0] == "counting: 1,024 rows so far"


def test_a_terminal_gets_bars_and_nested_ones_share_it(at_once, terminal):
    with progress("outer work", 2) as advance:
        advance(1)
        list(track(range(3), "inner work"))
        advance(1)
    assert "outer work" in terminal.getvalue()
    assert "inner work" in terminal.getvalue()
    assert module._TERMINAL.progress is None


def test_other_ranks_stay_silent(at_once, terminal, monkeypatch, caplog):
    monkeypatch.setenv("LOCAL_RANK", "1")
    with caplog.at_level(logging.INFO):
        list(track(range(5), "counting"))
    assert terminal.getvalue() == caplog.text == ""


def test_an_error_ends_the_bar(at_once, terminal):
    def fail():
        with progress("doomed", 2) as advance:
            advance(1)
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    assert module._TERMINAL.progress is None
