"""The parser of a command's own options: every complaint is one line with the option, the value and what is right."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from graphbench.cli.command_line import CommandLine, spell_out
from graphbench.errors import BadInput, check_choice, check_range

#: Where all options of a command that builds a model are told.
ALL_OPTIONS = "`--help` lists all options; `--data.help NAME` and `--model.architecture.help NAME` those of a class."
_KINDS = {"int": "an integer", "float": "a number"}


class CommandParser(argparse.ArgumentParser):
    """`argparse` without its usage page and exit code 2: what is wrong is a `BadInput`, as everywhere in graphbench.

    Args:
        command: its name, for messages.
        options: further ones of `argparse.ArgumentParser`.

    Examples:
        >>> parser = CommandParser("push")
        >>> _ = parser.add_argument("--run", required=True, help="folder of a finished fit")
        >>> parser.parse_args(["--rn", "mine"])
        Traceback (most recent call last):
        graphbench.errors.BadInput: Unknown option --rn. Did you mean --run? `graphbench push --help` lists all options.
    """

    def __init__(self, command: str, **options: Any) -> None:
        super().__init__(prog=f"graphbench {command}", allow_abbrev=False, **options)
        self._words: list[str] = []

    @property
    def names(self) -> list[str]:
        """The long options, without their dashes."""
        return [name[2:] for name in self._option_string_actions if name.startswith("--")]

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """Parse a whole command line.

        Raises:
            BadInput: an option is unknown or missing, or a value is not of its kind.
        """
        if not {"-h", "--help"} & set(args):
            for option in _options_in(spell_out(args)):
                if option not in self._option_string_actions:
                    raise self._unknown(option)
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            raise BadInput(f"{self.prog} does not take {rest[0]!r}. `{self.prog} --help` shows what it takes.")
        return found

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse what is known, and return the rest.

        Raises:
            BadInput: an option is missing, or a value is empty or not of its kind.
        """
        self._words = spell_out(args)
        found, rest = super().parse_known_args(self._words, namespace)
        for action in self._actions:
            value = getattr(found, action.dest, None)
            if value == "" or (isinstance(value, list) and "" in value):
                raise BadInput(f"{_name(action)} is empty. Give it a value, or leave it out.")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Say in one line what argparse found.

        Raises:
            BadInput: always.
        """
        if found := re.fullmatch(r"the following arguments are required: (.+)", message, re.DOTALL):
            self._refuse_missing(found[1].split(", "))
        named, _, said = message.removeprefix("argument ").partition(": ")
        action = self._action(named)
        if action is None:
            raise BadInput(f"{self.prog}: {message}.")
        option = _name(action)
        if said.startswith("expected "):
            raise BadInput(f"{option} needs a value: {action.help}.")
        if action.choices is not None and (found := re.match(r"invalid choice: '(.*)' \(choose", said, re.DOTALL)):
            check_choice(option, found[1], action.choices)
        if found := re.match(r"invalid (\w+) value: (.+)", said, re.DOTALL):
            raise BadInput(f"{option} must be {_KINDS.get(found[1], found[1])}, but got {found[2]}.")
        if found := re.match(r"ignored explicit argument (.+)", said, re.DOTALL):
            raise BadInput(f"{option} takes no value, but got {found[1]}.")
        raise BadInput(f"{option}: {said}.")

    def _refuse_missing(self, names: Sequence[str]) -> NoReturn:
        """Name what is missing, or the option that was meant to be it."""
        missing = [name.partition("/")[0] if name.startswith("-") else name for name in names]
        for option in _options_in(self._words):
            if option not in self._option_string_actions and difflib.get_close_matches(option, missing, cutoff=0.6):
                raise self._unknown(option)
        told = [f"{name} ({action.help})" if (action := self._action(name)) else name for name in missing]
        raise BadInput(f"{self.prog} needs {' and '.join(told)}.")

    def _unknown(self, option: str) -> BadInput:
        return unknown_option(option, self.names, f"`{self.prog} --help` lists all options.")

    def _action(self, named: str) -> argparse.Action | None:
        """The option or place that argparse calls by this name."""
        first = named.partition("/")[0] if named.startswith("-") else named
        by_place = {name: action for action in self._actions for name in (action.metavar, action.dest)}
        return self._option_string_actions.get(first) or by_place.get(first)


def _name(action: argparse.Action) -> str:
    """How a user writes an option or calls a place."""
    long = [name for name in action.option_strings if name.startswith("--")]
    return (long or [*action.option_strings, str(action.metavar or action.dest)])[0]


def _options_in(words: Sequence[str]) -> list[str]:
    """The words that argparse takes for options, without their values."""
    end = words.index("--") if "--" in words else None
    return [one.name for one in CommandLine.parse(words[:end]).options if one.name]


def near_options(option: str, known: Iterable[str], prefix: str = "") -> str:
    """The question whether another option was meant, or nothing where none is like this one or begins so.

    Args:
        option: without dashes.
        known: without dashes.
        prefix: what stands before all of them, `data.`.

    Examples:
        >>> near_options("batch_sze", ["batch_size", "root"], "data.")
        'Did you mean --data.batch_size? '
        >>> near_options("trails", ["trials", "trainer"])  # a name that is much nearer than the next stands alone
        'Did you mean --trials? '
    """
    names = list(known)
    longer = [name for name in names if len(option) > 2 and name.startswith(option)]
    near = difflib.get_close_matches(option, names, n=3, cutoff=0.6)
    alike = [difflib.SequenceMatcher(None, name, option).ratio() for name in near]
    near = [name for name, ratio in zip(near, alike, strict=True) if ratio > alike[0] - 0.15] or longer[:3]
    return f"Did you mean {' or '.join(f'--{prefix}{name}' for name in near)}? " if near else ""


def unknown_option(option: str, known: Iterable[str], hint: str = ALL_OPTIONS) -> BadInput:
    """The error of an option that nobody takes.

    Args:
        option: with its dashes as typed, or without.
        known: options without dashes.
        hint: where all of them are told.
    """
    typed = option if option.startswith("-") else f"--{option}"
    return BadInput(f"Unknown option {typed}. {near_options(option.lstrip('-'), known)}{hint}")


def whole_number(option: str, text: str, at_least: int) -> int:
    """The number that the text of an option says.

    Raises:
        BadInput: it says none, or a smaller one.

    Examples:
        >>> whole_number("--steps", "12", at_least=2)
        12
        >>> whole_number("--steps", "many", at_least=2)
        Traceback (most recent call last):
        graphbench.errors.BadInput: --steps must be an integer of at least 2, but got 'many'.
    """
    number = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text
    check_range(option, number, at_least=at_least, whole=True)
    return int(number)


def folder_to_write(option: str, name: str | Path) -> Path:
    """A folder that is there or can be made.

    Raises:
        BadInput: the name is that of a file, or lies below one, or nothing may be written there.
    """
    path = Path(name)
    if path.exists() and not path.is_dir():
        raise BadInput(f"{option} {path}: this is a file; name a folder, which is made where it is missing.")
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise BadInput(f"{option} {path}: {there} is a file, and no folder can be made below it. Name another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadInput(f"{option} {path}: nothing may be written into {there}. Name another folder.")
    return path


def file_to_write(option: str, name: str | Path) -> Path:
    """A file that can be written; whether one is there already is not asked.

    Raises:
        BadInput: the name is that of a folder, or see `folder_to_write` for the folder around it.
    """
    path = Path(name)
    if path.is_dir():
        raise BadInput(f"{option} {path}: this is a folder; name a file.")
    folder_to_write(option, path.parent)
    return path
