"""Measure training on two single-threaded processes: weak scaling, and GPS compared with a stack of PyG's `GPSConv`.

Every process trains the GPS of ZINC on batches of 32 molecule-like graphs; two processes average their gradients with
DDP over gloo, as `--trainer.strategy ddp` does. If a second process costs nothing, the seconds of a round are equal and
two processes train twice the graphs: the printed scaling is 2, and graphbench aims for at least 1.8. Two processes that
do not communicate show the overhead of the machine itself, by memory and clock. Then two processes of ours and two of
PyG's alternate on the batches of `gps_throughput.py`, random and by size.

    python speed/scaling.py --steps 20 --rounds 7
    python speed/scaling.py --kinds zinc peptides cluster       # also larger graphs, which takes ten minutes

It needs two free cores; otherwise it measures the other programs.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from types import TracebackType

import torch
from gps_throughput import KINDS, BaselineGPS, OurGPS, make_step, molecule_like
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


@dataclass(frozen=True)
class Work:
    """The work of each process.

    Args:
        steps: number of steps at every order.
        kind: kind of graphs and of the model, see `gps_throughput.py`.
        model: ours or PyG's.
        by_size: batches are of graphs of similar size, else random.
        batches: number of batches of a process.
    """

    steps: int
    kind: str = "zinc"
    model: type[nn.Module] = OurGPS
    by_size: bool = False
    batches: int = 8


def _work(orders: Connection, rank: int, port: int | None, work: Work) -> None:
    """Run one process: take steps at every order."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind = KINDS[work.kind]
    model: nn.Module = work.model(kind)
    if port is not None:
        os.environ.update(MASTER_ADDR=_ADDRESS, MASTER_PORT=str(port))
        distributed.init_process_group("gloo", rank=rank, world_size=2)
        model = DistributedDataParallel(model)
    step = make_step(model, fused=True)
    generator = torch.Generator().manual_seed(rank)  # separate, so that all models have the same batches in order
    table = molecule_like(work.batches * kind.batch_size, kind, generator)
    order = table.num_nodes.argsort() if work.by_size else torch.randperm(len(table), generator=generator)
    parts = order.split(kind.batch_size)
    batches = itertools.cycle(
        [table.batch(parts[place]) for place in torch.randperm(len(parts), generator=generator).tolist()]
    )
    while orders.recv():
        for batch in itertools.islice(batches, work.steps):
            step(batch)
        orders.send(True)
    if port is not None:
        distributed.destroy_process_group()


class Processes:
    """Processes that wait for orders; use it as a context.

    Args:
        number: number of processes.
        joined: whether they average their gradients.
        work: work of each process at every call of `train`.
    """

    def __init__(self, number: int, joined: bool, work: Work) -> None:
        start = multiprocessing.get_context("spawn")
        port = _free_port() if joined else None
        self._pipes, self._processes = [], []
        for rank in range(number):
            here, there = start.Pipe()
            process = start.Process(target=_work, args=(there, rank, port, work), daemon=True)
            process.start()
            self._pipes.append(here)
            self._processes.append(process)

    def train(self) -> None:
        """Take the steps on all processes at once."""
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


def scaling(work: Work, rounds: int) -> dict[str, float]:
    """Return the number of graphs that the contenders train relative to one process in the same time."""
    kinds = {"1 process": (1, False), "2 processes": (2, True), "2 processes apart": (2, False)}
    with ExitStack() as stack:
        calls = {name: stack.enter_context(Processes(*how, work)) for name, how in kinds.items()}
        seconds = in_turns(calls, rounds)
    pairs = [("2 processes", "1 process"), ("2 processes apart", "1 process"), ("2 processes", "2 processes apart")]
    case = f"GPS of ZINC, {work.steps} steps of 32 graphs per process"
    found = {f"{one} / {other}": note(case, one, other, seconds) for one, other in pairs}
    return {"2 processes": 2 / found["2 processes / 1 process"], "apart": 2 / found["2 processes apart / 1 process"]}


def beside_pyg(work: Work, rounds: int) -> float:
    """Return our time divided by PyG's, on two processes each."""
    contenders = {"ours, 2 processes": work, "PyG, 2 processes": replace(work, model=BaselineGPS)}
    with ExitStack() as stack:
        calls = {name: stack.enter_context(Processes(2, True, one)) for name, one in contenders.items()}
        seconds = in_turns(calls, rounds)
    return note(f"{work.kind}, batches {'by size' if work.by_size else 'random'}", *contenders, seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of each process per round, on molecules")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="*", choices=sorted(KINDS), default=["zinc"], help="compared with PyG")
    options = parser.parse_args()
    found = scaling(Work(options.steps), options.rounds)
    print(f"weak scaling of 2 processes: {found['2 processes']:.2f} (of 2 that do not talk: {found['apart']:.2f})")
    for kind in options.kinds:
        steps = options.steps if kind == "zinc" else max(options.steps // 5, 1)  # of larger graphs
        for by_size in (False, True):
            ratio = beside_pyg(Work(steps, kind, by_size=by_size), options.rounds)
            print(f"{kind}, batches {'by size' if by_size else 'random'}: PyG's time over ours {1 / ratio:.2f}")


if __name__ == "__main__":
    main()
