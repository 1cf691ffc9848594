"""Parse the words after a command once: options, their values, and the contents of configuration files.

Checks, imports, recipes, continued runs, sweeps and completion read a `CommandLine`; jsonargparse parses the same words
to values afterwards. The tables of options that name classes or contain other options are also here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput
from graphbench.registry.configurations import read, resolve


@dataclass(frozen=True)
class Slot:
    """An option that names a class.

    Args:
        kind: of the class, for messages.
        group: entry-point group in which such classes are registered, if any.
        module: public module with more of them.
    """

    kind: str
    group: registry.Group | None = None
    module: str = ""


#: Option that names a class -> kind of that class.
SLOTS: dict[str, Slot] = {
    "data": Slot("benchmark", "benchmarks"),
    "model.architecture": Slot("architecture", "architectures"),
    "model.positional_encoding": Slot("encoding", "encodings"),
    "model.optimizer": Slot("optimizer", module="torch.optim"),
    "trainer.callbacks": Slot("callback", "callbacks", "pytorch_lightning.callbacks"),
    "trainer.logger": Slot("logger", module="pytorch_lightning.loggers"),
    "trainer.plugins": Slot("plug-in of Lightning", module="pytorch_lightning.plugins"),
    "trainer.profiler": Slot("profiler", module="pytorch_lightning.profilers"),
}
#: Slots that every model fills -> where their classes are registered.
REQUIRED: dict[str, registry.Group] = {"data": "benchmarks", "model.architecture": "architectures"}
#: Option that contains others -> the class that accepts them.
HOLDERS: dict[str, str] = {
    "trainer": "pytorch_lightning.trainer.trainer:Trainer",
    "model": "graphbench.training.module:BenchmarkModule",
    "model.head": "graphbench.nn.heads:HeadConfig",
    "model.schedule": "graphbench.training.optim:Schedule",
    "expected": "graphbench.registry.expected:Expected",
}
#: Suffixes of files from which jsonargparse reads a class with its options, or a mapping.
SETTINGS = (".yaml", ".yml", ".json")
#: First parts of dotted options.
OPTION_TOPS = ("data", "model", "trainer", "expected")
#: Keys of a mapping that describes a class.
CLASS_KEYS = ("class_path", "init_args", "dict_kwargs")
_SHORT = {"-c": "--config", "-o": "--output"}


def spell_out(words: Sequence[str]) -> list[str]:
    """Replace `-c` by `--config`, which accumulates without a plus, and `-o` by `--output`.

    Examples:
        >>> spell_out(["-c", "a.yaml", "-cb.yaml", "--config+=c.yaml", "-o=out"])
        ['--config', 'a.yaml', '--config=b.yaml', '--config=c.yaml', '--output=out']
    """
    result = []
    for word in words:
        if (long := _SHORT.get(word[:2])) is not None:
            value = word[2:].removeprefix("=")
            word = f"{long}={value}" if word[2:] else long
        result.append(re.sub(r"^--config\+(?==|$)", "--config", word))
    return result


@dataclass(frozen=True)
class Option:
    """An option with its values.

    Args:
        name: with its dashes, without `+`; "" for a value without an option.
        values: the words that follow; several if the option accepts several.
        words: the option and its values as typed.
        appends: whether it adds to a list, by `+=`.
    """

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]
    appends: bool = False

    @property
    def value(self) -> str:
        """The last value, "" without one."""
        return self.values[-1] if self.values else ""

    @property
    def path(self) -> str:
        """The dotted name, equal for all spellings: `data.batch_size`, or `data` for a class."""
        return ".".join(part for part in self.name.lstrip("-").split(".") if part not in ("init_args", "class_path"))

    def read(self) -> Any:
        """Return the value: a mapping or list if the text is one in JSON or YAML, else the text.

        A settings file is read where jsonargparse reads one: in place of a class or a group of options, not as a data
        file.
        """
        if self.path in (*SLOTS, *HOLDERS) and holds_settings(self.value):
            return read(Path(self.value))
        if self.value.startswith(("{", "[")):
            try:
                return load_yaml(self.value)
            except yaml.YAMLError:  # reported by the parser, with the option
                return None
        return self.value


@dataclass(frozen=True)
class CommandLine:
    """The words after a command.

    Args:
        options: in their order.

    Examples:
        >>> line = CommandLine.parse(["--data=NCI", "--trainer.callbacks+", "Timer", "--trainer", "{devices: 2}"])
        >>> [(one.path, one.value, one.appends) for one in line.options]
        [('data', 'NCI', False), ('trainer.callbacks', 'Timer', True), ('trainer', '{devices: 2}', False)]
        >>> line.classes, line.value("trainer.devices")
        ({'data': 'NCI'}, 2)
    """

    options: tuple[Option, ...]

    @classmethod
    def parse(cls, words: Sequence[str], several: Collection[str] = (), flags: Collection[str] = ()) -> CommandLine:
        """Group words into options and values; options in `several` accept any number of values, in `flags` none."""
        options: list[Option] = []
        takes_value = False
        for word in spell_out(words):
            if is_option(word):
                name, sign, value = word.partition("=")
                options.append(Option(name.removesuffix("+"), (value,) if sign else (), (word,), name.endswith("+")))
                takes_value = not sign and name not in flags
            elif takes_value:
                last = options.pop()
                options.append(Option(last.name, (*last.values, word), (*last.words, word), last.appends))
                takes_value = last.name in several
            else:
                options.append(Option("", (word,), (word,)))
        return cls(tuple(options))

    @property
    def words(self) -> list[str]:
        """All words."""
        return [word for option in self.options for word in option.words]

    def without(self, *starts: str) -> CommandLine:
        """Return the command line without the options whose names begin with one of `starts`.

        Examples:
            >>> line = CommandLine.parse(["sft/table-4", "--launcher", "submitit", "--launcher.time=60"])
            >>> line.without("--launcher").words
            ['sft/table-4']
        """
        return CommandLine(tuple(option for option in self.options if not option.name.startswith(starts)))

    def located(self) -> CommandLine:
        """Return the command line with the path of every `--config NAME`, see `resolve`."""
        options = list(self.options)
        for place, option in enumerate(options):
            if option.name == "--config" and option.values:
                path = str(resolve(option.value))
                options[place] = Option(option.name, (path,), (option.name, path))
        return CommandLine(tuple(options))

    def classes_first(self) -> CommandLine:
        """Return the command line with each class before its options, if the words name it once and no file does.

        Examples:
            >>> CommandLine.parse(["--data.fold", "1", "--data", "CSL"]).classes_first().words
            ['--data', 'CSL', '--data.fold', '1']
        """
        options = list(self.options)
        for slot in (*REQUIRED, "model.optimizer"):
            named = [option for option in options if option.path == slot]
            places = (place for place, option in enumerate(options) if option.path.startswith(f"{slot}."))
            first = next(places, len(options))
            if len(named) == 1 and not any(value_at(content, slot) for content in self.files):
                place = options.index(named[0])
                options.insert(min(first, place), options.pop(place))
        return CommandLine(tuple(options))

    @cached_property
    def contents(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The settings in files, JSON values and class names: pairs of a place and a mapping nested as in a file.

        Raises:
            BadInput: a file is missing, cannot be read or is not a mapping.
        """
        contents: list[tuple[str, Mapping[str, Any]]] = []
        for option in self.options:
            if option.name == "--config" and option.values:
                if not Path(option.value).is_file():
                    raise BadInput(f"--config {option.value}: there is no such file.")
                contents.append((f"--config {option.value}", read(Path(option.value))))
            elif option.path.partition(".")[0] in OPTION_TOPS and option.value and not option.appends:
                value = option.read()
                if isinstance(value, Mapping) or (value is not None and option.path in (*REQUIRED, "model")):
                    contents.append((option.name, nested(option.path, value)))
        return contents

    @property
    def files(self) -> list[Mapping[str, Any]]:
        """The contents of the configuration files."""
        return [content for place, content in self.contents if place.startswith("--config ")]

    @property
    def classes(self) -> dict[str, str]:
        """The class that fills each slot of `REQUIRED`; the last one counts."""
        return {slot: name for _, content in self.contents for slot, name in classes_in(content).items()}

    def named(self, *names: str) -> list[Option]:
        """Return the options with these names, dashes included."""
        return [option for option in self.options if option.name in names]

    def value(self, path: str, files: bool = False) -> Any:
        """Return the last value of a dotted option, without dashes, parsed as YAML, or as typed; None if unset.

        With `files`, configurations are also read, whose paths are `located`; otherwise only the words count.
        """
        for option in reversed(self.options):
            if option.value and (files or option.name != "--config"):
                is_file = option.name == "--config"
                content = read(Path(option.value)) if is_file else nested(option.path, option.read())
                value = value_at(content, path)
                if value is not None:
                    return plain(value)
        return None


def is_option(word: str) -> bool:
    """Return whether a word is an option: negative numbers, `-` and texts with a space before any `=` are values.

    Examples:
        >>> [is_option(word) for word in ("--run", "-c", "--data={class_path: NCI}", "-3", "-", "-.5")]
        [True, True, True, False, False, False]
    """
    return re.match(r"-[^\d.\s=][^\s=]*(=|$)", word) is not None


def as_word(path: str | Path) -> str:
    """Quote a path for a command to be copied into a shell.

    Examples:
        >>> as_word("runs/mine"), as_word("runs/3 layers")
        ('runs/mine', "'runs/3 layers'")
    """
    return subprocess.list2cmdline([str(path)]) if os.name == "nt" else shlex.quote(str(path))


def holds_settings(value: str) -> bool:
    """Return whether a value is a settings file."""
    return value.endswith(SETTINGS) and Path(value).is_file()


def nested(option: str, value: Any) -> dict[str, Any]:
    """Nest a value below the keys of a dotted option.

    Examples:
        >>> nested("model.architecture", "GPS")
        {'model': {'architecture': 'GPS'}}
    """
    for key in reversed(option.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def value_at(content: Any, option: str) -> Any:
    """Return the value of a dotted option in a nested mapping, with or without `init_args`; None if unset.

    Examples:
        >>> value_at({"data": {"class_path": "NCI", "init_args": {"batch_size": 8}}}, "data.batch_size")
        8
    """
    for key in option.split("."):
        if isinstance(content, Mapping) and key not in content:
            content = content.get("init_args")
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def plain(value: Any) -> Any:
    """Parse a text as YAML; return other values, and texts that are no YAML, unchanged.

    Examples:
        >>> plain("[1, 2]"), plain("@x"), plain(3)
        ([1, 2], '@x', 3)
    """
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        return value


def class_named(value: Any) -> str | None:
    """Return the class that a value names, as text or as the `class_path` of a mapping."""
    name = value.get("class_path") if isinstance(value, Mapping) else value
    return name if isinstance(name, str) and name else None


def class_names(value: Any) -> set[str]:
    """Return the last parts of the classes that a value, or each item of a list, names."""
    items = value if isinstance(value, list) else [value]
    return {str(item.get("class_path") if isinstance(item, Mapping) else item).rpartition(".")[2] for item in items}


def classes_in(content: Mapping[str, Any]) -> dict[str, str]:
    """Return slot -> class for the slots of `REQUIRED` that a configuration fills."""
    return {slot: name for slot in REQUIRED if (name := class_named(value_at(content, slot)))}


def options_in(content: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the options of a configuration, named as on the command line, and whether it also names their class.

    Raises:
        BadInput: options of a class are next to its name, not below `init_args`, or the model is named as a class.

    Examples:
        >>> list(options_in({"data": {"class_path": "NCI", "init_args": {"seed": 1}}, "model": {"head": {"dim": 3}}}))
        [('data.seed', True), ('model.head.dim', False)]
    """
    for key, value in content.items():
        if key not in OPTION_TOPS[:3] or not isinstance(value, Mapping):
            yield str(key), False
        elif key == "data":
            yield from _options_of_class(key, value)
        elif "class_path" in value:
            raise BadInput(
                f"{key}: this takes no class_path. An architecture is named by model: {{architecture: NAME}}."
            )
        else:
            for name, inner in value.items():
                option = f"{key}.{name}"
                if option in REQUIRED and isinstance(inner, Mapping):
                    yield from _options_of_class(option, inner)
                elif option in HOLDERS and isinstance(inner, Mapping):
                    yield from ((f"{option}.{part}", False) for part in inner)
                else:
                    yield option, False


def _options_of_class(slot: str, value: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the options of a mapping that describes a class, or some of its options."""
    has_class = "class_path" in value
    beside = [str(name) for name in value if name not in CLASS_KEYS]
    if has_class and beside:
        example = f"{{class_path: {value['class_path']}, init_args: {{{beside[0]}: ...}}}}"
        raise BadInput(
            f"{slot}: {', '.join(beside)} must be below init_args, since class_path is given: {slot}: {example}."
        )
    arguments = value.get("init_args") or {}
    for option in (*beside, *(arguments if isinstance(arguments, Mapping) else ())):
        yield f"{slot}.{option}", has_class
