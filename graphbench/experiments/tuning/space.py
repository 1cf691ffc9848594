"""Read the search space of a study: options of a fit, with values to choose from or ranges of numbers.

model.optimizer.init_args.lr: {low: 1.0e-4, high: 1.0e-2, log: true}
model.architecture.init_args.num_layers: {low: 2, high: 10, step: 2}
model.architecture.init_args.local_layer: {values: [GINE, GatedGCN]}
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_KEYS = ("values", "low", "high", "log", "step")
_EXPECTED = "{values: [...]} or {low: NUMBER, high: NUMBER}, optionally with log: true or step: NUMBER"


@dataclass(frozen=True)
class Choice:
    """A choice of `values`, written as on a command line."""

    values: tuple[str, ...]

    def edges(self) -> tuple[str, ...]:
        """Return the values to check with the parser."""
        return self.values

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the database of a study."""
        return {"values": list(self.values)}

    def distribution(self) -> BaseDistribution:
        """Return the distribution for Optuna."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)


@dataclass(frozen=True)
class Range:
    """A number between two others, both included; an integer if both are.

    Args:
        low: smallest.
        high: largest.
        log: sample its logarithm uniformly.
        step: distance between values; None for any number, or any integer.
    """

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    @property
    def whole(self) -> bool:
        """Return whether it is a range of integers."""
        return isinstance(self.low, int) and isinstance(self.high, int) and not isinstance(self.step, float)

    def edges(self) -> tuple[str, ...]:
        """Return the values to check with the parser."""
        return (written(self.low), written(self.high))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the database of a study."""
        return {"low": self.low, "high": self.high, "log": self.log, "step": self.step}

    def distribution(self) -> BaseDistribution:
        """Return the distribution for Optuna."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(float(self.low), float(self.high), log=self.log, step=self.step)


Space = dict[str, Choice | Range]


def written(value: Any) -> str:
    """Write a value as on a command line.

    Examples:
        >>> [written(value) for value in (1e-5, 3, "GINE", None, [1, 2], True)]
        ['1e-05', '3', 'GINE', 'null', '[1, 2]', 'true']
    """
    return value if isinstance(value, str) else json.dumps(value)


def read_space(path: Path) -> Space:
    """Read the space in a file.

    Raises:
        BadInput: the file is not a space.
    """
    if not path.is_file():
        raise BadInput(f"--space {path}: there is no such file.")
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadInput(f"--space {path}: it is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, Mapping) or not content:
        raise BadInput(f"--space {path}: expected OPTION: {_EXPECTED}.")
    return {_option(name): _entry(f"--space {path}: {_option(name)}", entry) for name, entry in content.items()}


def _option(name: object) -> str:
    return str(name).strip().lstrip("-")


def _entry(place: str, entry: object) -> Choice | Range:
    """Parse the choice or range of one option, named by `place` in messages."""
    if not isinstance(entry, Mapping):
        raise BadInput(f"{place} is {entry!r}; expected {_EXPECTED}.")
    for key in map(str, entry):
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(f"{place} has no {key!r}.{hint} Expected {_EXPECTED}.")
    if "values" in entry:
        return _choice(place, entry)
    if "low" not in entry or "high" not in entry:
        raise BadInput(f"{place} is {dict(entry)}; expected {_EXPECTED}.")
    return _range(place, entry)


def _choice(place: str, entry: Mapping[str, Any]) -> Choice:
    if len(entry) > 1:
        raise BadInput(f"{place}: values and {', '.join(k for k in entry if k != 'values')} exclude each other.")
    values = entry["values"]
    if not isinstance(values, list) or not values:
        raise BadInput(f"{place}: values is {values!r}; expected a list such as [16, 32].")
    texts = tuple(map(written, values))
    if len(set(texts)) != len(texts):
        raise BadInput(f"{place}: values is {values!r}; expected every value once.")
    return Choice(texts)


def _range(place: str, entry: Mapping[str, Any]) -> Range:
    """Parse a range, and check that its numbers are consistent."""
    low, high = _number(place, "low", entry["low"]), _number(place, "high", entry["high"])
    step = None if entry.get("step") is None else _number(place, "step", entry["step"])
    log = entry.get("log", False)
    if not isinstance(log, bool):
        raise BadInput(f"{place}: log is {log!r}; expected true or false.")
    if not low < high:
        raise BadInput(f"{place}: low is {low} and high {high}; low must be below high.")
    if log and low <= 0:
        raise BadInput(f"{place}: low is {low}; with log it must be above 0.")
    if log and step is not None:
        raise BadInput(f"{place}: log and step exclude each other; set one of them.")
    width = Decimal(str(high)) - Decimal(str(low))  # as written: the float 0.3 - 0.1 is below 0.2
    if step is not None and not 0 < Decimal(str(step)) <= width:
        raise BadInput(f"{place}: step is {step}; it must be above 0 and at most high - low, {width}.")
    return Range(low, high, log, step)


def _number(place: str, key: str, value: object) -> int | float:
    """Parse a finite number; YAML reads 1e-4, without a point, as text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadInput(f"{place}: {key} is {value!r}; expected a number.")
    return value


def arguments(params: Mapping[str, Any]) -> list[str]:
    """Return options of a fit with the values of a trial.

    Examples:
        >>> arguments({"trainer.max_epochs": 3, "model.optimizer.init_args.lr": 1e-5})
        ['--trainer.max_epochs=3', '--model.optimizer.init_args.lr=1e-05']
    """
    return [f"--{option}={written(value)}" for option, value in params.items()]


def probes(space: Space) -> Iterator[tuple[str, str]]:
    """Yield options with values that a parser should accept before the first trial starts."""
    for option, entry in space.items():
        for value in entry.edges():
            yield option, value
