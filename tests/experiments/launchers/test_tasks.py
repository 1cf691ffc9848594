"""Order and outcome of tasks on a local Ray cluster with room for two; see also `cli/test_launched.py`."""

from __future__ import annotations

import pytest

from graphbench.experiments.launchers import Cluster, Unit, launch
from graphbench.experiments.launchers.units import read_notes

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


def units(folder, **commands):
    return [Unit(name, words, folder / "logs" / f"{name}.log") for name, words in commands.items()]


def test_stages_follow_each_other_and_a_failure_stops_no_other_unit(tmp_path):
    good, bad = ("completion", "bash"), ("completion", "fish")
    first, second = units(tmp_path, a=good, b=bad, c=good), units(tmp_path, d=good)
    (last,) = units(tmp_path, last=good)
    launch([first, second], Cluster("ray", per_task=2), tmp_path, last)
    notes = {unit.name: read_notes(unit.record) for unit in (*first, *second, last)}
    assert {name: note["code"] for name, note in notes.items()} == {"a": 0, "b": 1, "c": 0, "d": 0, "last": 0}
    assert notes["a"]["process"] == notes["b"]["process"], "they share a task"
    assert max(notes[name]["ended"] for name in "abc") <= notes["d"]["began"]
    assert notes["d"]["ended"] <= notes["last"]["began"]
