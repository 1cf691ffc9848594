"""Which trainings a sweep consists of: models x variations x seeds x folds, each with a folder of its own."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import yaml

from graphbench.errors import BadInput
from graphbench.experiments import Training

#: Largest number of trainings; SLURM's arrays have at most 1,001 tasks unless an administrator says otherwise.
MAX_TRAININGS = 1000
#: Characters that a folder's name may have.
_UNFIT = re.compile(r"[^A-Za-z0-9._+=-]+")


def parse_numbers(option: str, text: str) -> list[int]:
    """Numbers and ranges, both ends included.

    Args:
        option: its name, as a user writes it.
        text: what was given.

    Raises:
        BadInput: names option and value.

    Examples:
        >>> parse_numbers("--seeds", "0-2,7")
        [0, 1, 2, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not first <= last < 2**32 or last - first >= MAX_TRAININGS:
            raise BadInput(f"{option} {text}: expected numbers and ranges such as 0-4 or 0,2,7-9, but got {part!r}.")
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


def parse_variation(text: str) -> tuple[str, list[str]]:
    """An option and the values that it takes in turn, written as on the command line.

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
        parsed = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError:
        parsed = None
    if not sign or not option or not parsed:
        raise BadInput(f"--vary {text}: expected OPTION=VALUE,VALUE, such as trainer.max_epochs=10,20.")
    told = [value if isinstance(value, str) else json.dumps(value) for value in parsed]
    return option, list(dict.fromkeys(told))


@dataclass(frozen=True)
class Variant:
    """A model with the options of one variation; a row of the report.

    Args:
        name: in the names of its folders.
        config: name or file of the configuration.
        varied: options that `--vary` gave it, with their values.
    """

    name: str
    config: str
    varied: Mapping[str, str]


@dataclass(frozen=True)
class Sweep:
    """All that a sweep runs.

    Args:
        configs: names or files of configurations, a model each.
        seeds: of `seed_everything`.
        variations: option -> values that it takes in turn.
        folds: number of folds; None for the split as it is.
        split_seeds: further splits of the same kind; empty for the split as it is.
        options: of `graphbench fit`, for every training.
    """

    configs: Sequence[str]
    seeds: Sequence[int] = (0,)
    variations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folds: int | None = None
    split_seeds: Sequence[int] = ()
    options: Sequence[str] = ()

    def variants(self) -> list[Variant]:
        """Models x variations.

        Raises:
            BadInput: two of them would have one name.
        """
        found = []
        for config, stem in zip(self.configs, _stems(self.configs), strict=True):
            for values in itertools.product(*self.variations.values()):
                varied = dict(zip(self.variations, values, strict=True))
                parts = [f"{option.rpartition('.')[2]}={value}" for option, value in varied.items()]
                found.append(Variant("-".join(_UNFIT.sub("_", part) for part in (stem, *parts)), config, varied))
        twice = [name for name, count in Counter(variant.name for variant in found).items() if count > 1]
        if twice:
            raise BadInput(f"Two models of the sweep would have the folder {twice[0]}: give each of them once.")
        return found

    def replicates(self) -> list[tuple[str, list[str]]]:
        """Splits x folds: what each adds to a folder's name, and its options."""
        splits = [(f"-split{seed}", [f"--data.init_args.split_seed={seed}"]) for seed in self.split_seeds]
        folds = [
            (f"-fold{fold}", [f"--data.init_args.folds={self.folds}", f"--data.init_args.fold={fold}"])
            for fold in range(self.folds or 0)
        ]
        pairs = itertools.product(splits or [("", [])], folds or [("", [])])
        return [(split + fold, [*first, *second]) for (split, first), (fold, second) in pairs]

    def trainings(self) -> list[tuple[Variant, Training]]:
        """Every training with its variant; all models of a seed come before the next seed, so that a sweep that is
        cut off can be compared.

        Raises:
            BadInput: they are too many.
        """
        variants, replicates = self.variants(), self.replicates()
        count = len(variants) * len(replicates) * len(self.seeds)
        if count > MAX_TRAININGS:
            raise BadInput(f"The sweep has {count:,} trainings; at most {MAX_TRAININGS:,} go into one.")
        return [
            (variant, self.training(variant, seed, suffix, options))
            for seed in self.seeds
            for suffix, options in replicates
            for variant in variants
        ]

    def training(self, variant: Variant, seed: int, suffix: str = "", options: Sequence[str] = ()) -> Training:
        """One of them."""
        varied = [f"--{option}={value}" for option, value in variant.varied.items()]
        return Training(f"{variant.name}{suffix}", seed, [variant.config], [*self.options, *varied, *options])


def _stems(configs: Sequence[str]) -> list[str]:
    """The shortest endings of the paths that tell them apart: `gps-zinc` and `sat-zinc` for `gps/zinc`, `sat/zinc`."""
    paths = [PurePath(config.removesuffix(".yaml")) for config in configs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = [_UNFIT.sub("_", "-".join(path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names
