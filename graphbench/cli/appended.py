"""A command line that is given again: what it appends to lists is in the configuration of its run already."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

log = logging.getLogger(__name__)

#: `--trainer.callbacks+=EarlyStopping`; the value may be the next word.
_APPENDS = re.compile(r"(--[\w.]+)\+(?:=(.*))?", re.DOTALL)


def without_repeats(
    arguments: Sequence[str], config: Mapping[str, Any], over: Iterable[Mapping[str, Any]] = ()
) -> list[str]:
    """The command line without what it appends to a list that has it, and without the options of that item.

    A list that the command line itself gives, by a file or whole, takes the place of the run's: what is appended to
    that one stays.

    Args:
        arguments: of a command that began a run, given again to go on with it.
        config: configuration of the run.
        over: contents of the configurations that the command line lays over it.

    Examples:
        >>> words = ["--trainer.callbacks+=Timer", "--trainer.callbacks.interval", "epoch", "--trainer.max_epochs", "9"]
        >>> without_repeats(words, {"trainer": {"callbacks": [{"class_path": "pytorch_lightning.callbacks.Timer"}]}})
        ['--trainer.max_epochs', '9']
        >>> without_repeats(words[:1], {"trainer": {"callbacks": None}})
        ['--trainer.callbacks+=Timer']
    """
    kept: list[str] = []
    rest = list(arguments)
    given, over = {argument.partition("=")[0] for argument in arguments}, tuple(over)
    while rest:
        word = rest.pop(0)
        appends = _APPENDS.fullmatch(word)
        if appends is None:
            kept.append(word)
            continue
        name, value = appends[1], appends[2]
        words = [word] if value is not None else [word, *rest[:1]]
        value, rest = (value, rest) if value is not None else (rest[0] if rest else "", rest[1:])
        while rest and rest[0].startswith(f"{name}."):
            length = 1 if "=" in rest[0] or len(rest) == 1 or rest[1].startswith("--") else 2
            words, rest = words + rest[:length], rest[length:]
        replaced = name in given or any(_list_at(content, name) is not None for content in over)
        if not replaced and _names(value) <= _named(_list_at(config, name) or []):
            log.info("The run has %s already, as its config.yaml says.", " ".join(words))
        else:
            kept += words
    return kept


def _names(value: str) -> set[str]:
    """What is appended, by the last part of its name."""
    try:
        return _named(yaml.safe_load(value))
    except yaml.YAMLError:
        return {value}


def _named(content: Any) -> set[str]:
    items = content if isinstance(content, list) else [content]
    return {str(item.get("class_path") if isinstance(item, Mapping) else item).rpartition(".")[2] for item in items}


def _list_at(config: Mapping[str, Any], option: str) -> list[Any] | None:
    """The list that a configuration gives for an option; None where it gives none."""
    found: Any = config
    for key in option.removeprefix("--").split("."):
        if isinstance(found, Mapping) and key not in found:
            found = found.get("init_args")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, list) else None
