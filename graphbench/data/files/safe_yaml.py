"""YAML that somebody else may have written: plain values alone, and not more of them than fit."""

from __future__ import annotations

from typing import Any

import yaml

#: Values of the largest configuration; those that are shipped have some hundreds.
MAX_VALUES = 100_000
_MAX_DEPTH = 100
#: libyaml where PyYAML was built with it: a hundred files in hundredths of a second.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    """The content of a YAML text.

    Aliases may repeat values, but not without end: ten lines can stand for a billion values, which take no room until
    somebody walks over them.

    Raises:
        yaml.YAMLError: it is no YAML, is nested too deeply, stands for more than `MAX_VALUES` values, or has a key
            twice in one mapping, of which YAML would drop the first without a word. Of a line that a tab indents, the
            message says so.

    Examples:
        >>> load_yaml("{a: &x [1, 2], b: *x}")
        {'a': [1, 2], 'b': [1, 2]}
    """
    try:
        _check_events(text)
    except yaml.MarkedYAMLError as error:
        if (line := _line_with_tab(text, error)) is None:
            raise
        raise yaml.YAMLError(f"line {line} is indented with a tab, where YAML takes spaces alone") from error
    try:
        content = yaml.load(text, _LOADER)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # such as a 13th month
        raise yaml.YAMLError(f"a value in it cannot be read: {error}") from error
    if _size(content, {}) > MAX_VALUES:
        raise yaml.YAMLError(f"its aliases stand for more than {MAX_VALUES:,} values")
    return content


def _line_with_tab(text: str, error: yaml.MarkedYAMLError) -> int | None:
    """Number of the line on which reading stopped, where a tab is among the blanks that it begins with."""
    if error.problem_mark is None:
        return None
    number: int = error.problem_mark.line
    line = dict(enumerate(text.splitlines())).get(number, "")  # none where the text ends too early
    return number + 1 if "\t" in line[: len(line) - len(line.lstrip(" \t"))] else None


def _check_events(text: str) -> None:
    """Look at depth and keys before values are made: libyaml's reader calls itself, down to the end of the stack."""
    open_ones: list[dict[str, int] | None] = []  # of each mapping around an event the lines of its keys, None for lists
    at_key: list[bool] = []
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            open_ones.pop()
            at_key.pop()
        elif isinstance(event, yaml.NodeEvent):
            keys = open_ones[-1] if open_ones else None
            if keys is not None:
                if at_key[-1] and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
                    line = event.start_mark.line + 1 if event.start_mark is not None else 0
                    if event.value in keys:
                        raise yaml.YAMLError(
                            f"{event.value} stands twice, in line {keys[event.value]} and in line {line}"
                        )
                    keys[event.value] = line
                at_key[-1] = not at_key[-1]
            if isinstance(event, yaml.CollectionStartEvent):
                open_ones.append({} if isinstance(event, yaml.MappingStartEvent) else None)
                at_key.append(True)
                if len(open_ones) > _MAX_DEPTH:
                    raise yaml.YAMLError(f"it is nested more than {_MAX_DEPTH} deep")


def _size(value: Any, sizes: dict[int, float]) -> float:
    """Values that a value stands for, each mapping or list counted once and for all; infinite where it holds itself."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = float("inf")
        items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_size(item, sizes) for item in items)
    return sizes[id(value)]
