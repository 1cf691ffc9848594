"""Read and write records of runs: small JSON files in a repository, which the page of results is written from.

A record has the recipe, options and seed of a run, its length, data, hardware, commit and versions, and its scores.
Unknown values are null. A file contains one record, or a list of them.
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

#: Maximum number of epochs in a curve; longer ones are thinned out.
MOST_POINTS = 100


@dataclass(frozen=True)
class Record:
    """One run.

    Args:
        experiment: a heading of the page.
        name: its row under that heading.
        recipe: configurations, first to last.
        seed: `seed_everything`.
        metric: name of the score, without its split.
        test: score of the epoch with the best validation score.
        benchmark: registered name of the data.
        options: additional options of `graphbench fit` that alter the recipe.
        column: distinguishes it from others in its row, such as a number of layers.
        val: validation score of that epoch.
        higher_is_better: of the metric.
        parameters: trainable parameters.
        epochs: finished.
        steps: optimizer steps.
        full: whether it is as long as the published training.
        data: origin of its graphs: published, generated, local, or redrawn only in training.
        seconds: of training.
        hardware: of the run.
        versions: of packages.
        commit: of the code.
        date: of its start.
        curve: scores by epoch, `{"epoch": 1, "train": ..., "val": ...}`, of at most about `MOST_POINTS` epochs.
        note: a remark.
        altered: descriptions of options that decide the score and differ from the recipe and `options`.
        by: the person who ran it and sent the record; "" for the repository's maintainers.
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
    by: str = ""

    @classmethod
    def parse(cls, content: Any, where: str) -> Record:
        """Parse the content of a file; `where` names it in messages.

        Raises:
            BadInput: a key is unknown or missing, or a value has another type.

        Examples:
            >>> fields = {"experiment": "trial", "name": "GPS", "recipe": ["gps/zinc"], "seed": 0, "metric": "MAE"}
            >>> Record.parse(fields | {"test": 0.07}, "gps.json").epochs is None
            True
        """
        if not isinstance(content, Mapping):
            raise BadInput(f"{where} must contain records, mappings with the key 'recipe', not {content!r}.")
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        for key in content:
            if key not in defaults:
                raise BadInput(f"{where}: a record has no key {key!r}. Known: {', '.join(defaults)}.")
        required = [name for name, default in defaults.items() if default is dataclasses.MISSING]
        if lacking := [name for name in required if name not in content]:
            raise BadInput(f"{where}: a record lacks {', '.join(lacking)}; unknown values are null.")
        for name in ("recipe", "options", "curve", "altered"):
            if not isinstance(content.get(name, []), (list, tuple)):
                raise BadInput(f"{where}: {name} must be a list, not {content[name]!r}.")
        for name in ("test", "val", "seconds", "parameters", "epochs", "steps", "seed"):
            if not isinstance(content.get(name), (int, float, type(None))):
                raise BadInput(f"{where}: {name} must be a number or null, not {content[name]!r}.")
        lists = {name: tuple(content[name]) for name in ("recipe", "options", "curve", "altered") if name in content}
        return cls(**{**content, **lists})

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for a file."""
        return dataclasses.asdict(self)


def curve_of(folder: Path, metric: str) -> tuple[dict[str, float], ...]:
    """Read training and validation scores by the metric without its split, for every n-th epoch and the last."""
    path = RunFolder(folder).metrics
    first = results(folder).get("epochs_from", 0)  # older versions counted from 0
    rows: dict[int, dict[str, float]] = {}
    for row in read_csv(path) if path.is_file() else []:
        for split in ("train", "val"):
            value = row.get(f"{split}/{metric}")
            if value and math.isfinite(float(value)):  # the later row of a resumed epoch counts
                epoch = int(float(row["epoch"])) - first + 1
                rows.setdefault(epoch, {"epoch": epoch})[split] = round(float(value), 5)
    epochs = sorted(rows)
    step = math.ceil(len(epochs) / MOST_POINTS) or 1
    return tuple(rows[epoch] for epoch in epochs if epoch % step == 0 or epoch == epochs[-1])


def _name_of(config: str | Path | Mapping[str, Any]) -> str:
    """Name a configuration, including one given by its file, so that no machine's paths get into a record."""
    if isinstance(config, Mapping):
        return "a configuration of the script"
    names = {one.path.resolve(): name for name, each in configurations().items() for one in each}
    return config if isinstance(config, str) else names.get(config.resolve(), config.name)


def record_of(training: Training, folder: Path, given: Mapping[str, Any]) -> Record:
    """Create the record of a finished run; `given` has fields that its folder lacks: experiment, name, ..."""
    stored, origin = results(folder), provenance(folder)
    metric = str(stored["metric"])
    environment = RunFolder(folder).environment
    started = load_json(environment).get("started") if environment.is_file() else None
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
        "date": str(started)[:10] if started else None,
        "curve": curve_of(folder, metric),
    }
    return Record(**{**fields, **given})


def write_records(records: Mapping[str, Record], folder: Path) -> list[Path]:
    """Write one file per record atomically, under its name in `records`, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        write_text(folder / name, json.dumps(record.as_dict(), indent=1, ensure_ascii=False) + "\n")
    return [folder / name for name in records]


def write_together(records: Sequence[Record], path: Path) -> None:
    """Write the records of an experiment to one file atomically, a line for each, without default values.

    Args:
        records: in the order of the page.
        path: of the file; its folder is created.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Record)}
    contents = [{name: value for name, value in one.as_dict().items() if value != defaults[name]} for one in records]
    lines = ",\n".join(json.dumps(content, ensure_ascii=False) for content in contents)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"[\n{lines}\n]\n")


def read_records(folders: Sequence[Path]) -> list[Record]:
    """Read all records in folders, sorted by file name.

    Raises:
        BadInput: there is no such folder, or a file in it is not a record.
    """
    records = []
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"--records {folder}: there is no such folder.")
        for path in sorted(folder.glob("*.json")):
            records += read_file(path)
    return records


def read_file(path: Path) -> list[Record]:
    """Read a file with one record or a list of them."""
    try:
        content = load_json(path)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON: {error}") from error
    return [Record.parse(one, str(path)) for one in (content if isinstance(content, list) else [content])]
