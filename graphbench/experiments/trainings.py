"""Run the trainings of a script, which are skipped when finished and resumed when interrupted.

A training is an ordinary `graphbench fit` and `graphbench test` in its own folder, so a script may be stopped at any
time and started again. A whole script is

    from pathlib import Path

    from graphbench.experiments import Training, write_csv

    OUTPUT = Path("runs/width")
    TRAININGS = [
        Training(
            f"gps-{width}",
            seed,
            configs=["gps/zinc"],
            options=[f"--model.architecture.init_args.hidden_dim={width}"],
            facts={"model": "GPS", "width": width},
        )
        for seed in (0, 1, 2)
        for width in (32, 64)
    ]

    for training in TRAININGS:
        training.run(OUTPUT)
        write_csv(OUTPUT / "scores.csv", [done.row(OUTPUT) for done in TRAININGS if done.is_finished(OUTPUT)])

and its table has the facts of each training, its scores, and their provenance.
"""

from __future__ import annotations

import contextlib
import glob
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import remove_link, write_text
from graphbench.errors import BadInput
from graphbench.runs import RunFolder
from graphbench.runs.holding import InUse, claimed, holder_of
from graphbench.runs.tables import load_table, write_table

#: Packages whose versions a table names.
_NAMED_PACKAGES = ("graphbench-lightning", "torch", "pytorch-lightning", "torch-geometric")

_Item = TypeVar("_Item")
_Place = TypeVar("_Place")
_Result = TypeVar("_Result")

#: Running commands of all threads.
_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Training:
    """One training of an experiment.

    Args:
        name: unique among trainings with the same seed; the folder is NAME-SEED.
        seed: `seed_everything`.
        configs: first to last: names of configurations, paths of files, or contents, which are written to
            OUTPUT/configs when the training starts.
        options: further options of `graphbench fit`; they follow all configurations, since the file that names a class
            must precede the options of the class.
        facts: first columns of tables, by default `name`.
        room: folder of such trainings in OUTPUT.
        place: options of the machine, such as `--trainer.accelerator=gpu`, which a resumed training gets as well.
        tested: score the test split behind the training; a trial of a few steps ends with its validation.

    Examples:
        >>> training = Training("gps", 1, ["gps/zinc"], ["--trainer.max_epochs=10"])
        >>> training.folder(Path("output")).as_posix()
        'output/runs/gps-1'
        >>> training.arguments(Path("output"))
        ['--config', 'gps/zinc', '--trainer.max_epochs=10', '--seed_everything=1']
        >>> training.is_finished(Path("output"))
        False
    """

    name: str
    seed: int
    configs: Sequence[str | Path | Mapping[str, Any]]
    options: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    room: str = "runs"
    place: Sequence[str] = ()
    tested: bool = True

    def folder(self, output: Path) -> Path:
        """Return the folder of the run."""
        return output / self.room / f"{self.name}-{self.seed}"

    def arguments(self, output: Path) -> list[str]:
        """Return the options of `graphbench fit`, and write contents of configurations to files."""
        words: list[str] = []
        for number, config in enumerate(self.configs):
            if isinstance(config, Mapping):
                path = output / "configs" / f"{self.name}-{self.seed}{f'-{number}' if number else ''}.yaml"
                write_text(path, yaml.safe_dump(dict(config)))
                config = path
            words += ["--config", str(config)]
        return [*words, *self.options, *self.place, f"--seed_everything={self.seed}"]

    def run(self, output: Path, begin: Callable[[], None] | None = None) -> dict[str, Any]:
        """Train, and test if it is to be tested, unless finished, resuming an earlier call.

        Args:
            output: folder of the experiment.
            begin: called before the first command, if there is one.

        Returns:
            The scores, as `results` reads them.

        Raises:
            SystemExit: a command failed, or another process is at this training (`TrainedElsewhere`).
        """
        train(self.folder(output), lambda: self.arguments(output), place=self.place, tested=self.tested, begin=begin)
        return results(self.folder(output))

    def is_finished(self, output: Path) -> bool:
        """Tell whether it has been trained, and tested if it is to be."""
        return ("test" if self.tested else "val") in results(self.folder(output))

    def diverged(self, output: Path) -> str:
        """Describe the loss or gradient that was not finite and ended it, else ""."""
        stored = results(self.folder(output))
        return "" if "test" in stored else str(stored.get("diverged", ""))

    def row(self, output: Path) -> dict[str, Any]:
        """Return a row of a table: facts, seed, scores of the epoch with the best validation score, and `provenance`.

        Raises:
            KeyError: the training is not finished.
        """
        folder = self.folder(output)
        stored = results(folder)
        metric = stored["metric"]
        scores = {"val": stored.get("val", {}).get(f"val/{metric}"), "test": stored["test"][f"test/{metric}"]}
        counts = {name: stored.get(name, "") for name in ("parameters", "epochs", "steps")}
        facts = self.facts or {"name": self.name}
        return {**facts, "seed": self.seed, **counts, "metric": metric, **scores, **provenance(folder)}


def finished_seeds(output: Path, training: Training) -> list[int]:
    """List the finished seeds of a training in OUTPUT, by whatever call; the seed of `training` does not matter."""
    # Names are free, and a bracket in one would be a pattern.
    folders = (output / training.room).glob(f"{glob.escape(training.name)}-*")
    seeds = [(path, path.name.removeprefix(f"{training.name}-")) for path in folders]
    return sorted(int(seed) for path, seed in seeds if seed.isdigit() and "test" in results(path))


def provenance(folder: Path) -> dict[str, Any]:
    """Return columns on how a run was obtained; cells of older runs may be "".

    Columns are `graphs` (published, generated or local), `seconds` of training, `hardware`, `versions` and `commit`.
    """
    path, stored = RunFolder(folder).environment, results(folder)
    environment = load_json(path) if path.is_file() else {}
    packages = environment.get("packages", {})
    # A run that went on with other code has a commit for each part.
    parts = [environment, *environment.get("continued", ())]
    processor = f"{environment['processor']}, {environment['torch_threads']} threads" if environment else ""
    return {
        "graphs": stored.get("data", ""),
        "seconds": stored.get("fit_seconds", ""),
        "hardware": " + ".join(environment.get("gpus", ())) or processor,
        "versions": ", ".join(f"{name} {packages[name]}" for name in _NAMED_PACKAGES if name in packages),
        "commit": ", ".join(dict.fromkeys(part["commit"] for part in parts if part.get("commit"))),
    }


def assign(content: dict[str, Any], assignment: str) -> None:
    """Apply `a.b.c=VALUE`, VALUE in YAML, to nested mappings.

    Args:
        content: a configuration, changed in place; missing mappings are created.
        assignment: the text.

    Raises:
        BadInput: there is no `=`, or a part of the name stands for a value.
    """
    path, sign, value = assignment.partition("=")
    if not sign:
        raise BadInput(f"--set expects NAME=VALUE, such as trainer.accelerator=gpu, but got {assignment!r}.")
    *parents, last = path.split(".")
    for parent in parents:
        content = content.setdefault(parent, {})
        if not isinstance(content, dict):
            raise BadInput(f"--set {assignment}: {parent} is {content!r} in this configuration and holds no options.")
    content[last] = yaml.safe_load(value)


class CommandFailed(SystemExit):
    """Error of a command of graphbench; finished trainings stay.

    Args:
        command: its name.
        returncode: its exit code; negative for a signal.
    """

    def __init__(self, command: str, returncode: int) -> None:
        super().__init__(f"graphbench {command} ended with {returncode}. Give the same command again to go on.")
        self.returncode = returncode


class TrainedElsewhere(CommandFailed):
    """Error of a training that another process is at.

    Args:
        holder: the process.
    """

    def __init__(self, holder: str) -> None:
        super(CommandFailed, self).__init__(f"{holder} works on it. Give the same command again once it has ended.")
        self.holder, self.returncode = holder, 1


def graphbench(*arguments: str, log: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run a command of graphbench in a process that stops cleanly on a signal to this one.

    Its output is appended to the file `log` if there is one; `environment` has variables beside those of this process.

    Raises:
        CommandFailed: it failed.
    """
    # By this interpreter: the `graphbench` on the PATH may be that of another environment.
    command = [sys.executable, "-m", "graphbench", *arguments]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        remove_link(log)
    with contextlib.nullcontext() if log is None else log.open("ab") as output:
        errors = None if output is None else subprocess.STDOUT
        process = subprocess.Popen(command, stdout=output, stderr=errors, env={**os.environ, **(environment or {})})
        _running.add(process)
        try:
            code = process.wait()
        except BaseException as stop:
            usual = signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM
            pass_on(getattr(stop, "signum", usual))
            process.wait()  # a training ends its step and writes a checkpoint
            raise
        finally:
            _running.discard(process)
    if code:
        raise CommandFailed(arguments[0], code)


def pass_on(signum: int) -> None:
    """Send a signal to every running command, except a Ctrl-C that the terminal has sent already."""
    if signum == signal.SIGINT and _in_foreground():
        return
    # A copy, as threads begin and end commands meanwhile.
    for process in list(_running):
        process.send_signal(signum)  # does nothing if the process has ended


def run_in_parallel(
    work: Callable[[_Item, _Place], _Result], items: Sequence[_Item], places: Sequence[_Place]
) -> list[_Result]:
    """Return `work(item, place)` of every item, with one item at a time in each place.

    A signal stops the running commands cleanly, and no other starts.
    """
    if len(places) == 1:  # without a thread, so that the signal reaches the command by itself
        return [work(item, places[0]) for item in items]
    # One queue of places for all items, so that a long training holds up no others but at its own place.
    free: queue.SimpleQueue[_Place] = queue.SimpleQueue()
    for place in places:
        free.put(place)

    def run(item: _Item) -> _Result:
        place = free.get()
        try:
            return work(item, place)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        try:
            return list(pool.map(run, items))
        except BaseException as stop:
            # Before the signal: a thread whose command ends takes the next item at once.
            pool.shutdown(wait=False, cancel_futures=True)
            pass_on(getattr(stop, "signum", signal.SIGTERM))
            raise


def visible_gpus() -> list[str]:
    """Return the value of `CUDA_VISIBLE_DEVICES` for each GPU that this process may use."""
    import torch  # takes seconds, which most commands do without

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]


def _in_foreground() -> bool:
    """Tell whether a Ctrl-C in the terminal reaches this process and its children."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):  # no terminal, or Windows
        return False


def results(folder: Path) -> dict[str, Any]:
    """Read the scores of a run (`results.json`), empty before its training is finished."""
    return RunFolder(folder).read_results()


def train(
    folder: Path,
    options: Callable[[], Sequence[str]],
    command: Callable[..., None] | None = None,
    place: Sequence[str] = (),
    tested: bool = True,
    begin: Callable[[], None] | None = None,
) -> None:
    """Train and test, unless finished, resuming from the last checkpoint if there is one.

    Of several processes with the same training one runs its commands.

    Args:
        folder: of the run.
        options: returns the options of `graphbench fit`; called only when a training starts.
        command: runs a command line; `graphbench` by default.
        place: options of the machine for a resumed training.
        tested: whether the test split is scored.
        begin: called before the first command, if there is one.

    Raises:
        CommandFailed: a command failed.
        TrainedElsewhere: another process is at it.
    """
    run = command or graphbench
    # `fit` ends by writing `val`, and `test` by `test`: what is there tells what is left to do.
    ends = {"val", "test"} if tested else {"val"}
    if ends <= results(folder).keys():
        return
    try:
        with claimed(folder):
            missing = ends - results(folder).keys()
            if missing and begin is not None:
                begin()
            if "val" in missing:
                if RunFolder(folder).resumable is not None:
                    run("fit", "--resume", str(folder), *place)
                else:
                    run("fit", *options(), "--run", str(folder))
            if tested and "test" not in results(folder):
                run("test", "--run", str(folder))
    except InUse as error:
        raise TrainedElsewhere(error.holder) from None
    except CommandFailed as error:
        if (holder := holder_of(folder)) is not None:  # the command of a call that was killed, for example
            raise TrainedElsewhere(holder) from error
        raise


def write_settled(state: Callable[[], object], write: Callable[[], _Result]) -> _Result:
    """Write what is made of `state()`, and again where another process has changed that meanwhile.

    Else the slower of two processes would leave a table of what stood before the other one had ended.
    """
    now = state()
    while True:
        result = write()
        before, now = now, state()
        if now == before:
            return result


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a table of a run or an experiment as text, up to a torn row; none without a file."""
    return load_table(path).as_dicts()


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a table atomically, with the keys of the first row as header; without rows nothing is written.

    Raises:
        ValueError: a row has a key that the first one lacks.
    """
    if rows:
        write_table(path, rows[0], rows)
