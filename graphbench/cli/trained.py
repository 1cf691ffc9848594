"""Load the trained model for a command, on one device or several, and choose where its results go."""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from pytorch_lightning.accelerators import CPUAccelerator, CUDAAccelerator
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from graphbench.cli.command_line import CommandLine, as_word
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import FLAGS, Request
from graphbench.cli.released import load_released
from graphbench.cli.same_data import SameData
from graphbench.cli.trainer_checks import check_processes
from graphbench.contracts import SPLITS
from graphbench.data.files.writing import writing_together
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput, GraphbenchError, check_choice
from graphbench.inference import Predictor, TrainingFacts
from graphbench.inference.columns import OUTSIDE
from graphbench.inference.loading import load_weights
from graphbench.runs import RunFolder, trust
from graphbench.runs.checkpoints import load_checkpoint, no_checkpoint, trained_weights
from graphbench.runs.holding import InUse, refuse_writer
from graphbench.training.module import BenchmarkModule

log = logging.getLogger(__name__)
#: One process, since nothing gathers the predictions of several.
ONE_PROCESS = ["--trainer.devices", "1", "--trainer.num_nodes", "1"]
#: Options of the trainer that matter when only its device is used.
_IN_FORCE = {f"trainer.{name}" for name in ("accelerator", "devices", "precision", "deterministic", "benchmark")}
#: Function that predicts a part of an input with one or several models.
Answer = Callable[[Any], pd.DataFrame]


# -- one device --------------------------------------------------------------------------------------------------------


def checkpoint_of(request: Request) -> Path:
    """Return `--checkpoint FILE`, else the run's best checkpoint (or its last one if that is missing)."""
    named = request.options.checkpoint
    if named is None and request.run is None:
        raise BadInput(
            "Name a model to use: --run FOLDER of a finished fit, or --config FILE with --checkpoint FILE, or with "
            "--weights official if its authors released some."
        )
    if named is not None:
        path = Path(named)
        if not path.is_file():
            raise BadInput(f"--checkpoint {named}: there is no such file.")
    else:
        assert request.run is not None
        path = trained_weights(request.run)
        if path == request.run.last and "best_epoch" in request.run.read_results():
            log.warning("%s is missing: using %s, which may be worse.", request.run.best, path.name)
        if not path.is_file():
            raise no_checkpoint(path, request.run)
    load_checkpoint(path)  # report a damaged file before building data and model
    return path


def predictor_of(request: Request, devices: str = "1") -> Predictor:
    """Load a run's model for new inputs without opening its data. `devices` is the trainer's option, for one device."""
    if getattr(request.options, "split", None) is not None:
        raise BadInput("--input and --split exclude each other: name the input or the split.")
    predictor = _load(request, ["--trainer.devices", devices])
    predictor.facts = training_facts(request)
    return predictor


def on_split(request: Request) -> Predictor:
    """Load a run's model and open its data, after checking that they are the ones it was trained on."""
    same = SameData(request.run, request.options.data_changed)
    predictor = _load(request, [])
    open_data(predictor, same)
    return predictor


def chosen_split(options: argparse.Namespace) -> str:
    """Return the split of a command without `--input`."""
    if options.smiles_column:
        raise BadInput("--smiles-column names a column of --input FILE, which is missing.")
    chosen: str = options.split or "test"
    check_choice("--split", chosen, SPLITS)
    return chosen


def open_data(predictor: Predictor, same: SameData) -> None:
    """Open a run's data, and compare them with those of its training, see `SameData`."""
    predictor.data.prepare_data()
    predictor.data.setup("predict")
    same.compare(predictor.data.fingerprint())


def _load(request: Request, options: Sequence[str]) -> Predictor:
    weights: str = getattr(request.options, "weights", None) or ""
    path = None if weights else checkpoint_of(request)
    typed = CommandLine.parse(request.typed)
    if any(one.path.startswith("trainer.callbacks") for one in typed.options) or typed.value("trainer.callbacks"):
        raise BadInput(
            "--trainer.callbacks: no callback runs here. `graphbench test` and `graphbench predict` of a split run "
            "them, without --input."
        )
    for one in typed.options:
        if one.path.startswith("trainer.") and one.path not in _IN_FORCE:
            raise BadInput(
                f"{one.name} has no effect here, since no trainer runs. Those in effect are "
                f"{', '.join(sorted(_IN_FORCE))}."
            )
    cli = GraphbenchCLI([*request.arguments, *ONE_PROCESS, *options, "--trainer.strategy", "auto"])
    # After the options: a fine-tuned run reads the weights of its `init_from` first.
    if path is None:
        load_released(cli, weights)
    else:
        load_weights(cli.model, path)
    return Predictor(cli.model, cli.datamodule, None, cli.trainer)


def training_facts(request: Request) -> TrainingFacts | None:
    """Read what a run was trained on; warn if its folder does not record it."""
    facts = TrainingFacts.read(request.run) if request.run is not None else None
    if facts is None:
        options = request.options
        place = request.run.path if request.run is not None else options.checkpoint or options.weights
        log.warning("%s does not record its training data, so no row can be marked as %s.", place, OUTSIDE)
    return facts


def training_means(request: Request, predictor: Predictor) -> TrainingFacts:
    """Return the training means that the run stores, or compute them from its data."""
    facts = predictor.facts
    if facts is None and request.run is not None:
        facts = TrainingFacts.read(request.run)
    if facts is not None and facts.has_means:
        facts.check_columns(predictor.data.spec)
        log.info("Attributions are relative to the mean features of the training part, which the run stores.")
        return facts
    log.info("The run does not store the mean features of its training part: computing them from its data.")
    open_data(predictor, SameData(request.run, request.options.data_changed))
    return TrainingFacts.of(predictor.data.tables["train"], predictor.data)


@contextlib.contextmanager
def written_together(request: Request | None) -> Iterator[tuple[RunFolder | None, list[str]]]:
    """Stage a command's output, so that either all of it or nothing appears in the run's folder.

    Yields:
        The staged folder and the options that make the trainer write to it. Only the first of several processes stages.
        None if the run's folder is not writable, or is being trained in: what callbacks write is then lost, which is
        logged.

    Raises:
        InUse: a fit has started in it in the meantime.
    """
    if request is None or request.run is None:
        yield None, []
    elif getattr(rank_zero_only, "rank", None):
        yield request.run, ["--trainer.default_root_dir", str(request.run.path)]
    elif not may_keep(request.run):
        with tempfile.TemporaryDirectory() as lost:
            yield None, ["--trainer.default_root_dir", lost]
    else:
        with writing_together(request.run.path) as staged:
            yield RunFolder(staged), ["--trainer.default_root_dir", str(staged)]
            refuse_writer(request.run.path)  # a fit that has started in the meantime


def may_keep(run: RunFolder) -> bool:
    """Return whether this user may write into the run's folder and it is not being trained in; log a line if not.

    Reading, extending and replacing tables of diagnostics and results would lose what the fit has added.
    """
    if not os.access(run.path, os.W_OK | os.X_OK):
        log.warning("%s is not writable: nothing is stored in it.", run.path)
        return False
    try:
        refuse_writer(run.path)
    except InUse as error:
        log.warning("%s is being trained by %s: nothing is stored in it.", run.path, error.holder)
        return False
    return True


def describe_model(module: BenchmarkModule) -> dict[str, Any]:
    """Name model, benchmark and metric, as all records of scores do."""
    spec = module.spec
    return {
        "benchmark": spec.name,
        "architecture": type(module.architecture).__name__,
        "metric": spec.metric,
        "higher_is_better": spec.higher_is_better,
        "unit": spec.target_units[0] if len(set(spec.target_units)) == 1 else "",
    }


def write_page(run: RunFolder) -> None:
    """Rewrite the report of a run; log a failure without raising it, since what it would show is stored."""
    try:
        from graphbench.report import write_report  # imports matplotlib

        write_report([run], run.report)
        log.info("Report: %s", run.report)
    except (OSError, GraphbenchError) as error:
        reason = getattr(error, "strerror", None) or error
        log.warning("The report %s cannot be written: %s. %s", run.report, reason, _once_more(run))
    except Exception:  # whatever happened to a figure
        log.warning("The report of %s cannot be drawn. %s", run.path, _once_more(run), exc_info=True)


def _once_more(run: RunFolder) -> str:
    return f"Later: graphbench report {as_word(run.path)}"


# -- several devices ---------------------------------------------------------------------------------------------------


def chosen_devices(words: Sequence[str], device: torch.device) -> list[str]:
    """Return the value of `--trainer.devices` for each process; one entry if only one device is used.

    Read configurations and words, but not the run's own configuration, which is for its training.

    Examples:
        >>> chosen_devices(["--trainer.devices", "2"], torch.device("cpu")), chosen_devices([], torch.device("cpu"))
        (['1', '1'], ['1'])
    """
    value = CommandLine.parse(words, flags=FLAGS).located().value("trainer.devices", files=True)
    if value is None or device.type not in ("cpu", "cuda"):
        return ["1"]
    accelerator: Any = CPUAccelerator if device.type == "cpu" else CUDAAccelerator
    try:
        devices = accelerator.parse_devices(accelerator.auto_device_count() if value == "auto" else value)
    except Exception as error:  # Lightning raises several kinds, whose messages state what was expected
        raise BadInput(f"--trainer.devices {value}: {error}") from error
    if device.type == "cpu":
        check_processes(devices)
        return ["1"] * int(devices)
    return [f"[{number}]" for number in devices or []] or ["1"]


def answered_on(devices: Sequence[str], make: Callable[[str], Answer], parts: Iterator[Any]) -> Iterator[pd.DataFrame]:
    """Predict parts of an input in order, with a process per device and a few parts for each in memory.

    `make` creates the predicting function of a device and must be importable. Tensors of the parts must own their
    storage: a view would be sent with all of its storage.

    Raises:
        GraphbenchError: a process was killed. Errors in a process are raised here.
    """
    context = multiprocessing.get_context("spawn")  # CUDA cannot be used in a forked process
    places: Queue[str] = context.Queue()
    for device in devices:
        places.put(device)
    threads = max(1, available_cores() // len(devices))
    start = partial(start_answering, make, places, threads)
    jobs = (pickle.dumps(part) for part in parts)  # bytes: shared memory would need a file descriptor per tensor
    yield from ordered_map(answer_part, jobs, len(devices), "Answering", start, context)


_answer: Answer | None = None  # of this process


def start_answering(make: Callable[[str], Answer], places: Queue[str], threads: int) -> None:
    """Create the models of this process on the next free device."""
    global _answer
    logging.disable(logging.WARNING)  # the main process has already logged all this
    torch.set_num_threads(threads)
    with trust.admitting_all():
        _answer = make(places.get())


def answer_part(job: bytes) -> pd.DataFrame:
    """Predict a part that `answered_on` packed."""
    assert _answer is not None
    return _answer(pickle.loads(job))
