"""Records of runs: small JSON files that a repository keeps, from which the page of results is written.

A record says which recipe was trained with which options and seed, for how long, on which graphs and hardware, with
which commit and versions, and what came out. What is not known is null. A file holds one record, or a list of them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.experiments.trainings import Training, provenance, read_csv, results
from graphbench.registry.configurations import configurations
from graphbench.runs import RunFolder

#: Epochs of a curve; a longer one is thinned.
MOST_POINTS = 100


@dataclass(frozen=True)
class Record:
    """One run.

    Args:
        experiment: what it belongs to, a heading of the page.
        name: its row there.
        recipe: configurations, first to last.
        seed: `seed_everything`.
        metric: what is scored, without its split.
        test: score of the epoch with the best validation score.
        benchmark: registered name of the data.
        options: further options of `graphbench fit` that make another model or training of the recipe.
        column: what tells it from the others of its row, such as a number of layers.
        val: validation score of that epoch.
        higher_is_better: whether more of the metric is better.
        parameters: trainable parameters.
        epochs: finished.
        steps: optimizer steps.
        full: whether it was as long as the published training.
        data: where its graphs are from: published, generated, local, or redrawn in training alone.
        seconds: of training.
        hardware: what it ran on.
        versions: of packages.
        commit: of the code.
        date: on which it was started.
        curve: scores by epoch, `{"epoch": 1, "train": ..., "val": ...}`, of at most about `MOST_POINTS` epochs.
        note: what to know about it.
        altered: what decides the score and differs from the recipe and `options`, in words.
    """

    experiment: str
    name: str
    recipe: tuple[str, ...]
    seed: int
    metric: str
    test: float | None
    benchmark: str = ""
    options: tuple[str, ...] = ()
    column: str = ""
    val: float | None = None
    higher_is_better: bool | None = None
    parameters: int | None = None
    epochs: int | None = None
    steps: int | None = None
    full: bool | None = None
    data: str | None = None
    seconds: float | None = None
    hardware: str | None = None
    versions: str | None = None
    commit: str | None = None
    date: str | None = None
    curve: tuple[Mapping[str, float], ...] = ()
    note: str = ""
    altered: tuple[str, ...] = ()

    @classmethod
    def parse(cls, content: Any, where: str) -> Record:
        """From what a file holds.

        Raises:
            BadInput: a key is unknown or missing, or a value has another type; the message names it.

        Examples:
            >>> known = {"experiment": "trial", "name": "GPS", "recipe": ["gps/zinc"], "seed": 0, "metric": "MAE"}
            >>> Record.parse(known | {"test": 0.07}, "gps.json").epochs is None
            True
        """
        if not isinstance(content, Mapping):
            raise BadInput(f"{where} must hold records, mappings with the key 'recipe', not {content!r}.")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key in content:
            if key not in fields:
                raise BadInput(f"{where}: a record has no key {key!r}. Known: {', '.join(fields)}.")
        lacking = [
            name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in content
        ]
        if lacking:
            raise BadInput(f"{where}: a record lacks {', '.join(lacking)}; what is not known is null.")
        for name in ("recipe", "options", "curve", "altered"):
            if not isinstance(content.get(name, []), (list, tuple)):
                raise BadInput(f"{where}: {name} must be a list, not {content[name]!r}.")
        for name in ("test", "val", "seconds", "parameters", "epochs", "steps", "seed"):
            if not isinstance(content.get(name), (int, float, type(None))):
                raise BadInput(f"{where}: {name} must be a number or null, not {content[name]!r}.")
        lists = {name: tuple(content[name]) for name in ("recipe", "options", "curve", "altered") if name in content}
        return cls(**{**content, **lists})

    def as_dict(self) -> dict[str, Any]:
        """For a file, with what is unknown as null."""
        return dataclasses.asdict(self)


def curve_of(folder: Path, metric: str) -> tuple[dict[str, float], ...]:
    """Training and validation scores of a run by finished epochs, the last of them and every n-th.

    Args:
        folder: of the run.
        metric: without its split.
    """
    path = RunFolder(folder).metrics
    first = results(folder).get("epochs_from", 0)  # runs of older versions count from 0
    rows: dict[int, dict[str, float]] = {}
    for row in read_csv(path) if path.is_file() else []:
        for split in ("train", "val"):
            value = row.get(f"{split}/{metric}")
            if value and math.isfinite(float(value)):  # an epoch that was resumed stands twice: the later row counts
                epoch = int(float(row["epoch"])) - first + 1
                rows.setdefault(epoch, {"epoch": epoch})[split] = round(float(value), 5)
    epochs = sorted(rows)
    every = math.ceil(len(epochs) / MOST_POINTS) or 1
    return tuple(rows[epoch] for epoch in epochs if epoch % every == 0 or epoch == epochs[-1])


def _name_of(config: str | Path | Mapping[str, Any]) -> str:
    """Name of a configuration, also where a script names its file; no path of a machine goes into a record."""
    if isinstance(config, Mapping):
        return "a configuration of the script"
    known = {one.path.resolve(): name for name, held in configurations().items() for one in held}
    return config if isinstance(config, str) else known.get(config.resolve(), config.name)


def record_of(training: Training, folder: Path, told: Mapping[str, Any]) -> Record:
    """The record of a finished run.

    Args:
        training: what was run.
        folder: where it lies.
        told: fields that the run does not know: experiment, name, options, full and the like.
    """
    stored, origin = results(folder), provenance(folder)
    metric = str(stored["metric"])
    environment = RunFolder(folder).environment
    known = load_json(environment) if environment.is_file() else {}
    fields: dict[str, Any] = {
        "recipe": tuple(map(_name_of, training.configs)),
        "seed": training.seed,
        "metric": metric,
        "test": stored["test"].get(f"test/{metric}"),
        "val": stored.get("val", {}).get(f"val/{metric}"),
        "benchmark": str(stored.get("benchmark", "")),
        "higher_is_better": stored.get("higher_is_better"),
        **{name: stored.get(name) for name in ("parameters", "epochs", "steps", "data")},
        "seconds": stored.get("fit_seconds"),
        **{name: origin[name] or None for name in ("hardware", "versions", "commit")},
        "date": str(known["started"])[:10] if known.get("started") else None,
        "curve": curve_of(folder, metric),
    }
    return Record(**{**fields, **told})


def write_records(records: Mapping[str, Record], folder: Path) -> list[Path]:
    """One file for each, replaced as a whole.

    Args:
        records: by the name of their file.
        folder: where they go.
    """
    paths = []
    for name, record in records.items():
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / name)
        write_text(paths[-1], json.dumps(record.as_dict(), indent=1, ensure_ascii=False) + "\n")
    return paths


def write_together(records: Sequence[Record], path: Path) -> None:
    """All records of an experiment in one file, a line for each, without what is unknown; replaced as a whole.

    Args:
        records: in the order in which a page shows them.
        path: of the file; its folder is made.
    """
    usual = {field.name: field.default for field in dataclasses.fields(Record)}
    told = [{name: value for name, value in one.as_dict().items() if value != usual[name]} for one in records]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in told)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"[\n{lines}\n]\n")


def read_records(folders: Sequence[Path]) -> list[Record]:
    """All records in folders, in the order of their files' names.

    Raises:
        BadInput: there is no such folder, or a file in it is no record.
    """
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"--records {folder}: there is no such folder.")
        for path in sorted(folder.glob("*.json")):
            found += read_file(path)
    return found


def read_file(path: Path) -> list[Record]:
    """The records of a file, which holds one or a list of them.

    Raises:
        BadInput: it holds something else.
    """
    try:
        content = load_json(path)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON: {error}") from error
    return [Record.parse(one, str(path)) for one in (content if isinstance(content, list) else [content])]
