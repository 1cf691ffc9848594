"""The trained model that a command works with, its own data closed or open, and where its results go."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from pytorch_lightning.accelerators import CPUAccelerator, CUDAAccelerator
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from graphbench.cli.command_line import CommandLine
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request
from graphbench.cli.same_data import SameData
from graphbench.data.files.writing import writing_together
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput
from graphbench.inference import Predictor, TrainingFacts
from graphbench.inference.columns import OUTSIDE
from graphbench.inference.loading import load_weights
from graphbench.runs import RunFolder, trust
from graphbench.runs.checkpoints import load_checkpoint, trained_weights
from graphbench.runs.differences import warn_of_other_options

log = logging.getLogger(__name__)
#: One process: answers of several would have to be gathered.
ONE_PROCESS = ["--trainer.devices", "1", "--trainer.num_nodes", "1"]


def checkpoint_of(request: Request) -> Path:
    """The checkpoint a command works on: `--checkpoint FILE`, else the run's best (or, without one, last).

    Raises:
        BadInput: none was named, or the file is not there.
        CorruptData: the file cannot be read.
    """
    named = request.own.checkpoint
    if named is None and request.run is None:
        raise BadInput("Name what to score: --run FOLDER of a finished fit, or --config FILE with --checkpoint FILE.")
    if named is not None:
        path = Path(named)
    else:
        assert request.run is not None
        path = trained_weights(request.run)
        if path == request.run.last and "best_epoch" in request.run.read_results():
            log.warning("%s is gone: %s is taken, which may be worse.", request.run.best, path.name)
    if not path.is_file():
        raise BadInput(f"There is no checkpoint {path}: the fit has not finished its first epoch.")
    content = load_checkpoint(path)  # a torn file must be named before data and model are built
    if request.run is not None:
        warn_of_other_options(request.run, content)
    return path


def predictor_of(request: Request, devices: str = "1") -> Predictor:
    """A run's model, for inputs that its benchmark reads; its own data stay closed.

    Args:
        request: names the run or its checkpoint.
        devices: what `--trainer.devices` gets: one device.

    Raises:
        BadInput: the command line names both an input and a split, callbacks, or no checkpoint.
    """
    if getattr(request.own, "split", None) is not None:
        raise BadInput("--input and --split exclude each other: name the input or the split.")
    path = checkpoint_of(request)
    _check_callbacks(request)
    cli = GraphbenchCLI([*request.arguments, *ONE_PROCESS, "--trainer.devices", devices, "--trainer.strategy", "auto"])
    load_weights(cli.model, path)
    return Predictor(cli.model, cli.datamodule, training_facts(request), cli.trainer)


def training_facts(request: Request) -> TrainingFacts | None:
    """What a run was trained on; warns where its folder does not say."""
    facts = TrainingFacts.read(request.run) if request.run is not None else None
    if facts is None:
        place = request.run.path if request.run is not None else request.own.checkpoint
        log.warning("%s does not say what it was trained on, so no row can be marked as %s.", place, OUTSIDE)
    return facts


def training_means(request: Request, predictor: Predictor) -> TrainingFacts:
    """The means of the training part: as the run keeps them, or computed from its data, which are opened for that.

    Raises:
        BadInput: the run does not keep them, and its data are not there or are others.
        CorruptData: the run keeps those of other columns.
    """
    facts = predictor.facts
    if facts is None and request.run is not None:
        facts = TrainingFacts.read(request.run)
    if facts is not None and facts.has_means:
        facts.check_columns(predictor.data.spec)
        log.info("Attributions are measured from the mean features of the training part, which the run keeps.")
        return facts
    log.info("The run does not keep the mean features of its training part: they are computed from its data.")
    data = predictor.data
    data.prepare_data()
    data.setup("predict")
    SameData(request.run, request.own.data_changed).compare(data.fingerprint())
    return TrainingFacts.of(data.tables["train"], data)


def on_split(request: Request) -> Predictor:
    """A run's model with its own data open, once they are known to be the ones it was trained on."""
    path = checkpoint_of(request)
    _check_callbacks(request)
    same = SameData(request.run, request.own.data_changed)
    cli = GraphbenchCLI([*request.arguments, *ONE_PROCESS, "--trainer.strategy", "auto"])
    load_weights(cli.model, path)
    cli.datamodule.prepare_data()
    cli.datamodule.setup("predict")
    same.compare(cli.datamodule.fingerprint())
    return Predictor(cli.model, cli.datamodule, None, cli.trainer)


def _check_callbacks(request: Request) -> None:
    """Refuse callbacks that were typed: nobody would call them here.

    Raises:
        BadInput: there are some.
    """
    typed = CommandLine.parse(request.arguments[len(request.stored) :])
    if any(one.path.startswith("trainer.callbacks") for one in typed.options) or typed.value("trainer.callbacks"):
        raise BadInput(
            "--trainer.callbacks: nothing here calls them. `graphbench test` and `graphbench predict` of a split do, "
            "without --input."
        )


@contextlib.contextmanager
def written_together(request: Request | None) -> Iterator[tuple[RunFolder | None, list[str]]]:
    """Where a command writes what belongs to a run, so that all of it appears there or nothing; and options for that.

    Only the first process of several writes.
    """
    if request is None or request.run is None:
        yield None, []
    elif getattr(rank_zero_only, "rank", None):
        yield request.run, ["--trainer.default_root_dir", str(request.run.path)]
    else:
        with writing_together(request.run.path) as staged:
            yield RunFolder(staged), ["--trainer.default_root_dir", str(staged)]


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
