"""The control of a model with global attention: four rows of equal size that show the contribution of each part.

Only message passing, with encodings, with global attention, and all of it (arXiv 2510.05583). The overlays
`control-messages`, `-encodings`, `-attention` and `-fused` next to a model's recipes define the options of the rows; a
row without an overlay is the recipe itself. Widths are chosen so that all rows have as many parameters as the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from graphbench.errors import BadInput
from graphbench.registry.configurations import configurations

#: Row -> its label.
ROWS = {
    "messages": "message passing",
    "encodings": "with encodings",
    "attention": "with global attention",
    "fused": "fused",
}
#: Returns every option of a command line, and the number of trainable parameters.
Measure = Callable[[Sequence[str]], tuple[Mapping[str, Any], int]]
_ARCHITECTURE = "model.architecture.init_args"
#: Overlay of the first row, which every recipe folder with a control has.
_FIRST = "/overlays/control-messages"


@dataclass(frozen=True)
class ControlRow:
    """One of the four models."""

    key: str  # in `ROWS`
    recipe: tuple[str, ...]  # configurations, first to last
    options: tuple[str, ...]  # for the width, if it differs from the recipe's
    width: int  # of the nodes
    parameters: int  # of the model
    share: float  # parameters over those of the fused model

    @property
    def label(self) -> str:
        """Return its label."""
        return ROWS[self.key]

    def __str__(self) -> str:
        return f"{self.label}: width {self.width}, {self.parameters:,} parameters ({self.share - 1:+.1%})"


def families() -> list[str]:
    """List the recipe folders that have a control."""
    return sorted(name.removesuffix(_FIRST) for name in configurations() if name.endswith(_FIRST))


def has_control(recipe: Sequence[str]) -> bool:
    """Return whether the models of a recipe's folder have a control."""
    return f"{recipe[0].rpartition('/')[0]}{_FIRST}" in configurations()


def family_of(recipe: Sequence[str], architecture: str) -> str | None:
    """Return the folder whose control a recipe uses: its own, else one whose rows with attention have its class."""
    if has_control(recipe):
        return recipe[0].rpartition("/")[0]
    name, installed = architecture.rpartition(".")[2], configurations()
    for folder in families():
        overlays = (f"{folder}/overlays/control-{row}" for row in ("attention", "fused"))
        contents = (one.content() for key in overlays for one in installed.get(key, ()))
        if any(content["model"]["architecture"]["class_path"] == name for content in contents):
            return folder
    return None


def control_rows(
    recipe: Sequence[str], options: Sequence[str], measure: Measure, family: str | None = None
) -> list[ControlRow]:
    """Return the four rows of a recipe in the order of `ROWS`; `family`: see `family_of`, by default its own folder."""
    if family is None and not has_control(recipe):
        raise BadInput(f"--control: {' + '.join(recipe)} has no control; recipes in {', '.join(families())} do.")
    folder, installed = family or recipe[0].rpartition("/")[0], configurations()
    overlays = {key: f"{folder}/overlays/control-{key}" for key in ROWS}
    recipes = {key: (*recipe, *([name] if name in installed else [])) for key, name in overlays.items()}
    _, target = measure(words_of(recipes["fused"], options))
    rows = []
    for key, names in recipes.items():
        width, extra, count = fit_width(words_of(names, options), target, measure)
        rows.append(ControlRow(key, names, extra, width, count, count / target))
    return rows


def words_of(recipe: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the command line of a recipe with additional options."""
    return [*(word for name in recipe for word in ("--config", name)), *options]


def fit_width(words: Sequence[str], target: int, measure: Measure) -> tuple[int, tuple[str, ...], int]:
    """Return the width closest to a number of parameters, its options, and the resulting number.

    The width is a multiple of the number of heads. Parameters grow roughly with its square, which gives the next width
    to try until it repeats.
    """
    settings, count = measure(words)
    given = settings["model"]["architecture"]["init_args"]
    given_width, step = int(given["hidden_dim"]), int(given.get("num_heads") or 1)
    names = list(_following(given, given_width))

    def options(width: int) -> tuple[str, ...]:
        return tuple(f"--{_ARCHITECTURE}.{name}={width}" for name in names) if width != given_width else ()

    counts, width = {given_width: count}, given_width
    while (width := max(1, round(width * sqrt(target / counts[width]) / step)) * step) not in counts:
        counts[width] = measure([*words, *options(width)])[1]
    # The last width tried need not be the closest.
    best = min(counts, key=lambda one: abs(counts[one] - target))
    return best, options(best), counts[best]


def _following(given: Mapping[str, Any], width: int, inside: str = "") -> Iterator[str]:
    """Yield the options whose names end in `dim` and that equal `hidden_dim`, since they follow it."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _following(value, width, f"{inside}{name}.")
        elif name.endswith("dim") and value == width:
            yield inside + name
