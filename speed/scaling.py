"""Weak scaling: training on two processes of one thread each, against one process with as many graphs per process.

Every process trains the GPS of ZINC on batches of 32 molecule-like graphs; two processes average their gradients with
DDP over gloo, as `--trainer.strategy ddp` does. Where a second process costs nothing, the seconds of a round are equal
and two processes train twice the graphs: the scaling that is printed is 2, and graphbench wants at least 1.8. Two
processes that do not talk to each other show what the machine itself takes, by its memory and clock.

    python speed/scaling.py --steps 20 --rounds 7

It needs two free cores; beside other programs it measures those.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType

import torch
from gps_throughput import KINDS, OurGPS, make_step, molecule_like
from timing import in_turns, note
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

#: Environment of `distributed.init_process_group`.
_ADDRESS = "127.0.0.1"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_ADDRESS, 0))
        port: int = free.getsockname()[1]
        return port


def _work(orders: Connection, rank: int, port: int | None, steps: int, graphs: int) -> None:
    """One process: it takes so many steps whenever it is told to."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind = KINDS["zinc"]
    model: nn.Module = OurGPS(kind)
    if port is not None:
        os.environ.update(MASTER_ADDR=_ADDRESS, MASTER_PORT=str(port))
        distributed.init_process_group("gloo", rank=rank, world_size=2)
        model = DistributedDataParallel(model)
    step = make_step(model, fused=True)
    table = molecule_like(graphs, kind, torch.Generator().manual_seed(rank))
    batches = [table.batch(part) for part in torch.randperm(len(table)).split(kind.batch_size)]
    while orders.recv():
        for number in range(steps):
            step(batches[number % len(batches)])
        orders.send(True)
    if port is not None:
        distributed.destroy_process_group()


class Processes:
    """Processes that wait for orders; use it as a context.

    Args:
        number: of processes.
        joined: whether they average their gradients.
        steps: of each process, whenever `train` is called.
        graphs: of each process.
    """

    def __init__(self, number: int, joined: bool, steps: int, graphs: int = 256) -> None:
        start = multiprocessing.get_context("spawn")
        port = _free_port() if joined else None
        self._pipes, self._processes = [], []
        for rank in range(number):
            here, there = start.Pipe()
            process = start.Process(target=_work, args=(there, rank, port, steps, graphs), daemon=True)
            process.start()
            self._pipes.append(here)
            self._processes.append(process)

    def train(self) -> None:
        """The steps, on all processes at once."""
        for pipe in self._pipes:
            pipe.send(True)
        for pipe in self._pipes:
            pipe.recv()

    def __enter__(self) -> Callable[[], None]:
        return self.train

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pipe in self._pipes:
            pipe.send(False)
        for process in self._processes:
            process.join(30)


def scaling(steps: int, rounds: int) -> dict[str, float]:
    """How many times the graphs of one process the contenders train in the same time."""
    kinds = {
        "1 process": partial(Processes, 1, joined=False),
        "2 processes": partial(Processes, 2, joined=True),
        "2 processes apart": partial(Processes, 2, joined=False),
    }
    with ExitStack() as stack:
        calls = {name: stack.enter_context(make(steps=steps)) for name, make in kinds.items()}
        seconds = in_turns(calls, rounds)
    pairs = [("2 processes", "1 process"), ("2 processes apart", "1 process"), ("2 processes", "2 processes apart")]
    case = f"GPS of ZINC, {steps} steps of 32 graphs per process"
    found = {f"{one} / {other}": note(case, one, other, seconds) for one, other in pairs}
    return {"2 processes": 2 / found["2 processes / 1 process"], "apart": 2 / found["2 processes apart / 1 process"]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="of each process per round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    found = scaling(options.steps, options.rounds)
    print(f"weak scaling of 2 processes: {found['2 processes']:.2f} (of 2 that do not talk: {found['apart']:.2f})")


if __name__ == "__main__":
    main()
