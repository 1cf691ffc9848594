"""A file, or the name of something else, where an option wants the name of a class; and options in the wrong place.

The parser would read the file as the value, and print its content as the mistake.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from graphbench import registry
from graphbench.cli.parsers import ALL_OPTIONS
from graphbench.errors import BadInput
from graphbench.registry.configurations import configurations

#: Option that names a class -> what it names, and the group it is registered in.
_NAMED: dict[str, tuple[str, registry.Group]] = {
    "data": ("benchmark", "benchmarks"),
    "model.architecture": ("architecture", "architectures"),
}
#: Options that hold others and name nothing themselves -> what to write instead.
_HOLDERS = {
    "model": "an architecture is named by --model.architecture NAME",
    "trainer": "its options have names of their own, such as --trainer.max_epochs 10",
}
_SETTINGS = (".yaml", ".yml", ".json")  # files from which the parser reads a class with its options
#: Endings of files of data, which no module has.
_DATA_FILES = re.compile(
    r"\.(csv|tsv|txt|smi|smiles|sdf|mol2?|parquet|feather|xlsx|jsonl|pt|pkl|npz|graphml|gz|zip|ckpt)$"
)
#: What other programs call an option -> what it is called here.
_ELSEWHERE = {
    "lr": "model.optimizer.lr",
    "learning-rate": "model.optimizer.lr",
    "weight-decay": "model.optimizer.weight_decay",
    "epochs": "trainer.max_epochs",
    "num-epochs": "trainer.max_epochs",
    "seed": "seed_everything",
    "gpus": "trainer.devices",
    "device": "trainer.accelerator",
    "dataset": "data",
    "benchmark": "data",
    "architecture": "model.architecture",
}


def check_names(words: Sequence[str]) -> None:
    """Look at what stands where a benchmark or an architecture is named.

    Args:
        words: a command line.

    Raises:
        BadInput: a file, a folder, or a name where none belongs.
    """
    for word, following in pairwise([*words, ""]):
        option, given, value = word.partition("=")
        name = option[2:].removesuffix(".class_path") if option.startswith("--") else ""
        value = value if given else "" if following.startswith("--") else following
        if not value or value.startswith("{") or _holds_settings(value):
            continue
        if name in _HOLDERS:
            meant = f"--model.architecture {value}" if value in registry.architectures() else ""
            raise BadInput(f"--{name} {value}: {_HOLDERS[name]}.{f' Did you mean {meant}?' if meant else ''}")
        if name in _NAMED:
            check_name(option, name, value)


def check_name(option: str, slot: str, value: str) -> None:
    """Refuse what is no name of a class.

    Args:
        option: where it stands.
        slot: `data` or `model.architecture`.
        value: what stands there.

    Raises:
        BadInput: it is a file, or reads like one.
    """
    if not _is_name(value):
        raise BadInput(f"{option} {value}: {_instead(slot, value)}")


def _holds_settings(value: str) -> bool:
    return value.endswith(_SETTINGS) and Path(value).is_file()


def _is_name(value: str) -> bool:
    """Whether this may be a class: a word, or words with points between them, that is no file."""
    dotted = all(part.isidentifier() for part in value.split("."))
    return dotted and not _DATA_FILES.search(value) and ("." not in value or not Path(value).exists())


def _instead(name: str, value: str) -> str:
    what, group = _NAMED[name]
    text = f"this option takes the name of {'an' if what[0] in 'aeiou' else 'a'} {what} (`graphbench list {group}`)."
    if name != "data":
        return text
    return (
        f"{text} Data of your own are named beside it: --data Molecules --data.file {value}, or for other graphs "
        f"--data Graphs --data.source {value}."
    )


def check_loose(words: Sequence[str], command: str, several: Iterable[str] = ()) -> None:
    """Refuse a word that is the value of no option.

    Args:
        words: the command line after the command.
        command: its name.
        several: options that take as many words as there are.

    Raises:
        BadInput: names the word, and the option that it may be meant for.
    """
    room = 0.0  # for values of the last option
    for word in words:
        if word.startswith("-") and not re.match(r"-[\d.]", word) and word != "-":
            room = 0 if "=" in word else math.inf if word in several else 1
        elif room:
            room -= 1
        else:
            option = _option_for(word, command)
            hint = f"Did you mean {option} {word}?" if option else ALL_OPTIONS
            raise BadInput(f"{word!r} is the value of no option. {hint}")


def _option_for(word: str, command: str) -> str | None:
    """The option whose value a word looks like."""
    path = Path(word)
    if (path / "config.yaml").is_file():
        return "--resume" if command == "fit" else "--run"
    if path.is_file():
        reads = command in ("predict", "embed", "explain") and not word.endswith(_SETTINGS)
        return "--input" if reads else "--config" if word.endswith(_SETTINGS) else None
    for option, (_, group) in _NAMED.items():
        if word in registry.records(group):
            return f"--{option}"
    return "--config" if word in configurations() else None


def check_owner(option: str, slot: str, classes: Mapping[str, str]) -> None:
    """Refuse an option of a class that is named nowhere.

    Raises:
        BadInput: says how to name it.
    """
    if slot not in classes:
        raise BadInput(
            f"--{option}: this is an option of {_NAMED[slot][0]}s, but none is named. Name one with --{slot} NAME or "
            f"in a --config."
        )


def meant(option: str, classes: Mapping[str, str], taken_by: Callable[[str], Iterable[str] | None]) -> str | None:
    """The option that was meant by one without its prefix, or by the name it has in other programs.

    Args:
        option: unknown, without dashes.
        classes: slot -> class that the command line names.
        taken_by: options of the class in a slot, None where they are not known.

    Examples:
        >>> meant("lr", {}, lambda slot: None)
        'model.optimizer.lr'
        >>> meant("hidden_dim", {"model.architecture": "GPS"}, lambda slot: ["hidden_dim"])
        'model.architecture.hidden_dim'
    """
    last = option.removeprefix("model.")
    if (known := _ELSEWHERE.get(last.replace("_", "-"))) is not None:
        return known
    owners = (slot for slot in classes if last in (taken_by(slot) or ()) and last != "spec")
    return next((f"{slot}.{last}" for slot in owners), None)


def meant_option(option: str, name: str) -> BadInput:
    """The error of an option that has another name."""
    return BadInput(f"Unknown option --{option}. Did you mean --{name}? {ALL_OPTIONS}")
