"""Two or more forked processes that communicate over gloo, like those of a training."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def on_two(folder: Path, work: Callable[[int], Any], processes: int = 2) -> list[Any]:
    """Return what `work(rank)` returns on each of two (or more) processes: tensors and plain values.

    Environment variables tell Lightning about them, so a trainer with as many devices starts no others; without
    Lightning, call `torch.distributed.init_process_group("gloo")` in `work`.

    Args:
        folder: gets results and output.
        work: runs in the forks.
        processes: number of processes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = range(processes)
    children = [_fork(folder, work, rank, port, processes) for rank in ranks]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    texts = [(folder / f"output-{rank}.txt").read_text(errors="replace")[-4000:] for rank in ranks]
    assert not any(codes), "\n".join(texts)
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in ranks]


def _fork(folder: Path, work: Callable[[int], Any], rank: int, port: int, processes: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        handle = os.open(folder / f"output-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        os.environ.pop("GRAPHBENCH_RUN", None)
        os.environ.update(
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(processes), RANK=str(rank),
            LOCAL_RANK=str(rank), NODE_RANK="0",
        )  # fmt: skip
        torch.cuda.is_available = lambda: False  # a fork cannot use a GPU that this process has used
        torch.set_num_threads(1)
        torch.save(work(rank), folder / f"result-{rank}.pt")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
