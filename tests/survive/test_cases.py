"""Some hostile cases of every kind; `make survive` runs thousands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st
from scripts import load_script

cases = load_script(Path(__file__).with_name("cases.py"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    made = cases.Stage(folder, seconds=60.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        cases.build(made)
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("kind", cases.KINDS)
def test_many_cases_end_in_words_or_right_numbers(stage, kind):
    ran, found, examples = cases.run(stage, kind, cases=60, start=2)
    assert ran >= 40
    assert not found, "\n".join(examples.values())


def test_what_must_not_be_is_found(tmp_path, monkeypatch):
    """A traceback, a silent failure, a changed number and an endless command each become a complaint."""

    def broken(words):
        if words[0] == "raise":
            raise ZeroDivisionError("by zero")
        while words[0] == "hang":
            pass
        return 1 if words[0] == "silent" else 0

    monkeypatch.setattr("hostile.graphbench", broken)
    short = cases.Stage(tmp_path, seconds=0.05)
    commands = {"raise": "ZeroDivisionError of `raise`", "silent": "without a word", "hang": "hang of `hang`"}
    monkeypatch.setitem(cases.KINDS, "broken", lambda here, data: here.call(data.draw(st.sampled_from([*commands]))))
    _, found, examples = cases.run(short, "broken", cases=40, start=0)
    assert len(found) == 3
    for words in commands.values():
        assert any(words in kind for kind in found), examples
    with pytest.raises(cases.Wrong, match="silent wrong number"):
        cases.hold_close("a number", [1.0], [1.01])
    with pytest.raises(cases.Wrong, match="silent wrong number"):
        cases.hold_close("a number", [float("nan")], [float("nan")])
