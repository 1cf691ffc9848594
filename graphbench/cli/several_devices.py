"""New inputs answered on several devices: a process for each, parts of the input in turn, rows in their order."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.queues import Queue
from typing import Any

import pandas as pd
import torch
from pytorch_lightning.accelerators import CPUAccelerator, CUDAAccelerator

from graphbench.cli.command_line import CommandLine
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput
from graphbench.runs import trust

_OPTION = "--trainer.devices"


def chosen_devices(words: Sequence[str], device: torch.device) -> list[str]:
    """What `--trainer.devices` gets in each process; one entry where one device answers.

    Args:
        words: the options that were typed; those of the run's own configuration are about its training.
        device: of the model in this process, for its kind.

    Raises:
        BadInput: there are not so many devices, or the option is not understood.

    Examples:
        >>> chosen_devices(["--trainer.devices", "2"], torch.device("cpu")), chosen_devices([], torch.device("cpu"))
        (['1', '1'], ['1'])
    """
    value = CommandLine.parse(words).value(_OPTION.removeprefix("--"))
    if value is None or device.type not in ("cpu", "cuda"):
        return ["1"]
    accelerator: Any = CPUAccelerator if device.type == "cpu" else CUDAAccelerator
    try:
        found = accelerator.parse_devices(accelerator.auto_device_count() if value == "auto" else value)
    except Exception as error:  # Lightning's own kinds, which say what was expected
        raise BadInput(f"{_OPTION} {value}: {error}") from error
    if device.type == "cpu":
        most = max(8, os.cpu_count() or 1)
        if found > most:
            raise BadInput(f"{_OPTION} is {found}: that many processes on the CPU; expected at most {most} here.")
        return ["1"] * int(found)
    return [f"[{number}]" for number in found or []] or ["1"]


#: What answers a part of an input, as one or several models read it.
Answer = Callable[[Any], pd.DataFrame]


def answered_on(devices: Sequence[str], make: Callable[[str], Answer], parts: Iterator[Any]) -> Iterator[pd.DataFrame]:
    """Answers to parts of an input, in their order; a few parts for each device are in memory.

    Args:
        devices: what `--trainer.devices` gets in each process, see `chosen_devices`.
        make: makes what answers on the device that it is given; importable.
        parts: of the input. Tensors must own what they show: a view would take all of its storage along.

    Raises:
        GraphbenchError: a process was ended from outside. What goes wrong in one of them is raised here.
    """
    context = multiprocessing.get_context("spawn")  # no process may begin with another one's device
    places: Queue[str] = context.Queue()
    for device in devices:
        places.put(device)
    threads = max(1, available_cores() // len(devices))
    start = partial(start_answering, make, places, threads)
    jobs = (pickle.dumps(part) for part in parts)  # tensors as bytes, not as descriptors of shared memory
    yield from ordered_map(answer_part, jobs, len(devices), "Answering", start, context)


_answer: Answer | None = None  # that of this process


def start_answering(make: Callable[[str], Answer], places: Queue[str], threads: int) -> None:
    """Make the models of this process on the next device that is free."""
    global _answer
    logging.disable(logging.WARNING)  # the process that writes has said all this
    torch.set_num_threads(threads)
    with trust.command():
        _answer = make(places.get())


def answer_part(job: bytes) -> pd.DataFrame:
    """The table of a part that `answered_on` packed."""
    assert _answer is not None
    return _answer(pickle.loads(job))
