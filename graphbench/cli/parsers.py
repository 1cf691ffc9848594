"""Parse a command's own options; every error is one line with the option, the value and what would be right."""

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

#: How to list all options of a command that builds a model.
ALL_OPTIONS = "`--help` lists all options; `--data.help NAME` and `--model.architecture.help NAME` those of a class."
_KINDS = {"int": "an integer", "float": "a number"}


class _StoreOnce(argparse.Action):
    """Store a value, and refuse a second one, which would replace the first."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Set the value of the option, and refuse one that was given before."""
        assert isinstance(parser, CommandParser)
        if option is not None and self.dest in parser.given:
            raise BadInput(f"{option} is given twice; {parser.prog} accepts one: leave one of them out.")
        if option is not None:
            parser.given.add(self.dest)
        setattr(namespace, self.dest, values)


class CommandParser(argparse.ArgumentParser):
    """Raise `BadInput` where `argparse` prints a usage page and exits with code 2.

    Args:
        command: its name, for messages.
        options: other options of `argparse.ArgumentParser`.

    Examples:
        >>> parser = CommandParser("push")
        >>> _ = parser.add_argument("--run", required=True, help="folder of a finished fit")
        >>> parser.parse_args(["--rn", "mine"])
        Traceback (most recent call last):
        graphbench.errors.BadInput: Unknown option --rn. Did you mean --run? `graphbench push --help` lists all options.
    """

    def __init__(self, command: str, **options: Any) -> None:
        self.actions: list[argparse.Action] = []
        #: Options that already have a value, while words are parsed.
        self.given: set[str] = set()
        self._words: list[str] = []
        super().__init__(prog=f"graphbench {command}", allow_abbrev=False, **options)
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)

    def add_argument(self, *args: Any, **options: Any) -> argparse.Action:
        """Add an option, see `argparse`, and note it in `actions`."""
        self.actions.append(action := super().add_argument(*args, **options))
        return action

    @property
    def names(self) -> list[str]:
        """The long options, without their dashes."""
        return [name[2:] for action in self.actions for name in action.option_strings if name.startswith("--")]

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """Parse a whole command line; refuse unknown or missing options and values of the wrong type."""
        if not {"-h", "--help"} & set(args):
            self._refuse_unknown(_options_in(spell_out(args)))
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            raise BadInput(f"{self.prog} does not accept {rest[0]!r}. `{self.prog} --help` shows what it accepts.")
        return options

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the command's own options, and return the other words."""
        self._words = spell_out(args)
        self.given.clear()
        options, rest = super().parse_known_args(self._words, namespace)
        for action in self.actions:
            value = getattr(options, action.dest, None)
            if value == "" or (isinstance(value, list) and "" in value):
                raise BadInput(f"{_name(action)} is empty. Give it a value, or leave it out.")
        return options, rest

    def error(self, message: str) -> NoReturn:
        """Raise argparse's error as one line, a `BadInput`."""
        if match := re.fullmatch(r"the following arguments are required: (.+)", message, re.DOTALL):
            self._refuse_missing(match[1].split(", "))
        name, _, problem = message.removeprefix("argument ").partition(": ")
        action = self._action(name)
        if action is None:
            raise BadInput(f"{self.prog}: {message}.")
        option = _name(action)
        if problem.startswith("expected "):
            raise BadInput(f"{option} needs a value: {action.help}.")
        if action.choices is not None and (match := re.match(r"invalid choice: '(.*)' \(choose", problem, re.DOTALL)):
            check_choice(option, match[1], action.choices)
        if match := re.match(r"invalid (\w+) value: (.+)", problem, re.DOTALL):
            raise BadInput(f"{option} must be {_KINDS.get(match[1], match[1])}, but got {match[2]}.")
        if match := re.match(r"ignored explicit argument (.+)", problem, re.DOTALL):
            raise BadInput(f"{option} takes no value, but got {match[1]}.")
        raise BadInput(f"{option}: {problem}.")

    def _refuse_missing(self, names: Sequence[str]) -> NoReturn:
        """Name the missing options, or the misspelled one that was probably meant."""
        missing = [name.partition("/")[0] if name.startswith("-") else name for name in names]
        words = _options_in(self._words)
        self._refuse_unknown([word for word in words if difflib.get_close_matches(word, missing, cutoff=0.6)])
        described = [f"{name} ({action.help})" if (action := self._action(name)) else name for name in missing]
        raise BadInput(f"{self.prog} needs {' and '.join(described)}.")

    def _refuse_unknown(self, words: Iterable[str]) -> None:
        for word in words:
            if not any(word in action.option_strings for action in self.actions):
                raise unknown_option(word, self.names, f"`{self.prog} --help` lists all options.")

    def _action(self, name: str) -> argparse.Action | None:
        """Return the option or positional argument with this name in argparse."""
        first = name.partition("/")[0] if name.startswith("-") else name
        matching = (one for one in self.actions if first in (*one.option_strings, one.metavar, one.dest))
        return next(matching, None)


def _name(action: argparse.Action) -> str:
    """Return the name of an option or positional argument as users write it."""
    long = [name for name in action.option_strings if name.startswith("--")]
    return (long or [*action.option_strings, str(action.metavar or action.dest)])[0]


def _options_in(words: Sequence[str]) -> list[str]:
    """Return the words that argparse takes for options, without their values."""
    end = words.index("--") if "--" in words else None
    return [one.name for one in CommandLine.parse(words[:end]).options if one.name]


def near_options(option: str, names: Iterable[str], prefix: str = "") -> str:
    """Suggest similar options as a question; "" if no name is similar to the option or starts with it.

    Names, without dashes, all begin with the prefix, such as `data.`.

    Examples:
        >>> near_options("batch_sze", ["batch_size", "root"], "data.")
        'Did you mean --data.batch_size? '
        >>> near_options("trails", ["trials", "trainer"])  # much nearer than the next
        'Did you mean --trials? '
    """
    names = list(names)
    longer = [name for name in names if len(option) > 2 and name.startswith(option)]
    near = difflib.get_close_matches(option, names, n=3, cutoff=0.6)
    alike = [difflib.SequenceMatcher(None, name, option).ratio() for name in near]
    near = [name for name, ratio in zip(near, alike, strict=True) if ratio > alike[0] - 0.15] or longer[:3]
    return f"Did you mean {' or '.join(f'--{prefix}{name}' for name in near)}? " if near else ""


def unknown_option(option: str, names: Iterable[str], hint: str = ALL_OPTIONS) -> BadInput:
    """Return the error for an unknown option, as typed or without dashes, among `names` without dashes."""
    typed = option if option.startswith("-") else f"--{option}"
    return BadInput(f"Unknown option {typed}. {near_options(option.lstrip('-'), names)}{hint}")


def whole_number(option: str, text: str, at_least: int) -> int:
    """Parse an integer.

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
    """Return the path of a folder that exists or can be created.

    Refuse a file, a path below a file, a folder that is not writable, and a name that looks like an option.
    """
    path = Path(name)
    if str(path).startswith("-"):
        raise BadInput(f"{option} {path}: later commands would read it as an option; begin it with another character.")
    if path.exists() and not path.is_dir():
        raise BadInput(f"{option} {path}: this is a file; name a folder, which is created if missing.")
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise BadInput(
            f"{option} {path}: {existing} is a file, so no folder can be created below it. Name another place."
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise BadInput(f"{option} {path}: {existing} is not writable. Name another folder.")
    return path


def file_to_write(option: str, name: str | Path) -> Path:
    """Return the path of a file that can be written, and may exist; for its parent folder see `folder_to_write`."""
    path = Path(name)
    if path.is_dir():
        raise BadInput(f"{option} {path}: this is a folder; name a file.")
    folder_to_write(option, path.parent)
    return path
