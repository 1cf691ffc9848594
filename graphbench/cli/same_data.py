"""What a run was trained on, and whether a later command reads the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, CorruptData, check_choice
from graphbench.runs import RunFolder

log = logging.getLogger(__name__)

#: Characters of a checksum or other long value that a message shows, and differences that it names.
_SHOWN, _NAMED = 16, 6
#: Entry of a fingerprint about the way of the graphs to the model.
_BATCHES = "batches"


class SameData(pl.Callback):
    """Writes what a run is trained on into its folder, and refuses other data when the run is used again.

    Data are the same where their sources are (checksums of files, seeds, options that decide about rows, targets and
    splits), or where all graphs are. One of both may differ: another order of a file's bytes with equal graphs in
    it, or graphs computed from one source whose last bits another machine rounds otherwise. Options that decide what
    becomes of the graphs on their way to the model, such as rotations of point clouds, must be the same as well; a run
    of an earlier version does not say what they were.

    Args:
        run: the folder; None for a command that names none.
        changed: "accept" to go on with other data, with a warning.
        fresh: the run is a new one: there is nothing to compare with.

    Raises:
        BadInput: `changed` is another word.
    """

    def __init__(self, run: RunFolder | None, changed: str | None, fresh: bool = False) -> None:
        check_choice("--data-changed", changed or "refuse", ("refuse", "accept"))
        self.run, self.accept, self.fresh = run, changed == "accept", fresh
        #: What differs, once the data are open.
        self.differences: list[str] = []
        self._earlier: dict[str, Any] | None = None
        self._compared = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Compare, once the data are open and before anything is computed from them; raises as `compare`."""
        self.compare(_fingerprint(trainer), speak=trainer.is_global_zero)

    def compare(self, fingerprint: Mapping[str, Any], speak: bool = True) -> None:
        """Hold data against those that the run was trained on; a second call does nothing.

        Args:
            fingerprint: of the data, see `Benchmark.fingerprint`.
            speak: whether this process tells what it found.

        Raises:
            BadInput: the data are others, and nobody said that this is all right.
        """
        if self.run is None or self.fresh or self._compared:
            return
        self._compared, now = True, json.loads(json.dumps(fingerprint))
        self._earlier = read_record(self.run)
        if self._earlier is None:
            if now and speak:
                log.info("%s does not say what it was trained on: whether the data changed is unknown.", self.run.path)
            return
        others = differences(self._earlier, now)
        self.differences = list(dict.fromkeys([*others, *other_batches(self._earlier, now)]))
        if not self.differences:
            return
        shown = "; ".join(self.differences[:_NAMED])
        more = len(self.differences) - _NAMED
        said = f"The data are not those that {self.run.path} was trained on: {shown}" + (
            f"; and {more} more." if more > 0 else "."
        )
        if not self.accept:
            harm = " Graphs that were trained on may be among those to be scored." if others else ""
            raise BadInput(f"{said}{harm} Restore the data, or add --data-changed accept to go on with these.")
        if speak:
            log.warning("%s They are used all the same.", said)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write down what the run is trained on, and what it was trained on before."""
        now, earlier = _fingerprint(trainer), self._earlier
        if self.run is None or not now or not trainer.is_global_zero:
            return
        if earlier is not None and self.differences:
            before = {key: value for key, value in earlier.items() if key != "earlier"}
            now["earlier"] = [*earlier.get("earlier", []), before]
        elif earlier is not None and (_BATCHES in earlier or _BATCHES not in now):
            return
        elif earlier is not None:  # of an earlier version, which wrote down the graphs alone
            now = {**earlier, _BATCHES: now[_BATCHES]}
        write_text(self.run.data, json.dumps(now, indent=2) + "\n")


def _fingerprint(trainer: pl.Trainer) -> dict[str, Any]:
    """What the trainer's data are, as JSON gives it back; empty where they cannot say."""
    data: Any = getattr(trainer, "datamodule", None)
    known: dict[str, Any] = json.loads(json.dumps(data.fingerprint())) if hasattr(data, "fingerprint") else {}
    return known


def read_record(run: RunFolder) -> dict[str, Any] | None:
    """What the run was trained on; None for a run of an earlier version.

    Raises:
        CorruptData: the file is not what was written.
    """
    if not run.data.is_file():
        return None
    try:
        record = load_json(run.data)
        {name: (split["graphs"], split["content"]) for name, split in record["splits"].items()}
        dict(record.get("source", {})), list(record.get("earlier", [])), dict(record.get(_BATCHES, {}))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(
            f"{run.data} cannot be read ({type(error).__name__}: {error}). Remove it to go on without comparing data."
        ) from error
    return dict(record)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, in words; empty for the same data.

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
    sources = [dict(_flat({"benchmark": f.get("benchmark"), "version": f.get("version")} | dict(f.get("source", {}))))
               for f in (before, now)]  # fmt: skip
    found = [
        f"{name} is {_short(sources[1].get(name))} instead of {_short(sources[0].get(name))}"
        for name in dict.fromkeys((*sources[0], *sources[1]))
        if sources[0].get(name) != sources[1].get(name)
    ]
    resized = False
    for name, split in splits.items():
        other = splits_now.get(name, {"graphs": 0, "content": ""})
        if other["graphs"] != split["graphs"]:
            found.append(f"{name} has {other['graphs']} graphs instead of {split['graphs']}")
            resized = True
        elif found and other["content"] != split["content"]:
            found.append(f"{name} has other graphs, as many as before")
    return found if resized or sources[0] != sources[1] else []


def other_batches(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Options of batches that both fingerprints have, with other values, in words.

    Examples:
        >>> other_batches({"batches": {"unit": "radius"}}, {"batches": {"unit": "deviation", "max_turn": 0}})
        ['unit is deviation instead of radius']
    """
    then, given = dict(before.get(_BATCHES) or {}), dict(now.get(_BATCHES) or {})
    return [
        f"{name} is {_short(given[name])} instead of {_short(value)}"
        for name, value in then.items()
        if name in given and given[name] != value
    ]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Plain values with dotted names."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from _flat(item, f"{name}.{key}" if name else str(key))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}..."
