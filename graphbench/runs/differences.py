"""Compare configurations by meaning: of runs that go on, of recipes and published tables, and of a checkpoint.

Classes are compared by the last part of their name, since modules move; `init_args` is no part of an option's name, as
on the command line; items of a list that are classes are matched by class. Both configurations should be complete, as
a run's `config.yaml` is: an option that one of them lacks is not compared.

Weights may fit another model than the one that they were trained in: another number of heads or another temperature
leaves all shapes as they are. So the options of a model are also compared with those stored in its checkpoint.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from graphbench.data.files.foreign import load_yaml
from graphbench.runs.folder import RunFolder

#: Options that say where and on what a run works, what it shows and how long it goes on; a score follows from none of
#: them. The length is held against what is expected by the epochs and steps that were trained.
_BESIDE = re.compile(
    r"seed_everything|expected(\..*)?|data\.(.*\.)?(root|store|split_dir|num_workers|eval_batch_size|predict_split)"
    r"|model\.(compile|metrics(\..*)?)|trainer\.(accelerator|strategy(\..*)?|devices|num_nodes|logger(\..*)?"
    r"|max_epochs|min_epochs|max_steps|min_steps|max_time|limit_predict_batches|num_sanity_val_steps"
    r"|log_every_n_steps|enable_.*|deterministic|benchmark|inference_mode|use_distributed_sampler|profiler(\..*)?"
    r"|detect_anomaly|barebones|plugins(\..*)?|default_root_dir|model_registry)"
)
#: Callbacks that look on: they show, measure, or write what was trained.
_ONLOOKERS = re.compile(
    r"trainer\.callbacks\.(AttentionCapacity|AttentionMaps|RankProgression|TrainTestGap|Throughput|Forecast|NonFinite"
    r"|ExactResume|LastCheckpoint|EpochLines|LearningRateMonitor|DeviceStatsMonitor|Timer|ModelSummary|RichModelSummary"
    r"|OnExceptionCheckpoint|\w*ProgressBar)(\..*)?"
)


#: Mappings whose keys are a user's own, so that one which only one configuration has counts.
_FREE = (".lr_scales", ".learning_rates", ".dict_kwargs")


class _Nothing:
    """The value of a class or item that one configuration does not have."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


@dataclass(frozen=True)
class Difference:
    """An option that two configurations give other values.

    Args:
        option: dotted, as on the command line; a class among several is part of it: `trainer.callbacks.Timer.interval`.
        before: its value in the first; `NOTHING` for an item that only the second has.
        now: its value in the second.
    """

    option: str
    before: Any
    now: Any

    @property
    def decides_score(self) -> bool:
        """Whether a score may follow from it: not from folders, devices, loggers and callbacks that look on.

        Several processes train on batches that are as many times as large.
        """
        if self.option in ("trainer.devices", "trainer.num_nodes"):
            return _is_several(self.now) or _is_several(self.before)
        return not (_BESIDE.fullmatch(self.option) or _ONLOOKERS.fullmatch(self.option))

    def __str__(self) -> str:
        return f"{self.option} is {_shown(self.now)} instead of {_shown(self.before)}"


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Every option that differs, in the order of the first configuration.

    Args:
        before: a configuration, as plain values.
        now: another one.

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
    """Compare items that are classes, each with the one of its class; their order where it is another."""
    old, new = _by_class(before), _by_class(now)
    for key in dict.fromkeys((*old, *new)):
        inside = f"{name}.{key}"
        if key in old and key in new:
            yield from _compare(inside, _mapping(old[key]), _mapping(new[key]))
        else:
            yield Difference(inside, old.get(key, NOTHING), new.get(key, NOTHING))
    if old.keys() == new.keys() and list(old) != list(new):
        yield Difference(name, list(old), list(new))


def _by_class(items: Sequence[Any]) -> dict[str, Any]:
    """Items by the name of their class, a second one of a class with its number behind."""
    found: dict[str, Any] = {}
    for item in items:
        name = key = _class_of(item) or str(item).rpartition(".")[2]
        number = 1
        while key in found:
            number += 1
            key = f"{name}-{number}"
        found[key] = item
    return found


def _mapping(item: Any) -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else {"class_path": item}


def _are_classes(value: Any) -> bool:
    """Whether a value is a list of classes, which may be empty or None."""
    if value is None:
        return True
    return isinstance(value, (list, tuple)) and all(_class_of(item) or _is_class(item) for item in value)


def _is_class(item: Any) -> bool:
    return _is_path(item) and item.rpartition(".")[2][0].isupper()


def _is_path(item: Any) -> bool:
    return isinstance(item, str) and "." in item and all(part.isidentifier() for part in item.split("."))


def _class_of(value: Any) -> str | None:
    """The last part of the class that a mapping names."""
    path = value.get("class_path") if isinstance(value, Mapping) else None
    return path.rpartition(".")[2] if isinstance(path, str) else None


def _same(one: Any, other: Any) -> bool:
    """Whether two values mean the same: 1 is 1.0, a tuple is a list, and a class is known by its last name."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if _is_path(one) and _is_path(other):
        return bool(one.rpartition(".")[2] == other.rpartition(".")[2])
    return bool(one == other)


def _is_several(value: Any) -> bool:
    """Whether a number or list of devices or nodes is more than one by itself; `auto` depends on the machine."""
    if isinstance(value, (list, tuple)):
        return len(value) > 1
    return bool(re.fullmatch(r"[1-9]\d*", str(value))) and int(value) > 1


def _shown(value: Any) -> str:
    """A value in a message: a class by its name, everything else as JSON."""
    if value is NOTHING:
        return "nothing"
    if (name := _class_of(value)) is not None:
        return name
    if _is_path(value):
        return str(value).rpartition(".")[2]
    return json.dumps(value, default=str)


def told(differences: Iterable[Difference], most: int = 6) -> str:
    """Differences in a line, the first ones by name.

    Examples:
        >>> told([Difference("data.seed", 1, 2), Difference("data.batch_size", 32, 4)], most=1)
        'data.seed is 2 instead of 1; and 1 more'
    """
    named = [str(one) for one in differences]
    more = [f"and {len(named) - most} more"] if len(named) > most else []
    return "; ".join([*named[:most], *more])


log = logging.getLogger(__name__)

#: Parts of the model's options that decide what it answers; the others say how it is trained.
_PARTS = ("architecture", "head", "positional_encoding", "standardize_targets")
#: Ends of the names of options that count in training alone.
_TRAINING = ("dropout", "_drop", "checkpointing")


def differing_options(configured: Mapping[str, Any], trained: Mapping[str, Any]) -> list[str]:
    """What differs, in words; options that only the configuration has are those of a later version.

    Args:
        configured: options of the model in a configuration.
        trained: those that a checkpoint holds.

    Examples:
        >>> trained = {"architecture": {"class_path": "old.SFT", "init_args": {"temperature": 2.0, "dropout": 0.1}}}
        >>> differing_options({"architecture": {"class_path": "SFT", "init_args": {"temperature": 1.0}}}, trained)
        ['model.architecture.temperature is 1.0 instead of 2.0']
    """
    now = dict(_flat({part: configured.get(part) for part in _PARTS}, "model"))
    then = dict(_flat({part: trained[part] for part in _PARTS if part in trained}, "model"))
    return [
        f"{name} is {json.dumps(now[name], default=str) if name in now else 'missing'} instead of {json.dumps(value)}"
        for name, value in then.items()
        if not name.endswith(_TRAINING) and now.get(name, _Missing) != value
    ]


class _Missing:
    """An option that is not there."""


def warn_of_other_options(run: RunFolder, checkpoint: Mapping[str, Any]) -> None:
    """Say where the configuration of a run makes another model than a checkpoint was trained as.

    Args:
        run: the folder.
        checkpoint: content of one of its checkpoints; those of earlier versions, and exported weights, say nothing.
    """
    trained = checkpoint.get("hyper_parameters")
    try:
        configured = load_yaml(run.config.read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return  # whoever makes a model of it says why not
    if not isinstance(trained, Mapping) or not isinstance(configured, Mapping):
        return
    if found := differing_options(configured, trained):
        log.warning("%s is not what the checkpoint was trained with: %s.", run.config, "; ".join(found[:6]))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Plain values with dotted names; of a class its last name, since modules move."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, name if key == "init_args" else f"{name}.{key}")
    elif isinstance(value, (list, tuple)) and value:
        yield f"{name}.length", len(value)
        for number, item in enumerate(value):
            yield from _flat(item, f"{name}.{number}")
    elif name.endswith(".class_path") and isinstance(value, str):
        yield name, value.rpartition(".")[2]
    else:
        yield name, value
