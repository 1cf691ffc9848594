"""Define what all models of an equal-budget table share, and manage its records.

A table is a configuration `equal-budget/NAME`, which has everything except the architecture, and a file of records,
`equal_budget_NAME.json`. Its models have four layers (if they count layers), four heads, no dropout, about as many
parameters as the configuration expects, and otherwise their class's defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from graphbench.experiments.records import Record, read_file, write_together

LAYERS, HEADS = 4, 4
#: Largest share by which a model's number of parameters may differ from a table's: widths are multiples of four, and
#: the models in the tables differ by up to 11 %.
TOLERANCE = 0.125
PREFIX = "equal-budget/"
#: Heading on the page of results, by benchmark.
EXPERIMENT = "All models at one equal small budget, {benchmark}"
NOTE = (
    "All models of this table have the data, batches, optimizer, schedule and length of the named configuration, "
    f"{LAYERS} layers (where a model counts them), {HEADS} heads, no dropout and about 100,000 parameters; nothing is "
    "tuned. `experiments/equal_budget.py` trains them, and `graphbench verify` adds what others have run. Best "
    "validation score first."
)


def shared_options(names: Collection[str], width: int) -> dict[str, Any]:
    """Return the options that all models share, if an architecture has them; `width` is that of its nodes.

    Examples:
        >>> shared_options(["hidden_dim", "num_layers", "attention_dropout"], 64)
        {'hidden_dim': 64, 'num_layers': 4, 'attention_dropout': 0.0}
    """
    shared: dict[str, Any] = {"hidden_dim": width, "num_layers": LAYERS, "num_heads": HEADS}
    shared |= {option: 0.0 for option in names if option.endswith(("dropout", "token_drop"))}
    return {option: value for option, value in shared.items() if option in names}


def outside_budget(given: Mapping[str, Any], parameters: int, wanted: int) -> list[str]:
    """Describe how a model with these parameters departs from a table's budget, which is `wanted`.

    Examples:
        >>> outside_budget({"hidden_dim": 64, "num_layers": 6, "num_heads": 4}, 99_000, 100_000)
        ['num_layers is 6, and the table has 4']
    """
    problems = [
        f"{option} is {given[option]}, and the table has {value}"
        for option, value in shared_options(given.keys(), given.get("hidden_dim", 0)).items()
        if given[option] != value
    ]
    if abs(parameters - wanted) > TOLERANCE * wanted:
        problems.append(f"{parameters:,} parameters are not within {TOLERANCE:.1%} of {wanted:,}")
    return problems


def record_file(folder: Path, table: str) -> Path:
    """Return the file of a table's records, such as `equal_budget_zinc.json` of `equal-budget/zinc`."""
    return folder / f"equal_budget_{table.removeprefix(PREFIX)}.json"


def add_records(records: Sequence[Record], path: Path) -> None:
    """Add records to a table's file; replace one of the same model and seed by the same person."""
    write_together(ranked([*(read_file(path) if path.is_file() else []), *records]), path)


def ranked(records: Sequence[Record]) -> list[Record]:
    """Keep the last record of each model, person and seed; sort models by score, and each one's records by seed."""
    models: dict[tuple[str, str], dict[int, Record]] = {}
    for one in records:
        models.setdefault((one.name, one.by), {})[one.seed] = one
    each = [sorted(of_seeds.values(), key=lambda one: one.seed) for of_seeds in models.values()]
    return [record for runs in sorted(each, key=_rank) for record in runs]


def _rank(runs: Sequence[Record]) -> float:
    """Return the mean validation score, smaller is better; a model without one comes last."""
    scores = [run.val for run in runs if run.val is not None]
    # A mean over some seeds would rank a model by its successful seeds.
    if len(scores) < len(runs):
        return float("inf")
    return fmean(scores) * (-1 if runs[0].higher_is_better else 1)
