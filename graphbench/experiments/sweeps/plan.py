"""Plan the trainings of a sweep: models x variations x seeds x folds, each in its own folder."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import yaml

from graphbench.errors import BadInput
from graphbench.experiments import Training

#: Maximum number of trainings; SLURM's arrays have at most 1,001 tasks unless an administrator changes it.
MAX_TRAININGS = 1000
#: Characters not allowed in folder names.
_UNFIT = re.compile(r"[^A-Za-z0-9._+=-]+")
#: Texts that YAML 1.1 reads differently: times as base-60 numbers, 010 as 8, `no` as false, dates.
_YAML_ALTERS = re.compile(r".*[:_].*|[-+]?0[0-9bx].*|y|n|yes|no|on|off|\d{4}-\d.*", re.IGNORECASE)


def parse_numbers(option: str, text: str) -> list[int]:
    """Parse numbers and inclusive ranges.

    Args:
        option: its name, for messages.
        text: its value.

    Raises:
        BadInput: the text has another form.

    Examples:
        >>> parse_numbers("--seeds", "0-2,7")
        [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        # Lightning's seeds have 32 bits; check the count before a range of billions becomes a list.
        if not first <= last < 2**32 or last - first >= MAX_TRAININGS:
            raise BadInput(f"{option} {text}: expected numbers and ranges such as 0-4 or 0,2,7-9, but got {part!r}.")
        numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))


def parse_variation(text: str) -> tuple[str, list[str]]:
    """Parse an option and its values, as on the command line.

    Raises:
        BadInput: there is no option or no value.

    Examples:
        >>> parse_variation("model.architecture.init_args.num_layers=4,8")
        ('model.architecture.init_args.num_layers', ['4', '8'])
        >>> parse_variation("data.init_args.fractions=[0.8,0.1,0.1],[0.6,0.2,0.2]")[1]
        ['[0.8, 0.1, 0.1]', '[0.6, 0.2, 0.2]']
    """
    option, sign, values = text.partition("=")
    option = option.strip().lstrip("-")
    try:
        written = [_as_written(item) for item in getattr(yaml.compose(f"[{values}]"), "value", ())]
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):  # unbalanced brackets
        written = []
    if not sign or not option or not written:
        raise BadInput(f"--vary {text}: expected OPTION=VALUE,VALUE, such as trainer.max_epochs=10,20.")
    return option, list(dict.fromkeys(written))


def _as_written(item: yaml.Node) -> str:
    """Return a value as text for a command line: a list or mapping as JSON, else as typed."""
    if isinstance(item, yaml.ScalarNode) and (item.style is not None or _YAML_ALTERS.fullmatch(item.value)):
        return str(item.value)
    value = yaml.safe_load(yaml.serialize(item))
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Variant:
    """A model with the options of a variation; a row of the report.

    Args:
        name: in the names of its folders.
        config: name or file of the configuration.
        varied: options of `--vary` with their values.
        data: options of its benchmark, unless the configuration names it.
    """

    name: str
    config: str
    varied: Mapping[str, str]
    data: Sequence[str] = ()


@dataclass(frozen=True)
class Sweep:
    """Models, variations, seeds and splits of a sweep.

    Args:
        configs: names or files of configurations, a model each.
        seeds: of `seed_everything`.
        variations: option -> its values.
        folds: number of folds; None for the split of the configuration.
        split_seeds: seeds of additional random splits.
        options: of `graphbench fit`, for every training.
        fold_options: name of a variant -> options of its benchmark for each fold, if not those of molecules.
        benchmarks: with their options: `Graphs --data.source mine.pt`; by default those of `configs`.
        sized: one of `configs` with its overlays after ` + ` -> options only for it, which give it the size of others.
    """

    configs: Sequence[str]
    seeds: Sequence[int] = (0,)
    variations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folds: int | None = None
    split_seeds: Sequence[int] = ()
    options: Sequence[str] = ()
    fold_options: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    benchmarks: Sequence[str] = ()
    sized: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def variants(self) -> list[Variant]:
        """List benchmarks x models x variations.

        Raises:
            BadInput: two of them would have the same name.
        """
        variants = []
        models = list(zip(self.configs, _stems(self.configs), strict=True))
        for (data, named), (config, stem) in itertools.product(benchmark_options(self.benchmarks), models):
            for values in itertools.product(*self.variations.values()):
                varied = dict(zip(self.variations, values, strict=True))
                parts = [f"{option.rpartition('.')[2]}={value}" for option, value in varied.items()]
                name = "-".join(_UNFIT.sub("_", part) for part in (stem, *named, *parts))
                variants.append(Variant(name, config, varied, data))
        (name, count), *_ = Counter(variant.name for variant in variants).most_common(1)
        if count > 1:
            raise BadInput(f"Two models of the sweep would have the folder {name}: name each of them once.")
        return variants

    def replicates(self, variant: str = "") -> list[tuple[str, list[str]]]:
        """List splits x folds: the suffix of a folder's name, and options for the benchmark of the named variant."""
        splits = [(f"-split{seed}", [f"--data.init_args.split_seed={seed}"]) for seed in self.split_seeds]
        usual = [{"folds": self.folds, "fold": fold} for fold in range(self.folds or 0)]
        folds = [
            (f"-fold{fold}", [f"--data.init_args.{name}={value}" for name, value in options.items()])
            for fold, options in enumerate(self.fold_options.get(variant, usual))
        ]
        pairs = itertools.product(splits or [("", [])], folds or [("", [])])
        return [(split + fold, [*first, *second]) for (split, first), (fold, second) in pairs]

    def trainings(self) -> list[tuple[Variant, Training]]:
        """List every training with its variant.

        All models of a seed come before the next seed, so that an interrupted sweep allows comparison.

        Raises:
            BadInput: there are too many.
        """
        variants = self.variants()
        replicates = [self.replicates(variant.name) for variant in variants]
        count = sum(map(len, replicates)) * len(self.seeds)
        if count > MAX_TRAININGS:
            raise BadInput(f"The sweep has {count:,} trainings; at most {MAX_TRAININGS:,} are allowed.")
        return [
            (variant, self.training(variant, seed, *each[number]))
            for seed in self.seeds
            for number in range(len(self.replicates()))
            for variant, each in zip(variants, replicates, strict=True)
        ]

    def training(self, variant: Variant, seed: int, suffix: str = "", options: Sequence[str] = ()) -> Training:
        """Return the training of a variant with a seed, with the suffix and options of `replicates`."""
        varied = [f"--{option}={value}" for option, value in variant.varied.items()]
        words = [*variant.data, *self.sized.get(variant.config, ()), *self.options, *varied, *options]
        configs = variant.config.split(" + ") if variant.config in self.sized else [variant.config]
        return Training(f"{variant.name}{suffix}", seed, configs, words)


def benchmark_options(benchmarks: Sequence[str]) -> list[tuple[list[str], list[str]]]:
    """Return the options of each benchmark, and parts of its folder names.

    Args:
        benchmarks: as on the command line; if empty, the configurations name theirs.

    Examples:
        >>> benchmark_options(["CSL", "Graphs --data.source 'my graphs.pt'"])
        [(['--data', 'CSL'], ['CSL']), (['--data', 'Graphs', '--data.source', 'my graphs.pt'], ['Graphs'])]
        >>> [named for _, named in benchmark_options(["Graphs --data.source a.pt", "Graphs --data.source b.pt"])]
        [['Graphs', '1'], ['Graphs', '2']]
    """
    parsed = []
    for text in benchmarks:
        try:
            name, *options = shlex.split(text)
        except ValueError:  # empty, or an unclosed quotation mark
            name, options = "", []
        stray = [word for word in options if word.startswith("-") and not word.startswith("--data.")]
        if not name or name.startswith("-") or stray or (options and not options[0].startswith("--data.")):
            raise BadInput(
                f"--benchmark {text!r}: expected a name and options of its data, such as "
                "'Graphs --data.source mine.pt'."
            )
        parsed.append((["--data", name, *options], [name]))
    names = [parts[0] for _, parts in parsed]
    for number, (_, parts) in enumerate(parsed):
        if names.count(parts[0]) > 1:
            parts.append(str(names[: number + 1].count(parts[0])))
    return parsed or [([], [])]


def _stems(configs: Sequence[str]) -> list[str]:
    """Return the shortest distinct suffixes of paths, with the stems of overlays.

    Examples:
        >>> _stems(["gps/zinc", "sat/zinc"]), _stems(["gps/zinc", "gps/zinc + gps/overlays/bigbird"])
        (['gps-zinc', 'sat-zinc'], ['zinc', 'zinc+bigbird'])
    """
    parts = [[PurePath(name.removesuffix(".yaml")) for name in config.split(" + ")] for config in configs]
    for depth in range(1, max(len(path.parts) for path, *_ in parts) + 1):
        names = [
            _UNFIT.sub("_", "+".join(["-".join(path.parts[-depth:]), *(overlay.stem for overlay in overlays)]))
            for path, *overlays in parts
        ]
        if len(set(names)) == len(set(configs)):
            break
    return names
