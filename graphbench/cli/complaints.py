"""jsonargparse's errors in words: which option, which value, what would be right."""

from __future__ import annotations

import difflib
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jsonargparse import ArgumentParser
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from graphbench import registry
from graphbench.cli.command_line import SLOTS
from graphbench.cli.parsers import ALL_OPTIONS, near_options, unknown_option
from graphbench.contracts import Architecture, Benchmark, Encoding, PositionalEncoder
from graphbench.errors import BadInput, GraphbenchError
from graphbench.training.arguments import parameters


def explain(error: Exception, parser: ArgumentParser | None = None, words: Sequence[str] = ()) -> str:
    """One readable message out of a parser's error.

    Args:
        error: what the parser raised.
        parser: knows all options, to suggest near matches for an unknown one.
        words: the command line, since the parser calls `--data.batch_size` without a value `--data`.
    """
    text = str(error).strip()
    key = next(iter(re.findall(r'Parser key "([\w.]+)"', text)), "")
    if (found := re.search(r"[Oo]ption '([\w.]+)' is not accepted", text)) and not _knows(text, found[1]):
        return _unknown_of_class(found[1], key, text)
    if found := re.search(r"argument (?:-\w/)?(--[\w.+]+): expected ", text):
        bare = (one for one, after in zip(words, [*words[1:], "--"], strict=True) if after.startswith("--"))
        option = next((one for one in bare if one == found[1] or one.startswith(f"{found[1]}.")), found[1])
        return f"{option} needs a value. {ALL_OPTIONS}"
    if found := re.search(r"[Uu]nrecognized arguments: ([^-\s]\S*)", text):
        return f"{found[1]!r} is the value of no option. {ALL_OPTIONS}"
    if found := re.search(r"(?:[Uu]nrecognized arguments|[Uu]nrecognized options?|Key) ?:? ?'?-{0,2}([\w.]+)", text):
        return str(unknown_option(found[1], _options(parser)))
    if found := re.search(r"following arguments are required: ([\w., ]+)", text):
        prefix = f"{key}." if key else ""
        missing = " and ".join(f"--{prefix}{name.strip()}" for name in found[1].split(","))
        return f"{missing} must be given, on the command line or in a configuration. {ALL_OPTIONS}"
    if found := re.search(
        r"(?:Parser key \"([\w.]+)\":\s+)?Expected an? (.+?)\. Got value: (.+?)(?:\. Got value: .*)?$", text, re.M
    ):
        value = found[3].strip()
        wanted = (
            "a finite number" if found[2] == "<class 'float'>" and _NOT_FINITE.fullmatch(value) else _plain(found[2])
        )
        return f"--{_path(text[: found.start(2)]) or key} is {value!r}; expected {wanted}."
    given, subtypes = re.search(r"Given value: (.*)", text), re.search(r"Subtypes: \[(.+)\]", text)
    if named := _no_such_class(key, text):
        return named
    if found := re.search(r"Config file loop detected: (\S+)", text):
        return f"--{key} {found[1]}: this is a file, and the option takes the name of a class. {ALL_OPTIONS}"
    if key and given and subtypes:
        absent = re.search(r"(No module named '[\w.]+'|module '[\w.]+' has no attribute '\w+')", text)
        why = f" ({absent[1]})" if absent else ""
        part = re.fullmatch(r"NestedArg\(key='([\w.]+)', val=(.*)\)", given[1].strip())
        option, value = (f"{key}.{part[1]}", part[2]) if part else (key, repr(given[1].strip()))
        return f"--{option} is {value}{why}; expected one of: {_plain(subtypes[1])}. {ALL_OPTIONS}"
    option = f"--{key}: " if key else ""
    return f"{option}{_shorten(text)} {ALL_OPTIONS}"


#: Option that names a class -> what its constructor makes.
_MADE: dict[str, type] = {"data": Benchmark, "model.architecture": Architecture}
#: What YAML reads as text where a number is expected.
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
#: Functions in which something is being made: the second checks the options that all architectures share.
_MAKING = ("__init__", "checked")


def _no_such_class(key: str, text: str) -> str | None:
    """The complaint about a name that no class has, where other options would have been the matter else."""
    module = sys.modules.get(SLOTS[key].module) if key in SLOTS else None
    if module is None:
        return None
    known = {name for name in dir(module) if isinstance(getattr(module, name), type)}
    known |= registry.records("callbacks").keys() if key == "trainer.callbacks" else set()
    given = re.findall(
        r"(?:'class_path': |import path string: |Given value: \[?|[\[ ]|^)'?([A-Z]\w+)'?(?=[,}\]\s]|$)", text
    )
    for name in given:
        near = difflib.get_close_matches(name, known, n=2, cutoff=0.7)
        if near and name not in known:
            return f"--{key}: no class is called {name!r}. Did you mean {' or '.join(near)}?"
    return None


def _path(text: str) -> str:
    r"""The option that the end of a complaint is about: each key is inside the last one that is indented less.

    Examples:
        >>> _path("\n".join(['Parser key "a.b":', '  Problem: Parser key "c":', '    Parser key "d":']))
        'a.b.c.d'
    """
    keys: list[tuple[int, str]] = []
    for line in text.splitlines():
        if found := re.search(r'Parser key "([\w.]+)"', line):
            indent = len(line) - len(line.lstrip())
            keys = [(depth, key) for depth, key in keys if depth < indent]
            keys.append((indent, found[1]))
    return ".".join(key for _, key in keys)


def _unknown_of_class(option: str, key: str, text: str) -> str:
    named = _class_of(text)
    if named is None:
        return f"--{key}.{option}: there is no such option. {ALL_OPTIONS}"
    known = parameters(named)
    return (
        f"--{key}.{option}: {named.__name__} has no option {option!r}. {near_options(option, known, key + '.')}"
        f"It has: {', '.join(known)}."
    )


def _class_of(text: str) -> type | None:
    """The class that a complaint is about, if it was imported; one that was refused must not be imported here."""
    path = re.search(r"class_path['\"]?[ =:]+['\"]?([\w.]+)", text)
    if path is None:
        return None
    module, _, name = path[1].rpartition(".")
    named = getattr(sys.modules.get(module), name, None)
    return named if isinstance(named, type) else None


def _knows(text: str, option: str) -> bool:
    """Whether the class has the option that another of the tried classes refuses: then its value is wrong."""
    named = _class_of(text)
    return named is not None and option in parameters(named)


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


def _options(parser: ArgumentParser | None) -> list[str]:
    if parser is None:
        return []
    return [text.lstrip("-") for action in parser._actions for text in action.option_strings]


def _plain(expected: str) -> str:
    """`typing.Literal['a', 'b']` -> `'a' or 'b'`, `<class 'int'>` -> `int`."""
    if literal := re.fullmatch(r"typing\.Literal\[(.+)\]", expected):
        return f"one of {literal[1]}"
    return re.sub(r"<class '([\w.]+)'>", r"\1", expected).replace("typing.", "")


def _shorten(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Parser key")]
    return " ".join(lines)[:600]
