"""Training on two hosts under torchrun: as on one host, and after the loss of a host."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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


def on_both(
    hosts: tuple[Host, Host], folder: Path, *arguments: object, hidden: Path | None = None, options: str = "rw"
) -> list[subprocess.Popen[bytes]]:
    """Start `graphbench` under torchrun, one process on each host; output goes to files in `folder`.

    The second host has an empty folder in place of `hidden`, mounted with these options.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started = []
    for number, host in enumerate(hosts):
        join = ["--node-rank", str(number), "--master-addr", ADDRESSES[0], "--master-port", "29511"]
        command = torchrun(join, arguments)
        if number and hidden is not None:
            mount = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
            command = ["sh", "-c", mount, str(hidden), *command]
        started.append(host.start(command, folder / f"host-{number}.txt"))
    return started


def torchrun(join: Sequence[str], arguments: Sequence[object]) -> list[str]:
    """Return the command of `graphbench` on one of two hosts, which join as the options say."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *join]
    return [*command, "--", str(GRAPHBENCH), *map(str, arguments)]


def on_one(hosts: tuple[Host, Host], number: int, folder: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """Start it under torchrun's elastic rendezvous on one of the hosts, as the page on torchrun says."""
    folder.mkdir(parents=True, exist_ok=True)
    join = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{ADDRESSES[0]}:29512", "--rdzv-id", "comes-back"]
    # Both namespaces have the machine's name, so torchrun would take the first host for the second one.
    join += ["--local-addr", ADDRESSES[number], "--rdzv-conf", f"is_host={int(number == 0)}", "--max-restarts", "3"]
    file = folder / f"host-{number}.txt"
    return hosts[number].start(torchrun(join, arguments), file, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


def kill(host: Host, started: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a host at once; its system still closes their connections."""
    os.killpg(started.pid, signal.SIGKILL)
    # torchrun starts its workers in separate sessions.
    left = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True).stdout
    for number in left.split():
        os.kill(int(number), signal.SIGKILL)
    started.wait()


def await_checkpoint(run: Path, started: Sequence[subprocess.Popen[bytes]], folder: Path, step: int = 0) -> int:
    """Wait for a checkpoint beyond a step; return its step."""
    end = time.monotonic() + 300
    while True:
        with contextlib.suppress(FileNotFoundError):
            found = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
            if found > step:
                return int(found)
        assert time.monotonic() < end, output(folder)
        assert all(process.poll() is None for process in started), output(folder)
        time.sleep(0.2)


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
    assert written.count("trainable parameters") == 1, "the second host must not repeat the first"
    finish(on_both(hosts, tmp_path / "test", "test", "--run", run, "--trainer.num_nodes", "2"), tmp_path / "test")


def test_a_lost_host_ends_the_run_and_one_host_goes_on(hosts, data_options, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    options = [*OPTIONS, "--trainer.strategy", "ddp", "--trainer.num_nodes", "2", "--trainer.max_epochs", "300"]
    started = on_both(hosts, out, "fit", *data_options, *options, "--run", run)
    await_checkpoint(run, started, out)
    kill(hosts[1], started[1])
    assert started[0].wait(120) != 0, "the remaining host must not continue in silence"
    said = (out / "host-0.txt").read_text()
    assert "Another process of this training exited" in said
    assert "Continue with: graphbench fit --resume" in said
    assert "Traceback" not in said.partition("failed (exitcode")[0]  # torchrun prints one itself
    step = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    epochs = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] + 3
    one = ["--trainer.num_nodes", "1", "--trainer.strategy", "auto", "--trainer.max_epochs", str(epochs)]
    done = graphbench("fit", "--resume", run, *one)
    assert f"at step {step}" in done.stderr + done.stdout
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] > step
    check_steps(run)


def check_steps(run: Path) -> None:
    with (run / "metrics.csv").open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row.get("train/loss_step")]
    assert steps == sorted(set(steps)), "every step has one row, whoever took it"


def test_a_host_that_comes_back_is_taken_in(hosts, data_options, tmp_path: Path) -> None:
    """The other one waits, and both resume from the last checkpoint to the weights of an undisturbed run."""
    run, out = tmp_path / "run", tmp_path / "out"
    options = [*OPTIONS, "--trainer.strategy", "ddp", "--trainer.num_nodes", "2", "--trainer.max_epochs", "40"]
    command = ["fit", *data_options, *options, "--run", run, "--if-exists", "resume"]
    started = [on_one(hosts, number, out, *command) for number in (0, 1)]
    await_checkpoint(run, started, out)
    kill(hosts[1], started[1])
    lost = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    time.sleep(3)
    assert started[0].poll() is None, "the first host waits for the other one"
    started[1] = on_one(hosts, 1, out, *command)
    finish(started, out)
    assert f"at step {lost}" in (out / "host-0.txt").read_text()
    check_steps(run)
    whole = tmp_path / "whole"
    finish(on_both(hosts, tmp_path / "undisturbed", "fit", *data_options, *options, "--run", whole), tmp_path)
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(run)[name], value, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize(("options", "told"), [("rw", "1 of 2 processes do not see"), ("ro", "is not writable")])
def test_a_host_that_does_not_see_the_run_is_told_before_it_trains(
    hosts, data_options, tmp_path: Path, options: str, told: str
) -> None:
    """The second host has another disk at the place of the run's, or may not write to it."""
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    fit = ["fit", *data_options, *OPTIONS, "--trainer.strategy", "ddp", "--trainer.num_nodes", "2"]
    started = on_both(hosts, out, *fit, "--run", disk / "run", hidden=disk, options=options)
    assert started[1].wait(300) != 0, output(out)
    if options == "ro":  # before the processes have met
        kill(hosts[0], started[0])
    else:
        assert started[0].wait(60) != 0, output(out)
    said = [line for line in (out / "host-1.txt").read_text().splitlines() if line.startswith("graphbench: ")]
    said += [line for line in (out / "host-0.txt").read_text().splitlines() if line.startswith("graphbench: ")]
    assert told in said[0]
    assert not (disk / "run" / "checkpoints").exists()
