"""Plan the trainings of a table's cells: runs, their lengths, and their folders.

Cells that share recipe and options share a run, whatever table they are in.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from graphbench.errors import BadInput, check_choice
from graphbench.experiments import Training, results
from graphbench.experiments.reproduce.recipes import (
    can_be_offline,
    length_of,
    offline_options,
    setting,
    stand_in_options,
)
from graphbench.experiments.reproduce.tables import Cell, Table
from graphbench.runs.differences import NOTHING, Difference

Scale = Literal["full", "short", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)
#: Factor by which a short training is shorter.
SHORT = 20
#: Options of a smoke test: two steps and a batch of the validation split. `test` is not run: it scores whole splits.
_SMOKE = (
    "--trainer.max_epochs=1",
    "--trainer.limit_train_batches=2",
    "--trainer.limit_val_batches=1",
    "--trainer.check_val_every_n_epoch=1",
    "--data.init_args.batch_size=4",
)
#: Maximum number of characters of altered options in a folder name.
_LONGEST = 80
# A warmup of several epochs would leave the weights nearly unchanged after one epoch or two steps.
_CONSTANT = ("--model.schedule.name=constant", "--model.schedule.warmup=0")
#: Trials of a seed have numbers `seed * MOST_STARTS + start`, so seeds never share one.
MOST_STARTS = 100


@dataclass(frozen=True)
class Request:
    """Length, seeds, data and options of trainings."""

    scale: Scale = "full"  # the whole recipe, a twentieth of it, or a few steps
    seeds: tuple[int, ...] = (0,)  # `seed_everything` of each run
    offline: bool = False  # use data that need no download; a smoke test always does, or uses random graphs
    extra: tuple[str, ...] = ()  # options for every `graphbench fit`

    def __post_init__(self) -> None:
        check_choice("--scale", self.scale, SCALES)


@dataclass(frozen=True)
class Job:
    """The trainings behind one score."""

    training: Training  # with the first initial weights
    before: Training | None = None  # the training whose best weights it starts from
    starts: int = 1  # number of initial weights, of which the best after one epoch are trained to the end

    def trials(self) -> list[Training]:
        """Return trainings of one epoch at a constant rate from each of several initial weights."""
        if self.starts == 1:
            return []
        first, options = self.training, [*self.training.options, "--trainer.max_epochs=1", *_CONSTANT]
        seeds = [first.seed + start for start in range(self.starts)]
        return [replace(first, seed=seed, options=options, room="trials") for seed in seeds]

    def chosen(self, output: Path) -> Training | None:
        """Return the training from the best initial weights; None while trials are missing."""
        trials = self.trials()
        if not trials:
            return self.training
        if not all(trial.is_finished(output) for trial in trials):
            return None
        best = min(trials, key=lambda trial: _loss(trial.folder(output)))
        return replace(self.training, seed=best.seed)

    def is_finished(self, output: Path) -> bool:
        """Return whether it has a score."""
        chosen = self.chosen(output)
        return chosen is not None and chosen.is_finished(output)

    def diverged(self, output: Path) -> str:
        """Return the reason why one of its trainings diverged, else ""."""
        parts = (self.before, *self.trials(), self.chosen(output))
        return next((reason for part in parts if part is not None and (reason := part.diverged(output))), "")

    def run(self, output: Path, begin: Callable[[], None] | None = None) -> None:
        """Run or resume the trainings that are not finished; `begin` is called before each.

        Raises:
            SystemExit: a command failed, or another process is working on one of them; finished trainings stay.
        """
        for training in (self.before, *self.trials()):
            if training is not None:
                training.run(output, begin)
        chosen = self.chosen(output)
        assert chosen is not None
        chosen.run(output, begin)


def _loss(folder: Path) -> float:
    """Return the validation score of a run, negated if higher is better."""
    stored = results(folder)
    score = float(stored["val"][f"val/{stored['metric']}"])
    return -score if stored["higher_is_better"] else score


def _schedule(recipe: Sequence[str], share: int) -> tuple[str, ...]:
    """Divide the lengths in the schedule by `share`."""
    lengths = {name: setting(recipe, f"model.schedule.{name}") for name in ("warmup", "step_size")}
    shortened: dict[str, Any] = {name: max(1, round(value / share)) for name, value in lengths.items() if value}
    if ends := setting(recipe, "model.schedule.milestones"):
        # Rounded ends may coincide, but must be increasing.
        first, *rest = (round(end / share) for end in ends)
        shortened["milestones"] = [*accumulate(rest, lambda last, end: max(last + 1, end), initial=max(1, first))]
    return tuple(f"--model.schedule.{name}={value}" for name, value in shortened.items())


def scaled(cell: Cell, request: Request) -> tuple[str, ...]:
    """Return options for the requested length and data of a cell's training."""
    words: tuple[str, ...] = ()
    smoke = request.scale == "smoke"
    if smoke and not can_be_offline(cell.recipe):
        words += stand_in_options(cell.recipe, cell.options)
    elif request.offline or smoke:
        words += offline_options(cell.recipe, small=smoke)
    if smoke:
        words += _SMOKE + (_CONSTANT if setting(cell.recipe, "model.schedule") else ())
    elif request.scale == "short":
        words += length_of(cell).part(SHORT).options() + _schedule(cell.recipe, SHORT)
    return words


def altering(words: Iterable[str]) -> tuple[str, ...]:
    """Return options that alter the training of a recipe: all except those for folders, devices and loggers.

    Examples:
        >>> altering(["--trainer.accelerator=gpu", "--data.init_args.batch_size=4", "--trainer.limit_val_batches=2"])
        ('--data.init_args.batch_size=4', '--trainer.limit_val_batches=2')
    """
    return tuple(word for word in words if _decides(word))


def _decides(word: str) -> bool:
    name, _, value = word.removeprefix("--").partition("=")
    return Difference(name.replace(".init_args", ""), NOTHING, value).decides_training


def _checksum(words: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:8]


def _file_name(words: Sequence[str]) -> str:
    """Shorten options to a part of a folder's name, with a checksum to distinguish long ones."""
    pairs = [word.removeprefix("--").partition("=") for word in words]
    text = ",".join(f"{name.rpartition('.')[2]}={value}" for name, _, value in pairs)
    short = re.sub(r"[^\w.=,-]", "", text)[:_LONGEST]
    return f"{short}.{_checksum(words)}"


def run_name(recipe: Iterable[str], options: Sequence[str], request: Request) -> str:
    """Name the runs of a recipe with these options.

    Examples:
        >>> run_name(["sfi-former/pattern", "sfi-former/overlays/dense"], [], Request("short", offline=True))
        'sfi-former-pattern+dense.short.offline'
        >>> run_name(["sft/listops"], [], Request(extra=("--data.init_args.batch_size=4",)))
        'sft-listops.altered.batch_size=4.30dc2560'
    """
    first, *overlays = recipe
    name = "+".join([first.replace("/", "-"), *(overlay.rpartition("/")[2] for overlay in overlays)])
    if options:
        name += f".{_checksum(options)}"
    if request.scale != "full":
        name += f".{request.scale}"
    name += ".offline" if request.offline and request.scale != "smoke" else ""
    extra = altering(request.extra)
    return f"{name}.altered.{_file_name(extra)}" if extra else name


def _training(cell: Cell, seed: int, request: Request, named: Sequence[str]) -> Training:
    name = run_name(cell.recipe, named, request)
    extra = altering(request.extra)
    place = [word for word in request.extra if word not in extra]
    options = [*cell.options, *scaled(cell, request), *extra]
    facts, tested = {"recipe": " + ".join(cell.recipe)}, request.scale != "smoke"
    return Training(name, seed, list(cell.recipe), options, facts, place=place, tested=tested)


def job_of(cell: Cell, seed: int, request: Request, output: Path) -> Job:
    """Return the job behind a cell with a recipe, for runs in `output`."""
    starts = 1 if request.scale == "smoke" else cell.starts
    first = seed * MOST_STARTS if starts > 1 else seed
    if not cell.after:
        return Job(_training(cell, first, request, cell.options), starts=starts)
    source = replace(cell, recipe=cell.after, options=())
    before = _training(source, seed, request, ())
    start = f"--model.init_from={before.folder(output) / 'checkpoints' / 'best.ckpt'}"
    # Named after the recipe it starts from, since the path of the weights depends on DIR.
    training = _training(cell, first, request, [*cell.options, f"from={' + '.join(cell.after)}"])
    return Job(replace(training, options=[*training.options, start]), before, starts)


def is_trained(cell: Cell) -> bool:
    """Return whether a cell is the score of a training."""
    return cell.way == "recipe"


def jobs(cells: Iterable[Cell], request: Request, output: Path) -> list[Job]:
    """List the jobs of cells without repetition: seed by seed, and those that start from others last."""
    selected = [cell for cell in cells if is_trained(cell)]
    by_folder: dict[Path, Job] = {}
    for seed in request.seeds:
        for cell in selected:
            job = job_of(cell, seed, request, output)
            if job.before is not None:  # a separate job, else two that start from it would train it at the same time
                by_folder.setdefault(job.before.folder(output), Job(job.before))
            by_folder.setdefault(job.training.folder(output), job)
    return sorted(by_folder.values(), key=lambda job: job.before is not None)


def coverage(cells: Sequence[Cell], scale: Scale) -> str:
    """Describe in a line how many cells are trained, on which graphs, and how many are skipped and why."""
    trained = [cell for cell in cells if is_trained(cell)]
    random = [cell for cell in trained if scale == "smoke" and not can_be_offline(cell.recipe)]
    measured = [cell for cell in cells if cell.csv and scale != "smoke"]
    looked_up = [cell for cell in cells if cell.is_open and not is_trained(cell) and cell.way != "script"]
    left = Counter(cell.way for cell in cells if not cell.is_open or (cell.way == "script" and cell not in measured))
    line = f"Of {len(cells):,} values {len(trained):,} are trained"
    if random:
        line += f", {len(random):,} of them on random graphs in place of missing data"
    line += f"; {len(looked_up):,} are counted or looked up"
    line += f"; {len(measured):,} are measured by scripts" if measured else ""
    reasons = ", ".join(f"{count:,} {way}" for way, count in left.items())
    return line + (f"; {left.total():,} are left out: {reasons}." if left else ".")


def select(table: Table, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Cell]:
    """Select the cells of a table in the given rows and columns, by default all."""
    for option, names, keys in (("--only", rows, table.row_names), ("--columns", columns, table.columns)):
        for name in names:
            if name not in keys:
                raise BadInput(f"{option} {name}: {table.name} has {', '.join(keys)}.")
    return [cell for cell in table.cells if (not rows or cell.row in rows) and (not columns or cell.column in columns)]
