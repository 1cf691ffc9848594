"""`graphbench prepare --part`: shares, kills and jobs leave the store that one undisturbed process makes."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from forked import forked, start, wait

from graphbench.cli import main
from graphbench.data import encode
from graphbench.data.parts import kept

MODEL = ["--model.architecture", "GPS", "--model.architecture.hidden_dim", "8", "--model.architecture.num_layers", "1",
         "--model.architecture.num_heads", "2", "--model.positional_encoding", "RWSEEncoder",
         "--model.positional_encoding.dim", "4"]  # fmt: skip


@pytest.fixture
def small_parts(monkeypatch):
    """Make many parts of few molecules, whose encodings have several chunks."""
    monkeypatch.setattr(kept, "PART_ROWS", 16)
    monkeypatch.setattr(encode, "PART_ROWS", 16)
    monkeypatch.setattr(encode, "CHUNK_GRAPHS", 8)


def prepare(source, store, *options):
    data = ["--data", "Molecules", "--data.file", source, "--data.target", "length", "--data.store", store]
    return [str(word) for word in ("prepare", *data, *MODEL, *options)]


def arrays(store):
    """Return the bytes of a store's arrays by entry and name; its parts must be gone."""
    assert not list(store.glob("parts/[!p]*"))
    found = {(path.parent.name, path.name): path.read_bytes() for path in store.glob("[!.p]*/*.npy")}
    assert {name.partition("-")[0] for name, _ in found} == {"table", "encoding"}
    return found


def test_shares_that_are_given_twice_make_the_store_of_one_command(molecule_file, tmp_path, small_parts, capsys):
    """The first time they read the molecules, the second time they compute encodings."""
    store = tmp_path / "store"
    assert main(prepare(molecule_file, tmp_path / "whole")) == 0
    for share in ("2/2", "1/2", "2/2"):
        assert main(prepare(molecule_file, store, "--part", share)) == 0
    said = capsys.readouterr().err
    assert said.count("Share 2/2 is done") == 1, "the first time"
    assert arrays(store) == arrays(tmp_path / "whole")


def test_a_share_of_a_launcher_is_a_process_of_its_own(molecule_file, tmp_path, small_parts, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(prepare(molecule_file, tmp_path / "store", "--part", "auto")) == 0
    assert list((tmp_path / "store" / "parts").iterdir())


@pytest.mark.slow
def test_two_shares_at_once_that_are_killed_after_a_part_make_the_store_of_one_command(
    molecule_file, tmp_path, small_parts
):
    whole, store, chance = tmp_path / "whole", tmp_path / "store", random.Random(0)

    def parts():
        return len(list(store.glob("parts/*/part-*")))

    def ended(process):
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    assert forked(tmp_path / "out", *prepare(molecule_file, whole)).code == 0
    killed = 0
    for _ in range(8):
        before = parts()
        shares = [start(tmp_path / "out", *prepare(molecule_file, store, "--part", f"{n}/2")) for n in (1, 2)]
        while parts() <= before and not all(ended(process) for process, _ in shares):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.05))
        for process, _ in shares:
            os.kill(process, signal.SIGKILL)
        killed += [wait(*share).code for share in shares].count(-signal.SIGKILL)
    assert killed >= 8
    assert forked(tmp_path / "out", *prepare(molecule_file, store)).code == 0
    assert arrays(store) == arrays(whole)


@pytest.mark.slow
def test_jobs_do_a_share_each_and_the_last_joins(molecule_file, tmp_path, capsys):
    pytest.importorskip("submitit")
    launched = ["--launcher", "submitit", "--launcher.cluster", "local", "--launcher.time", "60"]
    assert main(prepare(molecule_file, tmp_path / "store", *launched)) == 1
    assert "--launcher.at_once" in capsys.readouterr().err
    assert main(prepare(molecule_file, tmp_path / "whole")) == 0
    assert main(prepare(molecule_file, tmp_path / "store", *launched, "--launcher.at_once", "2")) == 0
    assert "mean nodes" in capsys.readouterr().err
    assert arrays(tmp_path / "store") == arrays(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--part", "3/2"], "--part"),
        (["--part", "1/2", "--launcher", "submitit", "--launcher.cluster", "debug", "--launcher.time", "1"], "--part"),
        (["--launcher.gpus", "1"], "--launcher.gpus"),
    ],
)
def test_a_mistake_is_one_line(molecule_file, tmp_path, options, named, capsys):
    assert main(prepare(molecule_file, tmp_path / "store", *options)) == 1
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
