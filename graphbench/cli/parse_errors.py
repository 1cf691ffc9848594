"""Explain why jsonargparse refuses a command line: one line with the option, the value and what would be right.

jsonargparse's own messages are about its types. So once it has failed, the options are checked one by one against the
classes that accept them, and jsonargparse judges each value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import EnumMeta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from jsonargparse import ArgumentParser

from graphbench import registry
from graphbench.cli.command_line import (
    CLASS_KEYS,
    HOLDERS,
    OPTION_TOPS,
    REQUIRED,
    SETTINGS,
    SLOTS,
    CommandLine,
    class_named,
    holds_settings,
    nested,
)
from graphbench.cli.parsers import ALL_OPTIONS, near_options, unknown_option
from graphbench.data.files.foreign import load_yaml
from graphbench.registry.configurations import read
from graphbench.training.arguments import parameters, type_hints

#: Parameters that links and optimizers fill, which are therefore not options.
_NO_OPTIONS = ("self", "spec", "params")
#: Types whose values are judged here; others contain classes.
_PLAIN = (int, float, str, bool, NoneType, Path, list, tuple, dict, Sequence, Mapping)


def explain(error: Exception, parser: ArgumentParser, words: Sequence[str]) -> str:
    """Return one readable message for the error of a parser, which knows the options outside of classes."""
    with contextlib.suppress(TypeError, ValueError):  # a user's class, whose signature cannot be read
        if message := next(_mistakes(CommandLine.parse(words), parser, str(error)), ""):
            return message
    return _shorten(str(error))


def _mistakes(line: CommandLine, parser: ArgumentParser, text: str) -> Iterator[str]:
    """Yield mistakes in the order in which a user would check for them."""
    for one in line.options:
        if not one.name:
            yield f"Unexpected argument {one.value!r}. {ALL_OPTIONS}"
        elif not one.values and not one.name.endswith((".help", "--print_config")):
            yield f"{one.name} needs a value. {ALL_OPTIONS}"
    defined = [name for name in parser.get_defaults().keys(branches=True) if isinstance(name, str)]
    for one in line.options:
        first, _, rest = one.name.lstrip("-").partition(".")
        if first not in defined or (rest and first == "expected" and f"expected.{rest}" not in defined):
            yield str(unknown_option(one.name, defined))
    classes = _collect_classes(line)
    yield from _missing([f"--{slot}" for slot in REQUIRED if slot not in classes])
    typed = {one.path.replace(".init_args.", "."): one.value for one in line.options if one.values}
    for group in classes.values():
        for item in group:
            yield from _mistakes_of_class(item, text, typed)
    seed = line.value("seed_everything")
    if seed is not None and (message := _describe_mistake("seed_everything", int | bool, str(seed), text)):
        yield message


def _missing(options: Sequence[str]) -> Iterator[str]:
    if options:
        yield f"{' and '.join(options)} must be given, on the command line or in a configuration. {ALL_OPTIONS}"


@dataclass
class _NamedClass:
    """A class that a command line names, or one that has options.

    Args:
        place: the option that names it, or the prefix of its options.
        name: as written.
        cls: the class or function; None if it is not imported.
        options: name, value and whether it adds to a list.
    """

    place: str
    name: str
    cls: Any
    options: list[tuple[str, Any, bool]] = dataclasses.field(default_factory=list)


def _collect_classes(line: CommandLine) -> dict[str, list[_NamedClass]]:
    """Return the classes at each place: one, or those of a list."""
    classes = {place: [_NamedClass(place, "", _imported(target))] for place, target in HOLDERS.items()}
    for one in line.options:
        if one.name == "--config":
            content = read(Path(one.value))
        else:
            content = nested(one.path, one.value if (value := one.read()) is None else value) if one.values else {}
        for top in OPTION_TOPS:
            if top in content:
                _collect(top, content[top], one.appends, classes)
    return classes


def _collect(place: str, value: Any, adds: bool, classes: dict[str, list[_NamedClass]]) -> None:
    """Add what a value says about a place and those below it."""
    if place in SLOTS:
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            if (name := _class_name(item)) is not None:
                earlier = classes.get(place, []) if adds or number else []
                classes[place] = [*earlier, _NamedClass(place, name, _class_of(place, name))]
            if isinstance(item, Mapping):
                options = {key: inner for key, inner in item.items() if key not in CLASS_KEYS}
                inside = item.get("init_args")
                options |= inside if isinstance(inside, Mapping) else {}
                last = classes.setdefault(place, [_NamedClass(place, "", None)])[-1]
                last.options += [(key, inner, adds) for key, inner in options.items()]
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            option = f"{place}.{key}"
            if option in SLOTS or (option in HOLDERS and isinstance(inner, Mapping)):
                _collect(option, inner, adds, classes)
            else:
                classes[place][-1].options.append((key, inner, adds))


def _class_name(value: Any) -> str | None:
    """Return the class that a value names; `false`, `null` and the like name none."""
    name = class_named(value)
    try:
        return name if name and isinstance(yaml.safe_load(name), str) else None
    except yaml.YAMLError:
        return name


def _imported(target: str) -> Any:
    """Return `module:name` or `module.name` if its module is already imported, else None."""
    module, _, name = target.replace(":", ".").rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _class_of(place: str, name: str) -> Any:
    slot = SLOTS[place]
    if "." in name:
        return _imported(name)
    if slot.group and name in registry.records(slot.group):
        return registry.load(slot.group, name)
    return _imported(f"{slot.module}.{name}")


def _mistakes_of_class(item: _NamedClass, text: str, typed: Mapping[str, str]) -> Iterator[str]:
    if (not callable(item.cls) or inspect.isabstract(item.cls)) and item.name and item.name in text:
        yield _no_such_class(item, text)
    if item.cls is None and not item.name and item.options:
        yield (
            f"--{item.place}.{item.options[0][0]}: this is an option of {SLOTS[item.place].kind}s, but none is named. "
            f"Name one with --{item.place} NAME."
        )
    if not isinstance(item.cls, type):
        return
    hints = type_hints(item.cls)
    taken = [name for name in parameters(item.cls) if name not in _NO_OPTIONS]
    if item.place in HOLDERS:
        taken = [name for name in taken if f"{item.place}.{name}" not in SLOTS]
    for name, value, adds in item.options:
        option = f"{item.place}.{name}"
        if name in hints and name in taken:
            if adds and _is_plain(hints[name]) and not _takes_lists(hints[name]):
                yield f"--{option}+: {option} is not a list to add to. Leave out the +."
            if not adds and (message := _describe_mistake(option, hints[name], value, text)):
                yield message + _with_quotes(option, hints[name], typed.get(option, value))
        elif name not in taken and name in text:
            yield _no_such_option(option, item.cls, taken)
    if item.name:
        given = {name for name, _, _ in item.options}
        needed = [
            one.name
            for one in inspect.signature(item.cls).parameters.values()
            if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        ]
        yield from _missing([f"--{item.place}.{name}" for name in needed if name not in (*given, *_NO_OPTIONS)])


def _no_such_option(option: str, cls: type, taken: Sequence[str]) -> str:
    place, _, name = option.rpartition(".")
    near = near_options(name, taken, f"{place}.")
    return f"--{option}: {cls.__name__} has no option {name!r}. {near}It has: {', '.join(taken)}."


def _no_such_class(item: _NamedClass, text: str) -> str:
    option = f"--{item.place}"
    if Path(item.name).is_file() and not item.name.endswith(SETTINGS):
        return f"{option} {item.name}: this is a file, but the option takes the name of a class. {ALL_OPTIONS}"
    if "." in item.name:
        module, _, name = item.name.rpartition(".")
        why = f"there is no class {name} in {module}" if module in sys.modules else f"{module} cannot be imported"
        reason = re.search(r"((?:No module named|cannot import name) .+?)(?:\. Got value|$)", text, re.MULTILINE)
        return f"{option} is {item.name!r}: {why}{f' ({reason[1]})' if reason else ''}."
    slot = SLOTS[item.place]
    kinds = vars(sys.modules[slot.module]) if slot.module in sys.modules else {}
    names = {name for name, kind in kinds.items() if isinstance(kind, type) and not inspect.isabstract(kind)}
    names |= registry.records(slot.group).keys() if slot.group else set()
    lower = {name.lower(): name for name in names}
    if near := difflib.get_close_matches(item.name.lower(), lower, n=2, cutoff=0.7):
        suggested = " or ".join(lower[name] for name in near)
        return f"{option}: no class is called {item.name!r}. Did you mean {suggested}?"
    return f"{option} is {item.name!r}; expected one of: {', '.join(sorted(names))}."


def _describe_mistake(option: str, hint: Any, value: Any, text: str) -> str | None:
    """Return why a value does not match an annotation; None if it does, or if the parser's text is not about it."""
    if isinstance(value, Mapping):
        for kind in (part for part in _parts(hint) if dataclasses.is_dataclass(part) and isinstance(part, type)):
            hints = type_hints(kind)
            for name, inner in (dict(value) | dict(value.get("init_args") or {})).items():
                if name in CLASS_KEYS:
                    continue
                if name not in hints:
                    return _no_such_option(f"{option}.{name}", kind, list(hints))
                if message := _describe_mistake(f"{option}.{name}", hints[name], inner, text):
                    return message
    if isinstance(value, str) and holds_settings(value):
        return None
    if not (_is_plain(hint) or (isinstance(value, str) and value in text)) or _accepts(hint, value):
        return None
    for word, number in _numbers_as_text(value) if float in _parts(hint) else ():
        if not math.isfinite(number):
            return f"--{option} is {word!r}; expected a finite number."
    return f"--{option} is {value!r}; expected {_describe_type(hint)}."


def _with_quotes(option: str, hint: Any, value: Any) -> str:
    """Quote a list of texts whose elements YAML read as numbers, dates or booleans; "" if that does not help."""
    with contextlib.suppress(yaml.YAMLError):
        # This loader reads every scalar as the typed text; numbers in files are already parsed.
        texts = yaml.load(value, yaml.BaseLoader) if isinstance(value, str) else _texts(value)
        texts = [texts] if isinstance(texts, str) else texts
        if texts and isinstance(texts, list) and _accepts(hint, texts):
            return f" As a list of texts: --{option} {shlex.quote(json.dumps(texts, ensure_ascii=False))}"
    return ""


def _texts(value: Any) -> Any:
    """Return the numbers in lists as texts."""
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _accepts(hint: Any, value: Any) -> bool:
    """Return whether jsonargparse accepts a value for a type."""
    # jsonargparse judges, so that this text never contradicts its behaviour.
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=hint)
    except ValueError:  # an unsupported type is judged elsewhere
        return True
    try:
        if isinstance(value, str):
            parser.parse_args([f"--value={value}"])
        else:
            parser.parse_object({"value": value})
    except Exception:
        return False
    return True


def _parts(hint: Any) -> list[Any]:
    """Return the types that an annotation consists of."""
    origin = get_origin(hint)
    if origin is Literal:
        return [str]
    if origin is None:
        return [hint]
    outer = [] if origin in (Union, UnionType) else [origin]
    return [*outer, *(part for one in get_args(hint) if one is not ... for part in _parts(one))]


def _is_plain(hint: Any) -> bool:
    return all(part in _PLAIN for part in _parts(hint))


def _takes_lists(hint: Any) -> bool:
    return any(part in (list, tuple, Sequence) for part in _parts(hint))


def _numbers_as_text(value: Any) -> Iterator[tuple[str, float]]:
    """Yield the texts in a value that Python reads as numbers but YAML does not."""
    try:
        content = load_yaml(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        return
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str):
            with contextlib.suppress(ValueError):
                yield item, float(item)


def _describe_type(hint: Any) -> str:
    """Describe an annotation in words.

    Examples:
        >>> _describe_type(int | None), _describe_type(tuple[float, float]), _describe_type(Literal["mean", 3] | None)
        ('int or None', 'tuple[float, float]', "one of 'mean', 3 or None")
        >>> from enum import Enum
        >>> _describe_type(Enum("Colour", "RED BLUE")), _describe_type(Callable[[int], int])
        ("one of 'RED', 'BLUE'", 'the path of a function or class')
    """
    origin, parts = get_origin(hint), [hint]
    if origin in (Union, UnionType):
        parts = list(get_args(hint))
    choices = [repr(value) for part in parts if get_origin(part) is Literal for value in get_args(part)]
    choices += [repr(name) for part in parts if isinstance(part, EnumMeta) for name in part.__members__]
    others = [part for part in parts if get_origin(part) is not Literal and not isinstance(part, EnumMeta)]
    if choices or len(others) > 1:
        return " or ".join([*([f"one of {', '.join(choices)}"] if choices else []), *map(_describe_type, others)])
    if hint is NoneType:
        return "None"
    if (origin or hint) is Callable:
        return "the path of a function or class"
    if isinstance(hint, type) and origin is None:
        return hint.__name__
    inside = ", ".join("..." if one is ... else _describe_type(one) for one in get_args(hint))
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{name}[{inside}]" if inside else name


def _shorten(text: str) -> str:
    """Extract the nested keys and the reason from the parser's text about a type that contains classes."""
    keys: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := re.search(r'Parser key "([\w.]+)"', line):
            indent = len(line) - len(line.lstrip())
            keys = [*((depth, key) for depth, key in keys if depth < indent), (indent, match[1])]
        if match := re.search(r"Expected an? (?:<class ')?(.+?)(?:'>)?\. Got value: (.+?)(?:\. Got value: .*)?$", line):
            return f"--{'.'.join(key for _, key in keys)} is {match[2]!r}; expected {match[1]}."
    if keys and (match := re.search(r"Problem with given class_path '([^']+)':\s*(.+)", text)):
        return f"--{keys[0][1]}: {match[1].rpartition('.')[2]}: {match[2].strip()}. {ALL_OPTIONS}"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Parser key")]
    given = [line.removeprefix("Given value: ") for line in lines if line.startswith("Given value: ")]
    if keys and given:
        return f"--{keys[0][1]} is {given[0][:200]!r}, which it does not accept. {ALL_OPTIONS}"
    return f"{f'--{keys[0][1]}: ' if keys else ''}{' '.join(lines)[:600]} {ALL_OPTIONS}"
