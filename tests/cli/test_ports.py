"""What listens while several processes of one host train: nothing that another host can reach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import SMALL_MODEL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux says in /proc who listens where"),
]
GRAPHBENCH = Path(sys.executable).with_name("graphbench")
#: 127.0.0.1 and ::1 as the kernel writes them.
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def of_group(group):
    """Numbers of the processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def listening(group):
    """Process, address and port, in hexadecimal, of all that the processes of a group listen on."""
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


@pytest.mark.parametrize("strategy", ["ddp", "slurm"])
def test_processes_of_one_host_listen_on_loopback_alone(strategy, data_options, tmp_path):
    run = tmp_path / "run"
    options = [*SMALL_MODEL, "--trainer.strategy", "ddp", "--trainer.devices", "2", "--trainer.accelerator", "cpu"]
    command = [GRAPHBENCH, "fit", *data_options, *options, "--trainer.max_epochs", "500", "--run", run]
    environment = {**os.environ}
    for name in ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"):
        environment.pop(name, None)
    environments = [environment]
    if strategy == "slurm":  # as srun tells two tasks of one node
        slurm = {
            "SLURM_NTASKS": "2", "SLURM_NNODES": "1", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NAME": "fit", "SLURM_NODELIST": socket.gethostname(), "SLURM_NODEID": "0",
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
