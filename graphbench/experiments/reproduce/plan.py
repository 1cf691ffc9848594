"""From cells to trainings: which runs a table needs, at which length, and in which folders they lie.

Cells that share recipe and options share a run, whatever table they are in.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
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
#: A short training is this part of the whole one.
SHORT = 20
#: A smoke test is two steps and a batch of each other split.
_SMOKE = (
    "--trainer.max_epochs=1",
    "--trainer.limit_train_batches=2",
    "--trainer.limit_val_batches=1",
    "--trainer.limit_test_batches=1",
    "--trainer.check_val_every_n_epoch=1",
    "--data.init_args.batch_size=4",
)
#: Characters of altered options in the name of a folder.
_LONGEST = 80
_CONSTANT = ("--model.schedule.name=constant", "--model.schedule.warmup=0")
#: Trials of one seed have numbers `seed * MOST_STARTS + start`, so that no two seeds share one.
MOST_STARTS = 100


@dataclass(frozen=True)
class Request:
    """How cells are to be trained.

    Args:
        scale: the whole recipe, a twentieth of it, or a few steps.
        seeds: `seed_everything` of each run.
        offline: take the data that need no network, where the recipe would download; a smoke test always does, and
            takes random graphs where there are none.
        extra: options for every `graphbench fit`.
    """

    scale: Scale = "full"
    seeds: tuple[int, ...] = (0,)
    offline: bool = False
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("--scale", self.scale, SCALES)


@dataclass(frozen=True)
class Job:
    """Everything behind one score: trials of initial weights, a training to start from, and the training itself.

    Args:
        training: of the first start.
        before: from whose best weights it starts.
        starts: initialisations of which the best after an epoch is trained to the end.
    """

    training: Training
    before: Training | None = None
    starts: int = 1

    def trials(self) -> list[Training]:
        """One epoch from each initialisation at a constant rate; none where there is nothing to choose."""
        if self.starts == 1:
            return []
        first, options = self.training, [*self.training.options, "--trainer.max_epochs=1", *_CONSTANT]
        seeds = [first.seed + start for start in range(self.starts)]
        return [replace(first, seed=seed, options=options, room="trials") for seed in seeds]

    def chosen(self, output: Path) -> Training | None:
        """The training of the best start; None while trials are missing."""
        trials = self.trials()
        if not trials:
            return self.training
        if not all(trial.is_finished(output) for trial in trials):
            return None
        best = min(trials, key=lambda trial: _loss(trial.folder(output)))
        return replace(self.training, seed=best.seed)

    def is_finished(self, output: Path) -> bool:
        """Whether its score is there."""
        chosen = self.chosen(output)
        return chosen is not None and chosen.is_finished(output)

    def diverged(self, output: Path) -> str:
        """What ended one of its trainings, where that was a loss or gradient that is not finite; empty otherwise."""
        parts = (self.before, *self.trials(), self.chosen(output))
        return next((told for part in parts if part is not None and (told := part.diverged(output))), "")

    def run(self, output: Path) -> None:
        """Train what is missing, from wherever an earlier call stopped.

        Raises:
            SystemExit: a command failed; what is finished stays.
        """
        for training in (self.before, *self.trials()):
            if training is not None:
                training.run(output)
        chosen = self.chosen(output)
        assert chosen is not None
        chosen.run(output)


def _loss(folder: Path) -> float:
    """Validation score of a run, with its sign changed where more is better."""
    stored = results(folder)
    score = float(stored["val"][f"val/{stored['metric']}"])
    return -score if stored["higher_is_better"] else score


def _schedule(recipe: Sequence[str], share: int) -> tuple[str, ...]:
    """Lengths in the schedule as parts of the whole ones."""
    lengths = {name: setting(recipe, f"model.schedule.{name}") for name in ("warmup", "step_size")}
    kept: dict[str, Any] = {name: max(1, round(value / share)) for name, value in lengths.items() if value}
    if ends := setting(recipe, "model.schedule.milestones"):
        parts = [round(end / share) for end in ends]
        kept["milestones"] = [*accumulate(parts[1:], lambda last, end: max(last + 1, end), initial=max(1, parts[0]))]
    return tuple(f"--model.schedule.{name}={value}" for name, value in kept.items())


def scaled(cell: Cell, request: Request) -> tuple[str, ...]:
    """Options that make the training of a cell as long as asked for, on the data asked for."""
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
    """Options for every training that make another one of a recipe: all but those of folders, devices and loggers.

    Examples:
        >>> altering(["--trainer.accelerator=gpu", "--data.init_args.batch_size=4", "--trainer.limit_val_batches=2"])
        ('--data.init_args.batch_size=4', '--trainer.limit_val_batches=2')
    """
    return tuple(word for word in words if _decides(word))


def _decides(word: str) -> bool:
    name, _, value = word.removeprefix("--").partition("=")
    if name in ("trainer.max_epochs", "trainer.max_steps", "trainer.min_epochs", "trainer.min_steps"):
        return True  # a run of another length is another run, which says how long it was
    return Difference(name.replace(".init_args", ""), NOTHING, value).decides_score


def _shown(words: Sequence[str]) -> str:
    """Options as a part of a folder's name, and a checksum that tells apart what is too long for one."""
    told = ",".join(
        word.removeprefix("--").partition("=")[0].rpartition(".")[2] + "=" + word.partition("=")[2] for word in words
    )
    short = re.sub(r"[^\w.=,-]", "", told)[:_LONGEST]
    return f"{short}.{hashlib.sha256(' '.join(words).encode()).hexdigest()[:8]}"


def run_name(recipe: Iterable[str], options: Sequence[str], request: Request) -> str:
    """Name of the runs of a recipe with these options.

    Examples:
        >>> run_name(["sfi-former/pattern", "sfi-former/overlays/dense"], [], Request("short", offline=True))
        'sfi-former-pattern+dense.short.offline'
        >>> run_name(["sft/listops"], [], Request(extra=("--data.init_args.batch_size=4",)))
        'sft-listops.altered.batch_size=4.30dc2560'
    """
    first, *overlays = recipe
    name = "+".join([first.replace("/", "-"), *(overlay.rpartition("/")[2] for overlay in overlays)])
    if options:
        name += f".{hashlib.sha256(' '.join(options).encode()).hexdigest()[:8]}"
    if request.scale != "full":
        name += f".{request.scale}"
    name += ".offline" if request.offline and request.scale != "smoke" else ""
    extra = altering(request.extra)
    return f"{name}.altered.{_shown(extra)}" if extra else name


def _training(cell: Cell, seed: int, request: Request, own: Sequence[str]) -> Training:
    name = run_name(cell.recipe, own, request)
    extra = altering(request.extra)
    place = [word for word in request.extra if word not in extra]
    options = [*cell.options, *scaled(cell, request), *extra]
    return Training(name, seed, list(cell.recipe), options, {"recipe": " + ".join(cell.recipe)}, place=place)


def job_of(cell: Cell, seed: int, request: Request, output: Path) -> Job:
    """The job behind a cell that is trained.

    Args:
        cell: with a recipe.
        seed: of the row.
        request: how it is to be trained.
        output: where runs lie; a training that starts from another one names its checkpoint there.
    """
    starts = 1 if request.scale == "smoke" else cell.starts
    first = seed * MOST_STARTS if starts > 1 else seed
    if not cell.after:
        return Job(_training(cell, first, request, cell.options), starts=starts)
    source = replace(cell, recipe=cell.after, options=(), after=(), starts=1)
    before = _training(source, seed, request, ())
    own = [*cell.options, f"from={' + '.join(cell.after)}"]
    start = f"--model.init_from={before.folder(output) / 'checkpoints' / 'best.ckpt'}"
    training = _training(cell, first, request, own)
    return Job(replace(training, options=[*training.options, start]), before, starts)


def is_trained(cell: Cell) -> bool:
    """Whether a cell is the score of a training."""
    return cell.way == "recipe"


def jobs(cells: Iterable[Cell], request: Request, output: Path) -> list[Job]:
    """The jobs of cells, each once: all of the first seed, then of the next; those that start from others last.

    A smoke test takes random graphs in the place of data that are not here, see `stand_in_options`.
    """
    chosen = [cell for cell in cells if is_trained(cell)]
    found: dict[Path, Job] = {}
    for seed in request.seeds:
        for cell in chosen:
            job = job_of(cell, seed, request, output)
            if job.before is not None:  # a job of its own, or two that start from it would train it at once
                found.setdefault(job.before.folder(output), Job(job.before))
            found.setdefault(job.training.folder(output), job)
    return sorted(found.values(), key=lambda job: job.before is not None)


def coverage(cells: Sequence[Cell], scale: Scale) -> str:
    """Return in a line how many values are trained, on what, and how many are left out and why.

    Args:
        cells: all that were asked for.
        scale: how long trainings are.
    """
    trained = [cell for cell in cells if is_trained(cell)]
    random = [cell for cell in trained if scale == "smoke" and not can_be_offline(cell.recipe)]
    measured = [cell for cell in cells if cell.csv and scale != "smoke"]
    looked_up = [cell for cell in cells if cell.is_open and not is_trained(cell) and cell.way != "script"]
    left = Counter(cell.way for cell in cells if not cell.is_open or (cell.way == "script" and cell not in measured))
    told = f"Of {len(cells):,} values {len(trained):,} are trained"
    if random:
        told += f", {len(random):,} of them on random graphs in the place of data that are not here"
    told += f"; {len(looked_up):,} are counted or looked up"
    told += f"; {len(measured):,} are measured by scripts" if measured else ""
    reasons = ", ".join(f"{count:,} {way}" for way, count in left.items())
    return told + (f"; {left.total():,} are left out: {reasons}." if left else ".")


def select(table: Table, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Cell]:
    """The cells of a table in some rows and columns, all when left out.

    Raises:
        BadInput: there is no such row or column.
    """
    for option, wanted, known in (("--only", rows, table.row_names), ("--columns", columns, table.columns)):
        for name in wanted:
            if name not in known:
                raise BadInput(f"{option} {name}: {table.name} has {', '.join(known)}.")
    return [cell for cell in table.cells if (not rows or cell.row in rows) and (not columns or cell.column in columns)]
