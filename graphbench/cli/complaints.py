"""Which word of a command line jsonargparse refuses, and why: one line with the option, the value and what is right.

Its own text is about its types and tells neither. So once it has failed, the options are held against what classes
take, one after the other, with jsonargparse as the judge of each value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from jsonargparse import ArgumentParser
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from graphbench import registry
from graphbench.cli.command_line import (
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
from graphbench.contracts import Architecture, Benchmark, Encoding, PositionalEncoder
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, GraphbenchError
from graphbench.registry.configurations import read
from graphbench.training.arguments import parameters, type_hints

_HOLDERS = HOLDERS | {"expected": "graphbench.registry.expected:Expected"}
#: Parameters that are no options: what links and optimizers are given later.
_NO_OPTIONS = ("self", "spec", "params")
#: Types of which a value is judged here; others hold classes.
_PLAIN = (int, float, str, bool, NoneType, Path)
_OF_CLASS = ("class_path", "init_args", "dict_kwargs")


def explain(error: Exception, parser: ArgumentParser, words: Sequence[str]) -> str:
    """Return one readable message for a parser's error.

    Args:
        error: what the parser raised.
        parser: knows the options that stand in no class.
        words: what was parsed.
    """
    with contextlib.suppress(TypeError, ValueError):  # a class of somebody's own, whose signature cannot be read
        if said := next(_mistakes(CommandLine.parse(words), parser, str(error)), ""):
            return said
    return _shorten(str(error))


def _mistakes(line: CommandLine, parser: ArgumentParser, text: str) -> Iterator[str]:
    """Yield what is wrong, in the order in which a user would look for it."""
    for one in line.options:
        if not one.name:
            yield f"{one.value!r} is the value of no option. {ALL_OPTIONS}"
        elif not one.values and not one.name.endswith((".help", "--print_config")):
            yield f"{one.name} needs a value. {ALL_OPTIONS}"
    known = [name for name in parser.get_defaults().keys(branches=True) if isinstance(name, str)]
    for one in line.options:
        first, _, rest = one.name.lstrip("-").partition(".")
        if first not in known or (rest and first == "expected" and f"expected.{rest}" not in known):
            yield str(unknown_option(one.name, known))
    if missing := [slot for slot in REQUIRED if slot not in (classes := _collect_classes(line))]:
        names = " and ".join(f"--{slot}" for slot in missing)
        yield f"{names} must be given, on the command line or in a configuration. {ALL_OPTIONS}"
    for each in classes.values():
        for made in each:
            yield from _of_class(made, text)
    seed = line.value("seed_everything")
    if seed is not None and (said := _describe_mistake("seed_everything", int | bool, str(seed), text)):
        yield said


@dataclass
class _NamedClass:
    """A class that a command line names, or one that holds options, with what it gets.

    Args:
        place: the option that names it, or before the dots of its options.
        name: as it was named.
        cls: the class, or a function; None where none of the name is imported.
        options: name, value and whether it adds to a list.
    """

    place: str
    name: str
    cls: Any
    options: list[tuple[str, Any, bool]] = dataclasses.field(default_factory=list)


def _collect_classes(line: CommandLine) -> dict[str, list[_NamedClass]]:
    """Return the classes at each place: one, or those of a list."""
    found = {place: [_NamedClass(place, "", _imported(target))] for place, target in _HOLDERS.items()}
    for one in line.options:
        if one.name == "--config":
            content = read(Path(one.value))
        else:
            content = nested(one.path, one.value if (value := one.read()) is None else value) if one.values else {}
        for top in OPTION_TOPS:
            if top in content:
                _note(top, content[top], one.appends, found)
    return found


def _note(place: str, value: Any, adds: bool, found: dict[str, list[_NamedClass]]) -> None:
    """Note what a value says of a place and of those below it."""
    if place in SLOTS:
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            if (name := _class_in(item)) is not None:
                before = found.get(place, []) if adds or number else []
                found[place] = [*before, _NamedClass(place, name, _class_of(place, name))]
            if isinstance(item, Mapping):
                options = {key: inner for key, inner in item.items() if key not in _OF_CLASS}
                inside = item.get("init_args")
                options |= inside if isinstance(inside, Mapping) else {}
                last = found.setdefault(place, [_NamedClass(place, "", None)])[-1]
                last.options += [(key, inner, adds) for key, inner in options.items()]
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            option = f"{place}.{key}"
            if option in SLOTS or (option in HOLDERS and isinstance(inner, Mapping)):
                _note(option, inner, adds, found)
            else:
                found[place][-1].options.append((key, inner, adds))


def _class_in(value: Any) -> str | None:
    """The class that a value names; `false`, `null` and the like name none."""
    name = class_named(value)
    try:
        return name if name and isinstance(yaml.safe_load(name), str) else None
    except yaml.YAMLError:
        return name


def _imported(target: str) -> Any:
    """What `module:name` or `module.name` is, if its module was imported; what was refused is not imported here."""
    module, _, name = target.replace(":", ".").rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _class_of(place: str, name: str) -> Any:
    """The class of a name in a slot."""
    slot = SLOTS[place]
    if "." in name:
        return _imported(name)
    if slot.group and name in registry.records(slot.group):
        return registry.load(slot.group, name)
    return _imported(f"{slot.module}.{name}")


def _of_class(made: _NamedClass, text: str) -> Iterator[str]:
    """Yield what is wrong with a class and its options."""
    if not callable(made.cls) and made.name and made.name in text:
        yield _no_such_class(made, text)
    if made.cls is None and not made.name and made.options:
        yield (
            f"--{made.place}.{made.options[0][0]}: this is an option of {SLOTS[made.place].kind}s, but none is named. "
            f"Name one with --{made.place} NAME."
        )
    if not isinstance(made.cls, type):
        return
    known, hints = parameters(made.cls), type_hints(made.cls)
    known = [name for name in known if name not in _NO_OPTIONS]
    if made.place in _HOLDERS:
        known = [name for name in known if f"{made.place}.{name}" not in SLOTS]
    for name, value, adds in made.options:
        option = f"{made.place}.{name}"
        if name in hints and name in known:
            if adds and _is_plain(hints[name]) and not _takes_lists(hints[name]):
                yield f"--{option}+: {option} takes no list to add to. Leave the + out."
            if not adds and (said := _describe_mistake(option, hints[name], value, text)):
                yield said
        elif name not in known and name in text:
            near = near_options(name, known, f"{made.place}.")
            yield f"--{option}: {made.cls.__name__} has no option {name!r}. {near}It has: {', '.join(known)}."
    if made.name:
        given = {name for name, _, _ in made.options}
        needed = [
            one.name
            for one in inspect.signature(made.cls).parameters.values()
            if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        ]
        if missing := [name for name in needed if name not in (*given, *_NO_OPTIONS)]:
            names = " and ".join(f"--{made.place}.{name}" for name in missing)
            yield f"{names} must be given, on the command line or in a configuration. {ALL_OPTIONS}"


def _no_such_class(made: _NamedClass, text: str) -> str:
    """What is wrong with a name that no class has."""
    option = f"--{made.place}"
    if Path(made.name).is_file() and not made.name.endswith(SETTINGS):
        return f"{option} {made.name}: this is a file, and the option takes the name of a class. {ALL_OPTIONS}"
    if "." in made.name:
        module, _, name = made.name.rpartition(".")
        there = module in sys.modules
        why = f"there is no class {name} in {module}" if there else f"{module} cannot be imported"
        absent = [line.strip() for line in text.splitlines() if "No module named" in line and made.name not in line]
        return f"{option} is {made.name!r}: {why}{f' ({absent[0]})' if absent else ''}."
    slot = SLOTS[made.place]
    kinds = vars(sys.modules[slot.module]) if slot.module in sys.modules else {}
    known = {name for name, kind in kinds.items() if isinstance(kind, type)}
    known |= registry.records(slot.group).keys() if slot.group else set()
    if near := difflib.get_close_matches(made.name, known, n=2, cutoff=0.7):
        return f"{option}: no class is called {made.name!r}. Did you mean {' or '.join(near)}?"
    return f"{option} is {made.name!r}; expected one of: {', '.join(sorted(known))}."


def _describe_mistake(option: str, hint: Any, value: Any, text: str) -> str | None:
    """What is wrong with a value of an annotated option; None where it is right, or the text is not about it."""
    if isinstance(value, Mapping):
        for kind in (part for part in _parts(hint) if dataclasses.is_dataclass(part) and isinstance(part, type)):
            hints = type_hints(kind)
            for name, inner in (dict(value) | dict(value.get("init_args") or {})).items():
                if name in _OF_CLASS:
                    continue
                if name not in hints:
                    near = near_options(name, hints, f"{option}.")
                    return (
                        f"--{option}.{name}: {kind.__name__} has no option {name!r}. {near}It has: {', '.join(hints)}."
                    )
                if said := _describe_mistake(f"{option}.{name}", hints[name], inner, text):
                    return said
    if isinstance(value, str) and holds_settings(value):  # a file in place of what it holds
        return None
    if not (_is_plain(hint) or (isinstance(value, str) and value in text)) or _accepts(hint, value):
        return None
    for leaf in _leaves(value) if float in _parts(hint) else ():
        if not math.isfinite(leaf[1]):
            return f"--{option} is {leaf[0]!r}; expected a finite number."
    return f"--{option} is {value!r}; expected {_describe_type(hint)}."


def _accepts(hint: Any, value: Any) -> bool:
    """Whether jsonargparse takes a value for a type."""
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=hint)
    except ValueError:  # a type that it does not know is judged elsewhere
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
    """The types that an annotation is made of."""
    origin = get_origin(hint)
    if origin is Literal:
        return [str]
    if origin is None:
        return [hint]
    outer = [] if origin in (Union, UnionType) else [origin]
    return [*outer, *(part for one in get_args(hint) if one is not ... for part in _parts(one))]


def _is_plain(hint: Any) -> bool:
    return all(part in _PLAIN or part in (list, tuple, dict) or part in (Sequence, Mapping) for part in _parts(hint))


def _takes_lists(hint: Any) -> bool:
    return any(part in (list, tuple, Sequence) for part in _parts(hint))


def _leaves(value: Any) -> Iterator[tuple[str, float]]:
    """The texts in a value that Python reads as numbers and YAML does not."""
    try:
        content = load_yaml(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        return
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str):
            try:
                yield item, float(item)
            except ValueError:
                continue


def _describe_type(hint: Any) -> str:
    """An annotation in words.

    Examples:
        >>> _describe_type(int | None), _describe_type(tuple[float, float]), _describe_type(Literal["mean", 3] | None)
        ('int or None', 'tuple[float, float]', "one of 'mean', 3 or None")
    """
    origin, parts = get_origin(hint), [hint]
    if origin in (Union, UnionType):
        parts = list(get_args(hint))
    chosen = [repr(value) for part in parts if get_origin(part) is Literal for value in get_args(part)]
    others = [part for part in parts if get_origin(part) is not Literal]
    if chosen or len(others) > 1:
        return " or ".join([*([f"one of {', '.join(chosen)}"] if chosen else []), *map(_describe_type, others)])
    if hint is NoneType:
        return "None"
    if isinstance(hint, type) and origin is None:
        return hint.__name__
    inside = ", ".join("..." if one is ... else _describe_type(one) for one in get_args(hint))
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{name}[{inside}]" if inside else name


def _shorten(text: str) -> str:
    """Return what remains to be told of a type that holds classes: the keys that enclose each other, and why."""
    keys: list[tuple[int, str]] = []
    for line in text.splitlines():
        if found := re.search(r'Parser key "([\w.]+)"', line):
            indent = len(line) - len(line.lstrip())
            keys = [*((depth, key) for depth, key in keys if depth < indent), (indent, found[1])]
        if found := re.search(r"Expected an? (?:<class ')?(.+?)(?:'>)?\. Got value: (.+?)(?:\. Got value: .*)?$", line):
            return f"--{'.'.join(key for _, key in keys)} is {found[2]!r}; expected {found[1]}."
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Parser key")]
    given = [line.removeprefix("Given value: ") for line in lines if line.startswith("Given value: ")]
    if keys and given:
        return f"--{keys[0][1]} is {given[0][:200]!r}, which it does not take. {ALL_OPTIONS}"
    return f"{f'--{keys[0][1]}: ' if keys else ''}{' '.join(lines)[:600]} {ALL_OPTIONS}"


#: Option that names a class -> what its constructor makes.
_MADE: dict[str, type] = {"data": Benchmark, "model.architecture": Architecture}
#: Functions in which something is being made: the second checks the options that all architectures share.
_MAKING = ("__init__", "checked")


def reason(error: BaseException) -> str:
    """Why a class could not be made, in one line, out of what jsonargparse or Lightning say around it."""
    error = _root(error)
    return " ".join(str(error).split()) or type(error).__name__


def _root(error: BaseException) -> BaseException:
    """What others only passed on."""
    while isinstance(error.__cause__, Exception) and not isinstance(error, GraphbenchError):
        error = error.__cause__
    return error


def constructed(error: BaseException) -> str | None:
    """Name of the class whose constructor an error comes out of, the outermost that is no part of the module's own."""
    return next((type(made).__name__ for made, _ in _constructors(error)), None)


def _constructors(error: BaseException) -> Iterator[tuple[Any, bool]]:
    """What was being made where an error came up, from the outside, and whether nothing else of a class was at work."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for number, frame in enumerate(frames):
        made = frame.f_locals.get("self")
        if frame.f_code.co_name in _MAKING and isinstance(made, (Architecture, Benchmark, Encoding, PositionalEncoder)):
            yield made, all(inner.f_locals.get("self", made) is made for inner in frames[number:])


def with_whole_name(error: BaseException, configured: Callable[[str], Any]) -> str | None:
    """The message of a constructor that begins with an option, which gets the name that a command line has for it.

    A part of a model may have an option of the same name: there the value that was refused must be the one given.

    Args:
        error: came out of a constructor.
        configured: what an option of the command line was set to, None for unknown ones.

    Returns:
        None where the message is about something else, or whole already.
    """
    error = _root(error)
    if type(error) is not BadInput:
        return None
    part = (re.match(r"[a-z_]+\.\w+(?=[ :=])", str(error)) or [""])[0]  # of the module's own, such as schedule.warmup
    if part and configured(f"model.{part}") is not None:
        return f"--model.{error}"
    made, own = next(_constructors(error), (None, False))
    slot = next((slot for slot, kind in _MADE.items() if isinstance(made, kind)), "")
    name = (re.match(r"[a-z_]\w*(?=[ :=])", str(error)) or [""])[0]
    path = configured(f"{slot}.class_path") if slot else None
    if not isinstance(path, str) or path.rpartition(".")[2] != type(made).__name__:  # made as an option of another one
        return None
    if name not in parameters(type(made)):
        return None
    given = f", but got {configured(f'{slot}.init_args.{name}')!r}."
    return f"--{slot}.{name}{str(error).removeprefix(name)}" if own or str(error).endswith(given) else None


def of_lightning(error: BaseException) -> bool:
    """Whether Lightning, or a package that one of its loggers needs, refused an option: then it is no fault of ours."""
    return _passed(error, "pytorch_lightning.loggers", "pytorch_lightning.strategies", "pytorch_lightning.trainer")


def of_logger(error: BaseException) -> bool:
    """Whether a logger failed, such as one whose server wants a key."""
    return _passed(error, "lightning_fabric.loggers", "pytorch_lightning.loggers")


def of_training(error: BaseException) -> bool:
    """Whether Lightning ended a training over an option, such as a callback that watches what nobody logs."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    refused = isinstance(error, (RuntimeError, ValueError, MisconfigurationException))
    return refused and modules[-1].startswith(("pytorch_lightning.callbacks", "lightning_fabric.plugins.environments"))


def _passed(error: BaseException, *packages: str) -> bool:
    """Whether an error comes through one of these packages, and not out of graphbench itself."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.startswith(packages) for name in modules) and not modules[-1].startswith("graphbench")
