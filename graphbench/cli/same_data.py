"""Check that later commands read the data that a run was trained on."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

import pytorch_lightning as pl

from graphbench.data.files.foreign import load_json
from graphbench.data.files.nested import flatten
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, CorruptData, GraphbenchError, check_choice
from graphbench.runs import RunFolder

log = logging.getLogger(__name__)
#: Number of characters of a long value, and of differences, that a message shows.
_SHOWN, _NAMED = 16, 6
#: Entry of a fingerprint for what batches do to graphs.
_BATCHES = "batches"


#: Entries of a source that differ between the splits of one data set.
_OF_SPLITS = ("split", "folds", "fold")
#: Entries for the versions of RDKit and PyG; another version usually creates the same graphs.
_VERSIONS = ("rdkit", "version")


def source_of(data: Any) -> dict[str, Any]:
    """Return what identifies the source of data by dotted names, without reading graphs; empty if unknown."""
    try:
        return _flat_source(data.source_key()) if hasattr(data, "source_key") else {}
    except (GraphbenchError, OSError):  # the data are gone, which must not prevent a report
        return {}


def _flat_source(key: Mapping[str, Any]) -> dict[str, Any]:
    plain = json.loads(json.dumps(key))  # with lists for tuples, as in records
    return {name: value for name, value in flatten(plain) if name.rpartition(".")[2] not in _VERSIONS}


def refuse_other_source(runs: Iterable[RunFolder], data: Any, advice: str) -> None:
    """Refuse to compare runs with others, or to count them as done, if the source of their data has changed since.

    Runs of earlier versions, and runs on data without information about their source, pass.
    """
    records = [(run, record) for run in runs if (record := _read_record(run)) is not None]
    now = source_of(data) if records else {}
    for run, record in records:
        before = _flat_source(record.get("source", {}))
        shared = (name for name in before if name in now and name.partition(".")[0] not in _OF_SPLITS)
        if changed := _changes(before, now, shared):
            raise BadInput(f"{run.path} was trained on other data: {'; '.join(changed[:_NAMED])}. {advice}")


class SameData(pl.Callback):
    """Write a fingerprint of the training data into the run's folder, and refuse other data when the run is used again.

    Data are the same if their sources are (checksums of files, seeds, options of rows, targets and splits), or if all
    graphs are. One of the two may differ: a file with other bytes and equal graphs, or graphs from the same source that
    another machine rounds differently. Options of batches, such as rotations of point clouds, must also be equal; runs
    of earlier versions did not store them.

    Args:
        run: the folder; None for a command that names none.
        changed: "accept" to continue with other data, with a warning.
        fresh: whether the run is new, with nothing to compare.

    Raises:
        BadInput: `changed` is another word.
    """

    def __init__(self, run: RunFolder | None, changed: str | None, fresh: bool = False) -> None:
        check_choice("--data-changed", changed or "refuse", ("refuse", "accept"))
        self.run, self.accept, self.fresh = run, changed == "accept", fresh
        #: Descriptions of differences, once the data are open.
        self.differences: list[str] = []
        self._earlier: dict[str, Any] | None = None
        self._compared = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Compare once the data are open; raises as `compare`."""
        self.compare(_fingerprint(trainer), speak=trainer.is_global_zero)

    def compare(self, fingerprint: Mapping[str, Any], speak: bool = True) -> None:
        """Compare data with the training's by `Benchmark.fingerprint`; a second call does nothing.

        Different data are refused unless accepted.
        """
        if self.run is None or self.fresh or self._compared:
            return
        self._compared, now = True, json.loads(json.dumps(fingerprint))  # with lists for tuples, as the record has them
        self._earlier = _read_record(self.run)
        if self._earlier is None:
            if now and speak:
                log.info("%s does not record its training data: whether they changed is unknown.", self.run.path)
            return
        graphs = differences(self._earlier, now)
        self.differences = list(dict.fromkeys([*graphs, *other_batches(self._earlier, now)]))
        if not self.differences:
            return
        shown = "; ".join(self.differences[:_NAMED])
        more = len(self.differences) - _NAMED
        message = f"The data are not those that {self.run.path} was trained on: {shown}" + (
            f"; and {more} more." if more > 0 else "."
        )
        if not self.accept:
            harm = " Training graphs may be among those to be scored." if graphs else ""
            raise BadInput(f"{message}{harm} Restore the data, or add --data-changed accept to go on with these.")
        if speak:
            log.warning("%s They are used anyway.", message)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the fingerprint, with earlier ones of the run if the data changed."""
        now, earlier = _fingerprint(trainer), self._earlier
        if self.run is None or not now or not trainer.is_global_zero:
            return
        if earlier is not None and self.differences:
            previous = {key: value for key, value in earlier.items() if key != "earlier"}
            now["earlier"] = [*earlier.get("earlier", []), previous]
        elif earlier is not None and (_BATCHES in earlier or _BATCHES not in now):
            return
        elif earlier is not None:  # earlier versions stored only the graphs
            now = {**earlier, _BATCHES: now[_BATCHES]}
        write_text(self.run.data, json.dumps(now, indent=2) + "\n")


def _fingerprint(trainer: pl.Trainer) -> dict[str, Any]:
    """Return the fingerprint of the trainer's data in JSON types; empty if they have none."""
    data: Any = getattr(trainer, "datamodule", None)
    fingerprint: dict[str, Any] = json.loads(json.dumps(data.fingerprint())) if hasattr(data, "fingerprint") else {}
    return fingerprint


def _read_record(run: RunFolder) -> dict[str, Any] | None:
    """Read the fingerprint in a run's folder; None for a run of an earlier version."""
    if not run.data.is_file():
        return None
    try:
        record = load_json(run.data)
        {name: (split["graphs"], split["content"]) for name, split in record["splits"].items()}
        dict(record.get("source", {})), list(record.get("earlier", [])), dict(record.get(_BATCHES, {}))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(
            f"{run.data} cannot be read ({type(error).__name__}: {error}). Remove it to skip comparing data."
        ) from error
    return dict(record)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe how two fingerprints differ; empty for the same data.

    Examples:
        >>> split = {"train": {"graphs": 3, "content": "a"}}
        >>> differences({"source": {"seed": 1}, "splits": split}, {"source": {"seed": 2}, "splits": split})
        []
        >>> other = {"train": {"graphs": 4, "content": "b"}}
        >>> differences({"source": {"seed": 1}, "splits": split}, {"source": {"seed": 2}, "splits": other})
        ['seed is 2 instead of 1', 'train has 4 graphs instead of 3']
    """
    splits, splits_now = before["splits"], now.get("splits", {})
    if splits == splits_now:
        return []
    source, source_now = (
        dict(flatten({"benchmark": one.get("benchmark"), "version": one.get("version")} | dict(one.get("source", {}))))
        for one in (before, now)
    )
    lines = _changes(source, source_now, dict.fromkeys((*source, *source_now)))
    resized = False
    for name, split in splits.items():
        other = splits_now.get(name, {"graphs": 0, "content": ""})
        if other["graphs"] != split["graphs"]:
            lines.append(f"{name} has {other['graphs']} graphs instead of {split['graphs']}")
            resized = True
        elif lines and other["content"] != split["content"]:
            lines.append(f"{name} has other graphs, as many as before")
    return lines if resized or source != source_now else []


def other_batches(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe options of batches that both fingerprints have, with other values.

    Examples:
        >>> other_batches({"batches": {"unit": "radius"}}, {"batches": {"unit": "deviation", "max_turn": 0}})
        ['unit is deviation instead of radius']
    """
    first, second = dict(before.get(_BATCHES) or {}), dict(now.get(_BATCHES) or {})
    return _changes(first, second, (name for name in first if name in second))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Describe which of the named entries have another value now; of long ones, show where they begin to differ.

    Examples:
        >>> _changes({"file": "/data/molecules/of-2023/a.csv"}, {"file": "/data/molecules/of-2024/a.csv"}, ["file"])
        ['file is /data/molecules/of-2024/a.csv instead of /data/molecules/of-2023/a.csv']
        >>> _changes({"targets": ["a" * 30, "b", "c" * 9]}, {"targets": ["a" * 30, "d", "c" * 9]}, ["targets"])
        ['targets is ...aaaa", "d", "ccc... instead of ...aaaa", "b", "ccc...']
    """
    lines = []
    for name in names:
        if now.get(name) != before.get(name):
            new, old = (one if isinstance(one, str) else json.dumps(one) for one in (now.get(name), before.get(name)))
            same = len([*takewhile(bool, (a == b for a, b in zip(new, old, strict=False)))])
            lines.append(f"{name} is {_shorten(new, same)} instead of {_shorten(old, same)}")
    return lines


def _shorten(text: str, same: int) -> str:
    """Cut a long text to a part that shows what follows the first `same` characters."""
    if len(text) <= 2 * _SHOWN:
        return text
    start = max(0, same - _SHOWN // 2) if same >= _SHOWN else 0
    end = start + _SHOWN
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
