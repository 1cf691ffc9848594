"""Training on two hosts that torchrun joins: as on one, and after the loss of a host."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command_line import SMALL_MODEL, graphbench
from two_hosts import ADDRESSES, Host, NoNamespaces, two_hosts

pytestmark = pytest.mark.slow

#: `--` keeps torchrun from reading `--run` as an option of its own.
GRAPHBENCH = Path(sys.executable).with_name("graphbench")
OPTIONS = [*SMALL_MODEL, "--trainer.devices", "1", "--trainer.log_every_n_steps", "1"]


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    try:
        with two_hosts() as pair:
            yield pair
    except NoNamespaces as error:
        pytest.skip(f"no network namespaces: {error}")


def on_both(hosts: tuple[Host, Host], folder: Path, *arguments: object) -> list[subprocess.Popen[bytes]]:
    """`graphbench` under torchrun, one process on each host; output goes to files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    started = []
    for number, host in enumerate(hosts):
        torchrun = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(number)]
        torchrun += ["--master-addr", ADDRESSES[0], "--master-port", "29511", "--", str(GRAPHBENCH)]
        command = [sys.executable, *torchrun, *map(str, arguments)]
        started.append(host.start(command, folder / f"host-{number}.txt"))
    return started


def output(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(folder.glob("host-*.txt")))


def finish(started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    codes = [process.wait(300) for process in started]
    assert codes == [0, 0], output(folder)


def weights(run: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]


def test_two_hosts_train_as_two_processes_of_one(hosts, data_options, tmp_path: Path) -> None:
    many = [*OPTIONS, "--trainer.strategy", "ddp", "--trainer.max_epochs", "2"]
    run = tmp_path / "two-hosts"
    finish(
        on_both(hosts, tmp_path / "out", "fit", *data_options, *many, "--trainer.num_nodes", "2", "--run", run),
        tmp_path / "out",
    )
    one = tmp_path / "one-host"
    devices = [*many, "--trainer.devices", "2"]
    graphbench("fit", *data_options, *devices, "--run", one)
    for name, value in weights(one).items():
        torch.testing.assert_close(weights(run)[name], value, rtol=1e-5, atol=1e-6, msg=name)
    written = "".join((tmp_path / "out" / f"host-{number}.txt").read_text() for number in (0, 1))
    assert written.count("trainable parameters") == 1, "the second host says nothing that the first has said"
    finish(on_both(hosts, tmp_path / "test", "test", "--run", run, "--trainer.num_nodes", "2"), tmp_path / "test")


def test_a_lost_host_ends_the_run_and_one_host_goes_on(hosts, data_options, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    options = [*OPTIONS, "--trainer.strategy", "ddp", "--trainer.num_nodes", "2", "--trainer.max_epochs", "300"]
    started = on_both(hosts, out, "fit", *data_options, *options, "--run", run)
    end = time.monotonic() + 240
    while not (run / "checkpoints" / "last.ckpt").is_file():
        assert time.monotonic() < end, output(out)
        assert all(process.poll() is None for process in started), output(out)
        time.sleep(0.2)
    os.killpg(started[1].pid, signal.SIGKILL)
    # torchrun starts its workers in sessions of their own.
    left = subprocess.run(["ip", "netns", "pids", hosts[1].namespace], capture_output=True, text=True).stdout
    for number in left.split():
        os.kill(int(number), signal.SIGKILL)
    assert started[0].wait(120) != 0, "the host that is left must not go on alone in silence"
    step = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    epochs = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] + 3
    one = ["--trainer.num_nodes", "1", "--trainer.strategy", "auto", "--trainer.max_epochs", str(epochs)]
    done = graphbench("fit", "--resume", run, *one)
    assert f"at step {step}" in done.stderr + done.stdout
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] > step
    with (run / "metrics.csv").open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row.get("train/loss_step")]
    assert steps == sorted(set(steps)), "every step has one row, whoever took it"
