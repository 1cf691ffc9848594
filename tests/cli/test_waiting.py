"""Whether threads that wait sleep."""

import os

import pytest

from graphbench.cli import main
from graphbench.cli.waiting import VARIABLE, cores_are_shared, settle_waiting

MANY = 64


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch):
    """64 cores with nothing to do."""
    monkeypatch.setenv(VARIABLE, "")  # so that it is put back
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.3, 0.0, 0.0), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: MANY)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MANY)), raising=False)


def test_threads_wait_awake_on_cores_of_their_own(tmp_path):
    assert not cores_are_shared(tmp_path)


@pytest.mark.parametrize(("load", "shared"), [(31.0, False), (33.0, True)])
def test_busy_cores_are_shared(monkeypatch, tmp_path, load, shared):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert cores_are_shared(tmp_path) is shared


@pytest.mark.parametrize(
    ("files", "shared"),
    [
        ({"cpu.max": "max 100000\n"}, False),
        ({"cpu.max": "200000 100000\n"}, True),
        ({"cpu.max": "6400000 100000\n"}, False),
        ({"cpu.max": "nonsense"}, False),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, False),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, True),
    ],
)
def test_a_container_with_less_time_than_cores_shares_them(tmp_path, files, shared):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cores_are_shared(tmp_path) is shared


def test_ranks_of_one_training_share_their_cores(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cores_are_shared(tmp_path)


def test_what_the_environment_says_is_kept(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    settle_waiting()
    assert os.environ[VARIABLE] == "PASSIVE"
    monkeypatch.setenv(VARIABLE, "ACTIVE")
    settle_waiting()
    assert os.environ[VARIABLE] == "ACTIVE"


@pytest.mark.parametrize(("rank", "policy"), [("0", "PASSIVE"), (None, None)])
def test_every_command_settles_it(monkeypatch, capsys, rank, policy):
    monkeypatch.setattr("graphbench.cli.waiting._granted", lambda groups: MANY)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert main(["--help"]) == 0
    assert os.environ.get(VARIABLE) == policy
    assert "fit" in capsys.readouterr().out
