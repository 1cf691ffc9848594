"""What commands of many trainings look at before the first one: a mistake is told before anything runs.

What needs torch is imported where it is needed: most mistakes are told without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from graphbench.cli.command_line import CommandLine
from graphbench.cli.options import own_parser, split
from graphbench.errors import BadInput

if TYPE_CHECKING:
    from graphbench.cli.lightning import GraphbenchCLI


def built(command: str, words: Sequence[str], parse_alone: bool = False) -> GraphbenchCLI:
    """Parse what a fit would get, and build data and model without reading anything.

    Args:
        command: name of the command, for messages.
        words: options of `graphbench fit`.
        parse_alone: leave data and model out.

    Raises:
        GraphbenchError: what the fit would have said.
    """
    from graphbench.cli.lightning import GraphbenchCLI, ParsedCLI

    request = split(own_parser(command), list(words), run_option=None)
    return (ParsedCLI if parse_alone else GraphbenchCLI)(request.arguments)


def settings(cli: GraphbenchCLI) -> dict[str, Any]:
    """The resolved configuration as the `config.yaml` of its run has it."""
    content: dict[str, Any] = yaml.safe_load(cli.resolved_config())
    return content


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Plain values and lists by dotted names.

    Examples:
        >>> flat({"model": {"dim": 3, "sizes": [1, 2]}})
        {'model.dim': 3, 'model.sizes': [1, 2]}
    """
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    return {
        name: item
        for key, inner in value.items()
        for name, item in flat(inner, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def changes(before: dict[str, Any], now: dict[str, Any], aside: Iterable[str] = ()) -> list[str]:
    """Options that both know, with other values, in words.

    What only one of them knows came or went with a version of graphbench, or with a class, which differs itself.

    Args:
        before: a resolved configuration.
        now: another.
        aside: dotted names, or beginnings of some, that may differ.
    """
    first, second = flat(before), flat(now)
    skipped = tuple(aside)
    return [
        f"{name} was {_told(first[name])}, now {_told(second[name])}"
        for name in first
        if name in second and first[name] != second[name] and not name.startswith(skipped)
    ]


def _told(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def refuse_options(command: str, words: Sequence[str], reasons: dict[str, str]) -> None:
    """Refuse options of `fit` that the command itself sets.

    Raises:
        BadInput: names the option and what to use instead.
    """
    for one in CommandLine.parse(words).options:
        if one.name in reasons:
            raise BadInput(f"graphbench {command} takes no {one.name}: {reasons[one.name]}.")
