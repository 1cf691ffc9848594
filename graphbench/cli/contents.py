"""What the files of a command line say, so that it is held against what classes take as the options beside them are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.cli.names import named
from graphbench.errors import BadInput
from graphbench.files.safe_yaml import load_yaml
from graphbench.registry.configurations import read

#: Option that names a class -> the group it is registered in.
SLOTS: dict[str, registry.Group] = {"data": "benchmarks", "model.architecture": "architectures"}
#: Keys of a mapping that stands for a class.
_OF_CLASS = ("class_path", "init_args", "dict_kwargs")
#: Options of the model that hold options of their own.
_GROUPS = ("head", "schedule")


def spoken(words: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a command line says of data, model and trainer by files and in words: where, and nested as in a file.

    Args:
        words: the command line, each `--config` with the path of its file.

    Raises:
        BadInput: a file cannot be read or holds no mapping.
    """
    for position, word in enumerate(words):
        option, given, value = word.partition("=")
        value = value if given else words[position + 1] if position + 1 < len(words) else ""
        if not option.startswith("--") or not value or (value.startswith("-") and not given):
            continue
        if option == "--config":
            if not Path(value).is_file():
                raise BadInput(f"--config {value}: there is no such file.")
            yield f"--config {value}", read(Path(value))
        elif option.removesuffix(".class_path") in ("--data", "--model", "--model.architecture"):
            yield option, _nested(option[2:].removesuffix(".class_path"), _value(value))


def check_order(contents: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse a file of which nothing remains: an overlay that stands before what it was to lie over.

    Lists are left alone, since the callbacks of several files add up.

    Args:
        contents: of the files and words, as `spoken` finds them.

    Raises:
        BadInput: names the file, and the one behind it that sets its options again.

    Examples:
        >>> base, over = {"trainer": {"devices": 1, "max_epochs": 9}}, {"trainer": {"devices": 2}}
        >>> check_order([("--config base", base), ("--config over", over)])
    """
    files = [(place, dict(_leaves(content))) for place, content in contents if place.startswith("--config ")]
    for number, (place, own) in enumerate(files):
        for later, others in files[number + 1 :]:
            if not own or any(isinstance(value, list) for value in own.values()) or not own.keys() <= others.keys():
                continue
            if any(others[option] != value for option, value in own.items()):
                raise BadInput(
                    f"{place}: nothing of it remains, since {later} sets all of it again. What lies over another "
                    "configuration is named behind it."
                )


def _leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping, by its keys without `init_args`; what a recipe expects is no option."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            inside = above if key == "init_args" else f"{above}{key}."
            yield from _leaves(value, inside) if above or key != "expected" else ()
        else:
            yield f"{above}{key}", value


def _value(text: str) -> Any:
    """A name, or the mapping that a word or the file that it names holds."""
    if text.endswith((".yaml", ".yml", ".json")) and Path(text).is_file():
        return read(Path(text))
    if text.startswith("{"):
        try:
            return load_yaml(text)
        except yaml.YAMLError:  # told by the parser, with the option
            return None
    return text


def _nested(option: str, value: Any) -> dict[str, Any]:
    for key in reversed(option.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def classes_in(content: Mapping[str, Any]) -> dict[str, str]:
    """Slot -> the class that a content names."""
    found = {}
    for slot in SLOTS:
        name = named(_at(content, slot))
        if name:
            found[slot] = name
    return found


def options_in(content: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Every option that a content sets, as the command line would name it, and whether its class is named beside it.

    Raises:
        BadInput: options of a class stand beside its name instead of below `init_args`, or the model is named as one.

    Examples:
        >>> list(options_in({"data": {"class_path": "NCI", "init_args": {"seed": 1}}, "model": {"head": {"dim": 3}}}))
        [('data.seed', True), ('model.head.dim', False)]
    """
    for key, value in content.items():
        if key not in ("data", "model", "trainer") or not isinstance(value, Mapping):
            yield str(key), False
        elif key == "data":
            yield from _of_class(key, value)
        elif "class_path" in value:
            raise BadInput(
                f"{key}: this takes no class_path. An architecture is named by model: {{architecture: NAME}}."
            )
        else:
            for name, inner in value.items():
                if name == "architecture" and key == "model" and isinstance(inner, Mapping):
                    yield from _of_class("model.architecture", inner)
                elif name in _GROUPS and key == "model" and isinstance(inner, Mapping):
                    yield from ((f"model.{name}.{option}", False) for option in inner)
                else:
                    yield f"{key}.{name}", False


def _of_class(slot: str, value: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    own = "class_path" in value
    beside = [str(name) for name in value if name not in _OF_CLASS]
    if own and beside:
        example = f"{{class_path: {value['class_path']}, init_args: {{{beside[0]}: ...}}}}"
        raise BadInput(
            f"{slot}: {', '.join(beside)} must stand below init_args, since class_path is there: {slot}: {example}."
        )
    arguments = value.get("init_args") or {}
    for option in (*beside, *(arguments if isinstance(arguments, Mapping) else ())):
        yield f"{slot}.{option}", own


def _at(content: Mapping[str, Any], slot: str) -> Any:
    value: Any = content
    for key in slot.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
