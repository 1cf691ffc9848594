"""Run the trainings of a script; finished ones are skipped and interrupted ones resumed.

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

and its table has the facts of each training, its scores and their provenance.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.experiments.commands import CommandFailed, graphbench
from graphbench.runs import RunFolder
from graphbench.runs.holding import InUse, claimed, holder_of
from graphbench.runs.tables import load_table, write_table

#: Packages whose versions a table lists.
_NAMED_PACKAGES = ("graphbench-lightning", "torch", "pytorch-lightning", "torch-geometric")

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Training:
    """One training of an experiment.

    Args:
        name: unique among trainings with the same seed; the folder is NAME-SEED.
        seed: `seed_everything`.
        configs: in order: names of configurations, paths of files, or contents, which are written to OUTPUT/configs
            when the training starts.
        options: additional options of `graphbench fit`; they follow all configurations, since the file that names a
            class must precede the class's options.
        facts: first columns of tables, by default `name`.
        room: folder of such trainings in OUTPUT.
        place: options for the machine, such as `--trainer.accelerator=gpu`, which a resumed training also gets.
        tested: whether to score the test split after the training.

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
        """Train, and test if `tested`, resuming an earlier call; do nothing if finished.

        Args:
            output: folder of the experiment.
            begin: called before the first command, if one is needed.

        Returns:
            The scores, as `results` reads them.

        Raises:
            SystemExit: a command failed, or another process works on this training (`TrainedElsewhere`).
        """
        train(self.folder(output), lambda: self.arguments(output), place=self.place, tested=self.tested, begin=begin)
        return results(self.folder(output))

    def is_finished(self, output: Path) -> bool:
        """Return whether it has been trained, and tested if `tested`."""
        return ("test" if self.tested else "val") in results(self.folder(output))

    def diverged(self, output: Path) -> str:
        """Describe the non-finite loss or gradient that stopped it, else ""."""
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


class TrainedElsewhere(CommandFailed):
    """Error for a training that another process is working on.

    Args:
        holder: the process.
    """

    def __init__(self, holder: str) -> None:
        super(CommandFailed, self).__init__(f"{holder} works on it. Run the same command again once it has exited.")
        self.holder, self.returncode = holder, 1


def train(
    folder: Path,
    options: Callable[[], Sequence[str]],
    command: Callable[..., None] | None = None,
    place: Sequence[str] = (),
    tested: bool = True,
    begin: Callable[[], None] | None = None,
) -> None:
    """Train, from the last checkpoint if there is one, and test; do nothing if finished.

    Only one of several processes with the same training runs its commands.

    Args:
        folder: of the run.
        options: returns the options of `graphbench fit`; called only when a training starts.
        command: runs a command line; `graphbench` by default.
        place: see `Training`.
        tested: see `Training`.
        begin: see `Training.run`.

    Raises:
        CommandFailed: a command failed.
        TrainedElsewhere: another process is working on it.
    """
    run = command or graphbench
    # `fit` finally writes the key `val`, and `test` the key `test`.
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
        if (holder := holder_of(folder)) is not None:  # for example the command of a killed call
            raise TrainedElsewhere(holder) from error
        raise


def results(folder: Path) -> dict[str, Any]:
    """Read the scores of a run (`results.json`), empty until its training is finished."""
    return RunFolder(folder).read_results()


def provenance(folder: Path) -> dict[str, Any]:
    """Return data, cost, hardware and versions of a run as columns of a table; unknown ones are ""."""
    path, stored = RunFolder(folder).environment, results(folder)
    environment = load_json(path) if path.is_file() else {}
    packages = environment.get("packages", {})
    # A run resumed with other code has a commit for each part.
    parts = [environment, *environment.get("continued", ())]
    processor = f"{environment['processor']}, {environment['torch_threads']} threads" if environment else ""
    return {
        "graphs": stored.get("data", ""),
        "seconds": stored.get("fit_seconds", ""),
        "hardware": " + ".join(environment.get("gpus", ())) or processor,
        "versions": ", ".join(f"{name} {packages[name]}" for name in _NAMED_PACKAGES if name in packages),
        "commit": ", ".join(dict.fromkeys(part["commit"] for part in parts if part.get("commit"))),
    }


def finished_seeds(output: Path, training: Training) -> list[int]:
    """List the finished seeds of a training in OUTPUT; the seed of `training` itself does not matter."""
    # Escaped, since a name may contain brackets.
    folders = (output / training.room).glob(f"{glob.escape(training.name)}-*")
    seeds = [(path, path.name.removeprefix(f"{training.name}-")) for path in folders]
    return sorted(int(seed) for path, seed in seeds if seed.isdigit() and "test" in results(path))


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a table as text, up to an incomplete row; none without a file."""
    return load_table(path).as_dicts()


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a table atomically, with the keys of the first row as header; write nothing without rows.

    Raises:
        ValueError: a row has a key that the first one lacks.
    """
    if rows:
        write_table(path, rows[0], rows)


def write_settled(state: Callable[[], object], write: Callable[[], _Result]) -> _Result:
    """Write a table of `state()`, and again if another process changed the state in the meantime.

    Otherwise the slower of two processes would leave the table of an earlier state.
    """
    now = state()
    while True:
        result = write()
        before, now = now, state()
        if now == before:
            return result


def assign(content: dict[str, Any], assignment: str) -> None:
    """Apply `a.b.c=VALUE`, VALUE in YAML, to nested mappings.

    Args:
        content: a configuration, changed in place; missing mappings are created.
        assignment: the text.

    Raises:
        BadInput: there is no `=`, or a part of the name refers to a value.
    """
    path, sign, value = assignment.partition("=")
    if not sign:
        raise BadInput(f"--set expects NAME=VALUE, such as trainer.accelerator=gpu, but got {assignment!r}.")
    *parents, last = path.split(".")
    for parent in parents:
        content = content.setdefault(parent, {})
        if not isinstance(content, dict):
            raise BadInput(f"--set {assignment}: {parent} is {content!r} in this configuration and has no options.")
    content[last] = yaml.safe_load(value)
