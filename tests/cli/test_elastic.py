"""torchrun starts a lost process again: the fit goes on from its last checkpoint, without anybody's help."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from command_line import SMALL_MODEL, graphbench
from equal_runs import content
from two_processes import on_two

from graphbench.cli.elastic import join_again

GRAPHBENCH = Path(sys.executable).with_name("graphbench")
TWO = [*SMALL_MODEL, "--trainer.strategy", "ddp", "--trainer.devices", "2", "--trainer.max_epochs", "60"]


def worker(torchrun: int, rank: int) -> int | None:
    """Process number of a rank that a torchrun has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == torchrun and f"LOCAL_RANK={rank}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:  # it has just ended
            continue
    return None


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(dist.TCPStore, "list_keys"), reason="this torch cannot list the keys of a store")
def test_processes_of_a_restart_meet_under_keys_of_their_own(tmp_path, monkeypatch):
    """In one store, as torchrun keeps it: addresses of the first start are neither read nor written again."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def meet(restart):
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restart)

        def work(rank):
            os.environ["MASTER_PORT"] = str(store.port)
            trainer = pl.Trainer(strategy="ddp", devices=2, accelerator="cpu", logger=False, default_root_dir=tmp_path)
            join_again(trainer)
            opened = dist.is_initialized()
            if not opened:
                dist.init_process_group("gloo")
            ranks = torch.tensor([1.0 + rank])
            dist.all_reduce(ranks)
            return opened, float(ranks)

        return on_two(tmp_path / f"restart-{restart}", work)

    assert meet("0") == [(False, 3.0)] * 2, "the first start is Lightning's"
    first = sorted(store.list_keys())
    addresses = store.multi_get(first)
    assert first
    assert meet("1") == [(True, 3.0)] * 2
    assert store.multi_get(first) == addresses
    added = set(store.list_keys()) - set(first)
    assert added
    assert all(key.startswith("restart-1/") for key in added), added


@pytest.fixture(params=["standalone", "static"])
def rendezvous(request):
    """Both keep their store of addresses over a restart."""
    if request.param == "standalone":
        return ["--standalone"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return ["--master-port", str(free.getsockname()[1])]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").is_file(), reason="no /proc to find the processes in")
def test_a_killed_rank_is_started_again_and_the_run_ends_as_if_nobody_had_been_killed(
    rendezvous, data_options, tmp_path
):
    run, whole = tmp_path / "run", tmp_path / "whole"
    command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "--", str(GRAPHBENCH), "fit", *data_options, *TWO]
    command += ["--run", str(run), "--if-exists", "resume"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("GRAPHBENCH_RUN", None)
    with (tmp_path / "output.txt").open("w") as output:
        started = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    said = tmp_path / "output.txt"
    end = time.monotonic() + 300
    while not (run / "checkpoints" / "last.ckpt").is_file():
        assert time.monotonic() < end, said.read_text()[-3000:]
        assert started.poll() is None, said.read_text()[-3000:]
        time.sleep(0.05)
    killed = worker(started.pid, 1)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    assert started.wait(600) == 0, said.read_text()[-3000:]
    assert f"Continuing {run} at step " in said.read_text()
    graphbench("fit", *data_options, *TWO, "--run", whole)
    one, two = content(whole), content(run)
    assert one["global_step"] == two["global_step"]
    assert all(torch.equal(value, two["state_dict"][name]) for name, value in one["state_dict"].items())
    tables = [pd.read_csv(folder / "metrics.csv") for folder in (whole, run)]
    rows = [table[["epoch", "val/MAE"]].dropna().to_numpy().tolist() for table in tables]
    assert rows[0] == rows[1]
