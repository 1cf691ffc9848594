"""torchrun restarts a lost process: the fit resumes from its last checkpoint, without help."""

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

from graphbench.cli.ranks import join_again

GRAPHBENCH = Path(sys.executable).with_name("graphbench")
TWO = [*SMALL_MODEL, "--trainer.strategy", "ddp", "--trainer.devices", "2", "--trainer.max_epochs", "60"]


def worker(torchrun: int, rank: int) -> int | None:
    """Return the process number of a rank that a torchrun has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == torchrun and f"LOCAL_RANK={rank}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:  # it has ended
            continue
    return None


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(dist.TCPStore, "list_keys"), reason="this torch cannot list the keys of a store")
def test_processes_of_a_restart_meet_under_keys_of_their_own(tmp_path, monkeypatch):
    """torchrun keeps one store: addresses of the first start are neither read nor written again."""
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
    """Return options of a rendezvous that keeps its store of addresses over a restart."""
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


#: 127.0.0.1 and ::1 as the kernel writes them.
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def of_group(group):
    """Return the numbers of the processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def listening(group):
    """Return process, address and port, in hexadecimal, of all that the processes of a group listen on."""
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path("/proc/net", kind).read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]": line[1].split(":") for line in lines if line[3] == "0A"}
    found = set()
    for process in of_group(group):
        try:
            links = [str(link.readlink()) for link in Path("/proc", str(process), "fd").iterdir()]
        except OSError:
            continue
        found |= {(process, *sockets[link]) for link in links if link in sockets}
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux says in /proc who listens where")
@pytest.mark.parametrize("strategy", ["ddp", "slurm"])
def test_processes_of_one_host_listen_on_loopback_alone(strategy, data_options, tmp_path):
    run = tmp_path / "run"
    options = [*SMALL_MODEL, "--trainer.strategy", "ddp", "--trainer.devices", "2", "--trainer.accelerator", "cpu"]
    command = [GRAPHBENCH, "fit", *data_options, *options, "--trainer.max_epochs", "500", "--run", run]
    environment = {**os.environ}
    for name in ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"):
        environment.pop(name, None)
    environments = [environment]
    if strategy == "slurm":  # as srun sets it for two tasks of one node
        slurm = {
            "SLURM_NTASKS": "2", "SLURM_NNODES": "1", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NAME": "fit", "SLURM_NODELIST": socket.gethostname(), "SLURM_NODEID": "0",
            "SLURM_STEP_ID": "0",
        }  # fmt: skip
        environments = [
            {**environment, **slurm, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)
        ]
    output = (tmp_path / "output.txt").open("w")
    group, started, seen = 0, [], set()
    try:
        for one in environments:
            started.append(subprocess.Popen(command, env=one, stdout=output, stderr=output, process_group=group))
            group = group or started[0].pid
        end = time.monotonic() + 180
        while time.monotonic() < end and all(process.poll() is None for process in started):
            seen |= listening(group)
            if (run / "checkpoints").exists() and len({process for process, *_ in seen}) == 2:
                break
            time.sleep(0.1)
        told = (tmp_path / "output.txt").read_text()[-3000:]
    finally:
        for process in of_group(group):
            os.kill(process, 9)
        for process in started:
            process.wait()
    assert len({process for process, *_ in seen}) == 2, told
    assert {address for _, address, _ in seen} <= LOOPBACK, (seen, told)
