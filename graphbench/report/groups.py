"""Group runs that differ only in seed or split, name the groups, and separate those trained on other data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphbench.report.loading import Run

#: Options named in a label; a table in the page holds the rest.
_NAMED_OPTIONS = 3
_LONGEST_VALUE = 24
#: Options of data that say which of several splits a run has.
SPLIT_OPTIONS = ("fold", "split_seed")


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one benchmark, architecture and configuration, apart from `seed_everything`, fold and seed of the split.

    Args:
        label: architecture, and the options in which it differs from other groups of that architecture.
        runs: in the order they were given.
    """

    label: str
    runs: tuple[Run, ...]

    @property
    def benchmark(self) -> str:
        """Name of the benchmark."""
        return self.runs[0].benchmark

    @property
    def several(self) -> bool:
        """Whether there is more than one run."""
        return len(self.runs) > 1

    @property
    def seeds(self) -> list[str]:
        """Seeds in the order of the runs."""
        return [run.seed for run in self.runs]

    @property
    def repeated_seeds(self) -> list[str]:
        """Seeds of more than one run on one split."""
        counts = Counter(replicate(run) for run in self.runs)
        return list(dict.fromkeys(name[0] for name, count in counts.items() if count > 1))

    @property
    def splits(self) -> list[tuple[str, ...]]:
        """Fold and seed of every split that a run has."""
        return list(dict.fromkeys(replicate(run)[1:] for run in self.runs))

    @property
    def told(self) -> str:
        """`0, 1; folds 0, 1, 2`: seeds, and splits where there are several."""
        if len(self.splits) == 1:
            return ", ".join(self.seeds)
        parts = [", ".join(dict.fromkeys(self.seeds))]
        for name, values in zip(("folds", "split seeds"), zip(*self.splits, strict=True), strict=True):
            if len(set(values)) > 1:
                parts.append(f"{name} {', '.join(dict.fromkeys(values))}")
        return "; ".join(parts)


def replicate(run: Run) -> tuple[str, ...]:
    """What tells a run from the others of its group: seed, fold, and seed of the split."""
    return (run.seed, *(str(data_options(run.config).get(name, "")) for name in SPLIT_OPTIONS))


def data_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the data, empty where there are none."""
    data = config.get("data")
    options = data.get("init_args") if isinstance(data, Mapping) else None
    return dict(options) if isinstance(options, Mapping) else {}


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of their first run. A run whose configuration cannot be read is a group of its own."""
    members: dict[tuple[str, ...], list[list[Run]]] = {}
    for run in runs:
        settings = json.dumps(_settings(run), sort_keys=True, default=str) if run.config else f"unread {run.name}"
        versions = members.setdefault((run.benchmark, run.architecture, settings), [])
        fitting = (group for group in versions if all(_fits(run, other) for other in group))
        found = next(fitting, None)
        if found is None:  # the file was another one by then
            versions.append([run])
        else:
            found.append(run)
    groups = [group for versions in members.values() for group in versions]
    return [Group(label, tuple(group)) for label, group in zip(_labels(groups), groups, strict=True)]


def _fits(run: Run, other: Run) -> bool:
    """Whether two runs of one configuration had the same data, as far as they were of one split."""
    return replicate(run)[1:] != replicate(other)[1:] or alike(run.data, other.data)


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two records of data are of the same graphs in the same split: the same source, or equal content.

    A record that says nothing contradicts none.

    Examples:
        >>> a = {"source": {"file": "1"}, "splits": {"train": {"graphs": 3, "content": "x"}}}
        >>> alike(a, {**a, "source": {"file": "2"}}), alike(a, {"source": {"file": "2"}, "splits": {}}), alike(a, {})
        (True, False, True)
    """
    if not one or not other or one.get("splits") == other.get("splits"):
        return True
    return all(one.get(key) == other.get(key) for key in ("benchmark", "version", "source"))


def _settings(run: Run) -> dict[str, Any]:
    """The configuration without seed and number of the split, and without what it expects, which changes no run."""
    kept = {key: value for key, value in run.config.items() if key not in ("seed_everything", "expected")}
    if options := data_options(run.config):
        rest = {name: value for name, value in options.items() if name not in SPLIT_OPTIONS}
        kept["data"] = {**run.config["data"], "init_args": rest}
    return kept


def flatten(value: object, prefix: str = "") -> dict[str, str]:
    """`{"model": {"dim": 3}}` as `{"model.dim": "3"}`; lists count their places."""
    if isinstance(value, Mapping) and value:
        parts: list[tuple[str, object]] = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list) and value:
        parts = [(str(place), inner) for place, inner in enumerate(value)]
    else:
        return {prefix: "none" if value is None else str(value)}
    return {
        key: text
        for name, inner in parts
        for key, text in flatten(inner, f"{prefix}.{name}" if prefix else name).items()
    }


def differences(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Options that differ between groups: dotted name -> value in each group, "" where a group has no such option."""
    return _differing([group.runs[0] for group in groups])


def _differing(runs: Sequence[Run]) -> dict[str, list[str]]:
    flat = [flatten(_settings(run)) if run.config else {} for run in runs]
    names = dict.fromkeys(name for options in flat for name in options)
    rows = {name: [options.get(name, "") for options in flat] for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each group, no two alike."""
    first = [group[0] for group in groups]
    labels = []
    for run in first:
        peers = [other for other in first if (other.benchmark, other.architecture) == (run.benchmark, run.architecture)]
        labels.append(_label(run, peers))
    count = Counter((run.benchmark, label) for run, label in zip(first, labels, strict=True))
    return [
        f"{label} [{run.name}]" if count[run.benchmark, label] > 1 else label
        for run, label in zip(first, labels, strict=True)
    ]


def _label(run: Run, peers: Sequence[Run]) -> str:
    place = next(number for number, peer in enumerate(peers) if peer is run)
    options = {name: values for name, values in _differing(peers).items() if values[place]}
    if not options:
        return run.architecture
    named = sorted(options, key=lambda name: _rank(name, place, options[name]))[:_NAMED_OPTIONS]
    parts = [f"{_short(name)} {short_value(name, options[name][place])}" for name in named]
    return f"{run.architecture} ({', '.join(parts)}{', …' if len(options) > _NAMED_OPTIONS else ''})"


def _short(name: str) -> str:
    """The option's own name: the last part, or the class that was chosen."""
    parts = [part for part in name.split(".") if part not in ("class_path", "init_args")]
    return parts[-1] if not parts[-1].isdigit() else ".".join(parts[-2:])


def _rank(name: str, place: int, values: Sequence[str]) -> int:
    """Which options a label names first: classes, values that others have otherwise, the rest, what was left out."""
    if name.endswith("class_path"):
        return 0
    if values[place] == "none":
        return 3
    return 1 if len(set(values) - {""}) > 1 else 2


def short_value(name: str, value: str) -> str:
    """A class without its module, the end of a long path, the beginning of any other long value."""
    if name.endswith("class_path"):
        value = value.rpartition(".")[2]
    if len(value) <= _LONGEST_VALUE:
        return value
    return f"…{value[1 - _LONGEST_VALUE :]}" if "/" in value else f"{value[: _LONGEST_VALUE - 1]}…"


#: Options of data that a name of a table shows.
_NAMED = 2


def on_same_data(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups of one benchmark, those together that share a split, in the order of the first of each.

    Runs are held against each other on the splits (fold and seed of the split) that both groups have. Groups without
    such a split belong together only where nobody knows their data.

    Args:
        groups: none of which has two kinds of data in one split, see `graphbench.report.groups.group_runs`.
    """
    tables: list[list[Group]] = []
    for group in groups:
        fitting = (table for table in tables if _related(table, group))
        found = next(fitting, None)
        if found is None:
            tables.append([group])
        else:
            found.append(group)
    return tables


def _related(table: Sequence[Group], group: Group) -> bool:
    verdicts = [_verdict(one, group) for one in table]
    return False not in verdicts and True in verdicts


def _verdict(one: Group, other: Group) -> bool | None:
    """Whether two groups share a split; None where the data of one are not known."""
    pairs = [(a, b) for a in one.runs for b in other.runs if replicate(a)[1:] == replicate(b)[1:]]
    if pairs:
        return all(alike(a.data, b.data) for a, b in pairs)
    return None if all(run.data for run in (*one.runs, *other.runs)) else True


def table_names(benchmark: str, tables: Sequence[Sequence[Group]]) -> list[str]:
    """A name for each table of a benchmark: with the options of data in which they differ, where there are several.

    Args:
        benchmark: its name.
        tables: see `on_same_data`.
    """
    if len(tables) == 1:
        return [benchmark]
    options = [flatten(data_options(table[0].runs[0].config)) for table in tables]
    names = list(dict.fromkeys(name for found in options for name in found))
    differing = [
        name
        for name in names
        if name and name not in SPLIT_OPTIONS and len({found.get(name, "none") for found in options}) > 1
    ]
    told = [
        ", ".join(f"{name} {short_value(name, found.get(name, 'none'))}" for name in differing[:_NAMED])
        for found in options
    ]
    if len(set(told)) < len(told):
        told = [f"{text}{', ' if text else ''}data {number}" for number, text in enumerate(told, 1)]
    return [f"{benchmark} ({text})" for text in told]


def split_sizes(runs: Sequence[Run]) -> str:
    """How many graphs each split has, and how many rows of the file were left out, as a sentence; "" where unknown.

    Args:
        runs: on the same data, maybe in several splits.
    """
    known = [run.data for run in runs if run.data]
    if not known:
        return ""
    parts = []
    for split, title in (("train", "training"), ("val", "validation"), ("test", "test")):
        sizes = sorted({int(data["splits"][split]["graphs"]) for data in known if split in data["splits"]})
        if sizes:
            shown = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
            parts.append(f"{shown} {title}")
    left_out = max(int(data.get("left_out", 0)) for data in known)
    rows = f" {left_out:,} rows of the file could not be used and were left out." if left_out else ""
    return f"Graphs: {', '.join(parts)}.{rows}" if parts else rows.strip()
