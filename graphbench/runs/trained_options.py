"""Options of the model in a run's configuration, held against those that its checkpoint was trained with.

Weights may fit another model than the one that they were trained in: another number of heads or another temperature
leaves all shapes as they are. A configuration that was changed by hand, or whose bits turned around, must not give
other numbers without a word.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from graphbench.data.files.foreign import load_yaml
from graphbench.runs.folder import RunFolder

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
