"""Short names in configurations: `GPS` instead of `graphbench_baselines.gps.GPS`.

jsonargparse finds a class by its name once its module is imported. So the registered names that a command line or a
configuration mentions are imported before parsing, and nothing else is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.errors import BadInput
from graphbench.files.json_files import load_json
from graphbench.files.safe_yaml import load_yaml
from graphbench.registry.configurations import read
from graphbench.registry.expected import Expected
from graphbench.runs import RunFolder

#: Option that names a class -> group it must be registered in.
_SLOTS: dict[tuple[str, ...], registry.Group] = {("data",): "benchmarks", ("model", "architecture"): "architectures"}


def configurations(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The content of every `--config FILE`.

    Raises:
        BadInput: a file is missing, is not a YAML mapping, or expects something under an unknown name.
    """
    for position, argument in enumerate(arguments):
        if argument == "--config" and position + 1 < len(arguments):
            path = Path(arguments[position + 1])
        elif argument.startswith("--config="):
            path = Path(argument.partition("=")[2])
        else:
            continue
        if not path.is_file():
            raise BadInput(f"--config {path}: there is no such file.")
        content = read(path)
        Expected.parse(content.get("expected"), f"--config {path}")
        yield content


#: Options of data that name files or folders.
_PATHS = ("root", "store", "file", "test_file", "val_file", "split_dir")
#: Option of one benchmark that may name a file, and is a word of other meaning elsewhere.
_PATHS_OF = {"Graphs": ("source", "test_source", "val_source")}


def moved_paths(run: RunFolder) -> dict[str, tuple[str, str]]:
    """Where the data of a run are, for a command that is given in another folder than its fit was.

    A path in a configuration is relative to the folder in which the fit was started. It is looked for there first, and
    in the folder of the command where that has gone, as on another machine.

    Returns:
        Option of the data -> the path in the configuration and the absolute one to take instead.
    """
    try:
        started = Path(load_json(run.environment)["folder"])
        data = yaml.safe_load(run.config.read_text(encoding="utf-8"))["data"]
        options, benchmark = data["init_args"], data["class_path"].rpartition(".")[2]
        names = (*_PATHS, *_PATHS_OF.get(benchmark, ()))
        given = {name: options[name] for name in names if isinstance(options.get(name), str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):  # an older run, or a damaged one
        return {}
    relative = {name: value for name, value in given.items() if not Path(value).is_absolute()}
    if started == Path.cwd():
        return {}
    return {name: (value, str(started / value)) for name, value in relative.items() if (started / value).exists()}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def named(value: Any) -> str | None:
    """The class that a configuration names: a name, or a mapping with a `class_path`."""
    name = value.get("class_path") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None


def _check(group: registry.Group, name: str | None) -> None:
    """A bare word in a slot must be registered there; a dotted path is left to jsonargparse."""
    if name and name.isidentifier():
        registry.load(group, name)


def import_named(arguments: Sequence[str]) -> None:
    """Import every registered class that the arguments or their configurations name.

    Raises:
        UnknownName: `data` or `model.architecture` names something that nobody registers.
        BrokenPlugin: a named class cannot be imported.
        BadInput: a configuration cannot be read.
    """
    words: set[str] = set()
    for content in configurations(arguments):
        words.update(_strings(content))
        for path, group in _SLOTS.items():
            value: Any = content
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            _check(group, named(value))
    for position, argument in enumerate(arguments):
        option, _, value = argument.partition("=")
        value = value or (arguments[position + 1] if position + 1 < len(arguments) else "")
        for path, group in _SLOTS.items():
            if option in ("--" + ".".join(path), "--" + ".".join(path) + ".class_path"):
                _check(group, value)
        words.update((value, option))
        if value.startswith("{"):
            with contextlib.suppress(yaml.YAMLError):  # told by the parser, with the option
                words.update(_strings(load_yaml(value)))
    for group in registry.GROUPS:
        for name in words & registry.records(group).keys():
            registry.load(group, name)
