"""Group runs that differ only in seed or split, name the groups, and separate those trained on different data."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphbench.data.files import nested
from graphbench.report.loading import Run

#: Number of options in the label of a group; a table in the page lists all.
_OPTIONS_IN_LABEL = 3
#: Options of the data in the name of a table.
_OPTIONS_IN_NAME = 2
_LONGEST_VALUE = 24
#: Options of the data that say which of several splits a run has.
SPLIT_OPTIONS = ("fold", "split_seed")
#: Fold and seed of a split -> the different records of its data.
_BySplit = dict[tuple[str, ...], list[Mapping[str, Any]]]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs with the same benchmark, architecture and configuration, except seed, fold and seed of the split."""

    label: str  # architecture, and the options in which it differs from other groups of that architecture
    runs: tuple[Run, ...]  # in the order given

    @property
    def benchmark(self) -> str:
        """Return the name of the benchmark."""
        return self.runs[0].benchmark

    @property
    def several(self) -> bool:
        """Return whether there is more than one run."""
        return len(self.runs) > 1

    @property
    def repeated_seeds(self) -> list[str]:
        """List seeds with more than one run on the same split."""
        counts = Counter(replicate(run) for run in self.runs)
        return list(dict.fromkeys(key[0] for key, count in counts.items() if count > 1))

    @property
    def splits(self) -> list[tuple[str, ...]]:
        """List fold and seed of every split."""
        return list(dict.fromkeys(replicate(run)[1:] for run in self.runs))

    @property
    def replicates(self) -> str:
        """Return seeds, and splits if several, as text: `0, 1; folds 0, 1, 2`."""
        seeds = [run.seed for run in self.runs]
        if len(self.splits) == 1:
            return ", ".join(seeds)
        parts = [", ".join(dict.fromkeys(seeds))]
        for name, values in zip(("folds", "split seeds"), zip(*self.splits, strict=True), strict=True):
            if len(set(values)) > 1:
                parts.append(f"{name} {', '.join(dict.fromkeys(values))}")
        return "; ".join(parts)


def replicate(run: Run) -> tuple[str, ...]:
    """Return seed, fold, and seed of the split, which differ between runs of one group."""
    return (run.seed, *(str(data_options(run.config).get(name, "")) for name in SPLIT_OPTIONS))


def data_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the data in a configuration."""
    data = config.get("data")
    options = data.get("init_args") if isinstance(data, Mapping) else None
    return dict(options) if isinstance(options, Mapping) else {}


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs, in the order of the first of each; a run without a readable configuration is its own group."""
    members: dict[tuple[str, ...], list[tuple[list[Run], _BySplit]]] = {}
    for run in runs:
        settings = json.dumps(_settings(run), sort_keys=True, default=str) if run.config else f"unread {run.name}"
        groups = members.setdefault((run.benchmark, run.architecture, settings), [])
        # runs with one configuration still differ in their data if the file has changed in between
        split = replicate(run)[1:]
        fitting = (one for one in groups if all(alike(run.data, other) for other in one[1].get(split, ())))
        if (group := next(fitting, None)) is None:
            groups.append(group := ([], {}))
        group[0].append(run)
        _note_data(group[1], split, run.data)
    every = [group for groups in members.values() for group, _ in groups]
    return [Group(label, tuple(group)) for label, group in zip(_labels(every), every, strict=True)]


def _note_data(data: _BySplit, split: tuple[str, ...], record: Mapping[str, Any]) -> None:
    """Add the data of a run in a split; hundreds of seeds have one record, which is then compared once."""
    records = data.setdefault(split, [])
    if record not in records:
        records.append(record)


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two records of data have the same graphs in the same split: the same source, or equal content.

    An empty record matches every other.

    Examples:
        >>> a = {"source": {"file": "1"}, "splits": {"train": {"graphs": 3, "content": "x"}}}
        >>> alike(a, {**a, "source": {"file": "2"}}), alike(a, {"source": {"file": "2"}, "splits": {}}), alike(a, {})
        (True, False, True)
    """
    if not one or not other or one.get("splits") == other.get("splits"):
        return True
    return all(one.get(key) == other.get(key) for key in ("benchmark", "version", "source"))


def _settings(run: Run) -> dict[str, Any]:
    """Return the configuration without seed, split number and expected score, which does not affect a run."""
    settings = {key: value for key, value in run.config.items() if key not in ("seed_everything", "expected")}
    if options := data_options(run.config):
        rest = {name: value for name, value in options.items() if name not in SPLIT_OPTIONS}
        settings["data"] = {**run.config["data"], "init_args": rest}
    return settings


def flatten(value: object, prefix: str = "") -> dict[str, str]:
    """Flatten nested values to text: `{"model": {"dim": 3}}` to `{"model.dim": "3"}`, lists by index."""
    return {name: "none" if leaf is None else str(leaf) for name, leaf in nested.flatten(value, prefix, lists=True)}


def differences(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return options that differ: dotted name -> value in each group, "" if a group has no such option."""
    return _differing([group.runs[0] for group in groups])


def _differing(runs: Sequence[Run]) -> dict[str, list[str]]:
    flat = [flatten(_settings(run)) if run.config else {} for run in runs]
    names = dict.fromkeys(name for options in flat for name in options)
    rows = {name: [options.get(name, "") for options in flat] for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Return a unique name for each group."""
    runs = [group[0] for group in groups]
    peers: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        peers.setdefault((run.benchmark, run.architecture), []).append(run)
    # Once for all of an architecture: a sweep may have hundreds of configurations, each with hundreds of options.
    differing = {kind: _differing(of_kind) for kind, of_kind in peers.items()}
    labels = []
    for run in runs:
        kind = run.benchmark, run.architecture
        place = next(number for number, peer in enumerate(peers[kind]) if peer is run)
        labels.append(_label(run.architecture, place, differing[kind]))
    count = Counter((run.benchmark, label) for run, label in zip(runs, labels, strict=True))
    return [
        f"{label} [{run.name}]" if count[run.benchmark, label] > 1 else label
        for run, label in zip(runs, labels, strict=True)
    ]


def _label(architecture: str, place: int, differing: Mapping[str, Sequence[str]]) -> str:
    """Name the run at a place by the options in which runs of its architecture differ."""
    options = {name: values for name, values in differing.items() if values[place]}
    if not options:
        return architecture
    shown = sorted(options, key=lambda name: _rank(name, place, options[name]))[:_OPTIONS_IN_LABEL]
    names = zip(short_names(shown), shown, strict=True)
    parts = [f"{short} {short_value(name, options[name][place])}" for short, name in names]
    return f"{architecture} ({', '.join(parts)}{', …' if len(options) > _OPTIONS_IN_LABEL else ''})"


def _rank(name: str, place: int, values: Sequence[str]) -> int:
    """Order options of a label: classes, options that other groups also set, the rest, and empty values."""
    if name.endswith("class_path"):
        return 0
    if values[place] == "none":
        return 3
    return 1 if len(set(values) - {""}) > 1 else 2


def short_names(options: Sequence[str]) -> list[str]:
    """Return the last part of each dotted option, or the option that a class is chosen for; two parts of equal ones.

    Examples:
        >>> short_names(["model.head.dim", "model.architecture.init_args.dim", "data.class_path", "data.init_args.a.0"])
        ['head.dim', 'architecture.dim', 'data', 'a.0']
    """
    parts = [[part for part in name.split(".") if part not in ("class_path", "init_args")] for name in options]
    last = Counter(one[-1] for one in parts)
    return [".".join(one[-2:] if one[-1].isdigit() or last[one[-1]] > 1 else one[-1:]) for one in parts]


def short_value(name: str, value: str) -> str:
    """Shorten a class to its name, a long path to its end, any other long value to its start."""
    if name.endswith("class_path"):
        value = value.rpartition(".")[2]
    if len(value) <= _LONGEST_VALUE:
        return value
    is_path = "/" in value or re.fullmatch(r"\w+(\.\w+)+", value)
    return f"…{value[1 - _LONGEST_VALUE :]}" if is_path else f"{value[: _LONGEST_VALUE - 1]}…"


def on_same_data(groups: Sequence[Group]) -> list[list[Group]]:
    """Partition groups of one benchmark into tables of groups that share a split of the same data.

    Groups without a common split share a table only if the data of one are unknown. Groups from `group_runs` never have
    two kinds of data in one split.
    """
    tables: list[list[Group]] = []
    data: dict[Group, _BySplit] = {group: {} for group in groups}
    for group in groups:
        for run in group.runs:
            _note_data(data[group], replicate(run)[1:], run.data)
        table = next((table for table in tables if _belongs(data[group], [data[one] for one in table])), None)
        if table is None:
            tables.append([group])
        else:
            table.append(group)
    return tables


def _belongs(data: _BySplit, table: Sequence[_BySplit]) -> bool:
    verdicts = [_compare_data(one, data) for one in table]
    return False not in verdicts and True in verdicts


def _compare_data(one: _BySplit, other: _BySplit) -> bool | None:
    """Return whether two groups have the same data; None if both are known and share no split."""
    if shared := one.keys() & other.keys():
        return all(alike(a, b) for split in shared for a in one[split] for b in other[split])
    return None if all(record for each in (one, other) for records in each.values() for record in records) else True


def table_names(benchmark: str, tables: Sequence[Sequence[Group]]) -> list[str]:
    """Name each table of a benchmark; several by the options of data in which they differ, or by number."""
    if len(tables) == 1:
        return [benchmark]
    options = [flatten(data_options(table[0].runs[0].config)) for table in tables]
    names = dict.fromkeys(name for one in options for name in one if name and name not in SPLIT_OPTIONS)
    differing = [name for name in names if len({one.get(name, "none") for one in options}) > 1]
    texts = [
        ", ".join(f"{name} {short_value(name, one.get(name, 'none'))}" for name in differing[:_OPTIONS_IN_NAME])
        for one in options
    ]
    # Data with one configuration may still differ if a file was changed.
    if len(set(texts)) < len(texts):
        texts = [f"{text}{', ' if text else ''}data {number}" for number, text in enumerate(texts, 1)]
    return [f"{benchmark} ({text})" for text in texts]


def split_sizes(runs: Sequence[Run]) -> str:
    """Describe how many graphs each split of the same data has, and how many rows were skipped; "" if unknown."""
    records = [run.data for run in runs if run.data]
    if not records:
        return ""
    parts = []
    for split, title in (("train", "training"), ("val", "validation"), ("test", "test")):
        sizes = sorted({int(data["splits"][split]["graphs"]) for data in records if split in data["splits"]})
        if sizes:
            count = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
            parts.append(f"{count} {title}")
    left_out = max(int(data.get("left_out", 0)) for data in records)
    rows = f" {left_out:,} rows of the file could not be used and were skipped." if left_out else ""
    return f"Graphs: {', '.join(parts)}.{rows}" if parts else rows.strip()
