"""Compare configurations by meaning: of continued runs, of recipes and published tables, and of a checkpoint.

Classes are compared by the last part of their name, since modules move. As on the command line, `init_args` is not part
of an option's name. List items that are classes are matched by class. Both configurations should be complete, like a
run's `config.yaml`: an option that one of them lacks is not compared.

Weights may fit a model other than the one that they were trained in: another number of heads or temperature changes no
shape. So the options of a model are also compared with those stored in its checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Options that no score depends on: paths, hardware, display and length. For the length, the trained epochs and steps
#: are compared.
_NEUTRAL = re.compile(
    r"seed_everything|expected(\..*)?|data\.(.*\.)?(root|store|split_dir|num_workers|pin_memory|copy_stream)"
    r"|data\.(.*\.)?(eval_batch_size|predict_split)"
    r"|model\.(compile|metrics(\..*)?)|trainer\.(accelerator|strategy(\..*)?|devices|num_nodes|logger(\..*)?"
    r"|max_epochs|min_epochs|max_steps|min_steps|max_time|limit_predict_batches|num_sanity_val_steps"
    r"|log_every_n_steps|enable_.*|deterministic|benchmark|inference_mode|use_distributed_sampler|profiler(\..*)?"
    r"|detect_anomaly|barebones|plugins(\..*)?|default_root_dir|model_registry)"
)
#: Callbacks that only show, measure or write.
_PASSIVE_CALLBACKS = re.compile(
    r"trainer\.callbacks\.(AttentionCapacity|AttentionMaps|RankProgression|InfluenceRange|GradientFlow|FlowSparsity"
    r"|GradientNorm|TrainTestGap|Throughput|Forecast|FirstBoard|NonFinite|ExactResume|LastCheckpoint|EpochLines"
    r"|LearningRateMonitor|DeviceStatsMonitor|Timer|ModelSummary|RichModelSummary|OnExceptionCheckpoint|\w*ProgressBar)"
    r"(\..*)?"
)
_CLASS_PATH = re.compile(r"(?:[^\W\d]\w*\.)+[A-Z]\w*[a-z]\w*")
_LENGTH = re.compile(r"trainer\.(max|min)_(epochs|steps)|trainer\.max_time")
#: Mappings with user-defined keys, so that a key in only one configuration counts.
_FREE = (".lr_scales", ".learning_rates", ".dict_kwargs")
#: Parts of the model's options that decide its output or what is computed from it; the others decide its training.
MODEL_PARTS = ("architecture", "head", "positional_encoding", "standardize_targets", "loss", "quantiles")
#: Suffixes of options that only matter in training.
_TRAINING = ("dropout", "_drop", "checkpointing")


class _Nothing:
    """The value of a class or item missing from one configuration."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


@dataclass(frozen=True)
class Difference:
    """An option with different values in two configurations.

    An option is dotted, as on the command line, and includes a class among several: `trainer.callbacks.Timer.interval`.
    `before` is `NOTHING` for an item that only the second configuration has.
    """

    option: str
    before: Any
    now: Any

    @property
    def decides_score(self) -> bool:
        """Return whether a score may depend on it; folders, devices, loggers and passive callbacks do not count.

        The number of processes counts, since it multiplies the batch size.
        """
        if self.option in ("trainer.devices", "trainer.num_nodes"):
            return _is_several(self.now) or _is_several(self.before)
        return not (_NEUTRAL.fullmatch(self.option) or _PASSIVE_CALLBACKS.fullmatch(self.option))

    @property
    def decides_training(self) -> bool:
        """Return whether it changes the training: it decides a score, or it is about the length."""
        return self.decides_score or _LENGTH.fullmatch(self.option) is not None

    def __str__(self) -> str:
        return f"{self.option} is {_show(self.now)} instead of {_show(self.before)}"


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """List every option that differs between two configurations of plain values, in the order of the first.

    Examples:
        >>> before = {"data": {"class_path": "a.NCI", "init_args": {"seed": 1}}, "trainer": {"callbacks": None}}
        >>> now = {"data": {"class_path": "NCI", "init_args": {"seed": 2}}, "trainer": {"callbacks": ["a.Timer"]}}
        >>> [str(one) for one in differing(before, now)]
        ['data.seed is 2 instead of 1', 'trainer.callbacks.Timer is Timer instead of nothing']
    """
    return list(_compare("", dict(before), dict(now)))


def _compare(name: str, before: Any, now: Any) -> Iterator[Difference]:
    one, other = _class_of(before), _class_of(now)
    if one is not None and one == other:
        yield from _compare(name, dict(before.get("init_args") or {}), dict(now.get("init_args") or {}))
        # Options that a constructor accepts without declaring them.
        yield from _compare(f"{name}.dict_kwargs", *(dict(each.get("dict_kwargs") or {}) for each in (before, now)))
    elif one is None and other is None and isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            if key in before and key in now:
                yield from _compare(f"{name}.{key}" if name else str(key), before[key], now[key])
            elif name.endswith(_FREE):
                yield Difference(f"{name}.{key}", before.get(key, NOTHING), now.get(key, NOTHING))
    elif _are_classes(before) and _are_classes(now):
        yield from _compare_items(name, before or (), now or ())
    elif not _same(before, now):
        yield Difference(name, before, now)


def _compare_items(name: str, before: Sequence[Any], now: Sequence[Any]) -> Iterator[Difference]:
    """Compare items of the same class, and the order of all items."""
    old, new = _by_class(before), _by_class(now)
    for key in dict.fromkeys((*old, *new)):
        option = f"{name}.{key}"
        if key in old and key in new:
            yield from _compare(option, _as_mapping(old[key]), _as_mapping(new[key]))
        else:
            yield Difference(option, old.get(key, NOTHING), new.get(key, NOTHING))
    if old.keys() == new.keys() and list(old) != list(new):
        yield Difference(name, list(old), list(new))


def _by_class(items: Sequence[Any]) -> dict[str, Any]:
    """Index items by the name of their class; repeated classes get a number: `Timer-2`."""
    indexed: dict[str, Any] = {}
    for item in items:
        name = key = _class_of(item) or str(item).rpartition(".")[2]
        number = 1
        while key in indexed:
            number += 1
            key = f"{name}-{number}"
        indexed[key] = item
    return indexed


def _as_mapping(item: Any) -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else {"class_path": item}


def _are_classes(value: Any) -> bool:
    """Return whether a value is a list of classes, which may be empty or None."""
    if value is None:
        return True
    return isinstance(value, (list, tuple)) and all(_class_of(item) or _is_path(item) for item in value)


def _is_path(item: Any) -> bool:
    """Return whether a text is the path of a class, unlike that of a file, such as `mine.csv` or `MINE.CSV`."""
    return isinstance(item, str) and _CLASS_PATH.fullmatch(item) is not None


def _class_of(value: Any) -> str | None:
    """Return the last part of the class that a mapping names."""
    path = value.get("class_path") if isinstance(value, Mapping) else None
    return path.rpartition(".")[2] if isinstance(path, str) else None


def _same(one: Any, other: Any) -> bool:
    """Return whether two values mean the same: 1 and 1.0, a tuple and a list, paths that end in the same class."""
    if isinstance(one, bool) or isinstance(other, bool):  # True == 1 in Python, but not in a configuration
        return one is other
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if _is_path(one) and _is_path(other):
        return bool(one.rpartition(".")[2] == other.rpartition(".")[2])
    return bool(one == other)


def _is_several(value: Any) -> bool:
    """Return whether devices or nodes are certainly more than one; `auto` depends on the machine."""
    if isinstance(value, str) and "," in value:  # "0,1" is a list of devices for Lightning, and "0," one device
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, (list, tuple)):
        return len(value) > 1
    return bool(re.fullmatch(r"[1-9]\d*", str(value))) and int(value) > 1


def _show(value: Any) -> str:
    """Format a value for a message: a class by its name, everything else as JSON."""
    if value is NOTHING:
        return "nothing"
    if (name := _class_of(value)) is not None:
        return name
    if _is_path(value):
        return str(value).rpartition(".")[2]
    return json.dumps(value, default=str)


def differing_options(
    configured: Mapping[str, Any], trained: Mapping[str, Any], parts: Sequence[str] = MODEL_PARTS
) -> list[str]:
    """Describe options of a model that differ from those stored in a checkpoint.

    Options that one of them lacks do not count: those of a later version, and defaults that Python code did not set.

    Examples:
        >>> trained = {"architecture": {"class_path": "old.SFT", "init_args": {"temperature": 2.0, "dropout": 0.1}}}
        >>> differing_options({"architecture": {"class_path": "SFT", "init_args": {"temperature": 1.0}}}, trained)
        ['model.architecture.temperature is 1.0 instead of 2.0']
    """
    both = [part for part in parts if part in configured and part in trained]
    then, now = ({"model": {part: options[part] for part in both}} for options in (trained, configured))
    return [str(change) for change in differing(then, now) if not change.option.endswith(_TRAINING)]
