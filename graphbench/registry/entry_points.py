"""Find installed architectures, benchmarks, encodings, tasks and callbacks.

graphbench's classes are in the listings of `graphbench.registry.listings`. Any other distribution registers a class
under the name of the class in one of five entry-point groups:

    [project.entry-points."graphbench.architectures"]
    MyModel = "graphbench_my_model:MyModel"

Reading the registry imports nothing from plug-ins except specifications of benchmarks; a class is imported when it is
loaded. A plug-in that is broken or claims an existing name is reported with its distribution and version, and the
others keep working.

Three more groups name folders of data: `graphbench.configs` for configurations (read by
`graphbench.registry.configurations`), `graphbench.tables` for published tables (`graphbench.experiments.reproduce`)
and `graphbench.weights` for weights to start from (`graphbench.registry.starting_weights`).
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Literal, get_args

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.versions import warn_of_version
from graphbench.errors import BrokenPlugin, NameClash, UnknownName
from graphbench.registry import describe, listings

Group = Literal["architectures", "benchmarks", "encodings", "tasks", "callbacks"]
GROUPS: tuple[Group, ...] = get_args(Group)

#: Base classes of each group, as entry-point targets that are loaded only with a plug-in.
_CONTRACTS: dict[Group, tuple[str, ...]] = {
    "architectures": ("graphbench.contracts:Architecture",),
    "benchmarks": ("graphbench.contracts:Benchmark",),
    "encodings": ("graphbench.contracts:Encoding", "graphbench.contracts:PositionalEncoder"),
    "tasks": ("graphbench.training.tasks:Task",),
    "callbacks": ("pytorch_lightning:Callback",),
}
#: Singular with article, for messages.
_SINGULAR: dict[Group, str] = {
    "architectures": "an architecture",
    "benchmarks": "a benchmark",
    "encodings": "an encoding",
    "tasks": "a task",
    "callbacks": "a callback",
}


@dataclass(frozen=True)
class Record:
    """One registered class, not imported yet.

    Args:
        name: registered name, which is the class name.
        group: see `GROUPS`.
        distribution: name of the installed distribution that registers it.
        version: its version.
        target: `"package.module:Class"`.
    """

    name: str
    group: Group
    distribution: str
    version: str
    target: str

    @property
    def class_path(self) -> str:
        """Return the dotted path of the class, as used in configurations."""
        return self.target.replace(":", ".")

    @property
    def summary(self) -> str:
        """Return the first line of the class's docstring, read from its source."""
        return describe.summary_of(self.target)

    @property
    def fault(self) -> str:
        """Return why the class cannot be loaded, as far as its source shows; "" if only importing it would tell."""
        return describe.absence_of(self.target)

    @property
    def spec(self) -> BenchmarkSpec | None:
        """Return the specification of a benchmark; None if it depends on options or cannot be imported.

        It is read from the module `specs` of the benchmark's package, which imports nothing heavy; without such a
        module the class is imported.
        """
        return _spec(self) if self.group == "benchmarks" else None

    def load(self) -> type[Any]:
        """Import the class and check it against the contract of its group.

        Raises:
            BrokenPlugin: it cannot be imported, breaks the contract or has another name than registered.
        """
        if metadata.EntryPoint.pattern.match(self.target) is None:
            raise self._broken("an entry point must be MODULE:CLASS")
        warn_of_version(self.distribution)
        try:
            loaded = _import(self.target)
        except (Exception, SystemExit) as error:  # a plug-in's module may raise anything
            raise self._broken(f"{type(error).__name__}: {error}") from error
        allowed = tuple(map(_import, _CONTRACTS[self.group]))
        if not isinstance(loaded, type) or not issubclass(loaded, allowed):
            expected = " or ".join(contract.replace(":", ".") for contract in _CONTRACTS[self.group])
            raise self._broken(f"it is not a subclass of {expected}")
        if loaded.__name__ != self.name:
            raise self._broken(f"it is registered as {self.name!r} but the class is called {loaded.__name__!r}")
        return loaded

    def _broken(self, reason: str) -> BrokenPlugin:
        return BrokenPlugin(
            f"{self.name}, {_SINGULAR[self.group]} of {self.distribution} {self.version} ({self.target}), cannot be "
            f"used: {reason}. Update or repair that distribution, or remove it: pip uninstall {self.distribution}"
        )


@dataclass(frozen=True)
class ConfigEntry:
    """One entry point of the groups `graphbench.configs`, `tables` and `weights`, which is never imported.

    Args:
        prefix: prefix of the names of configurations or tables; the name of weights.
        distribution: name of the installed distribution that ships them.
        version: its version.
        target: `"package"`, or `"package:part"` for one folder or file in the package's folder.
        folder: the folder of the package, `configs`, `tables` or `weights`.
    """

    prefix: str
    distribution: str
    version: str
    target: str
    folder: str = "configs"


@cache
def _spec(record: Record) -> BenchmarkSpec | None:
    module = record.target.partition(":")[0]
    for package in (module, module.rpartition(".")[0]):
        # Found before it is imported: importing a missing `specs` would run the package that contains it.
        if package and describe.find_source(f"{package}.specs") is not None:
            try:
                specs = vars(importlib.import_module(f"{package}.specs")).values()
            except (Exception, SystemExit):  # loading the class reports the reason; a list continues
                return None
            for spec in specs:
                if isinstance(spec, BenchmarkSpec) and spec.name == record.name:
                    return spec
    try:
        spec = getattr(record.load(), "spec", None)
    except BrokenPlugin:
        return None
    return spec if isinstance(spec, BenchmarkSpec) else None


def _import(target: str) -> Any:
    return metadata.EntryPoint(name="", value=target, group="").load()


@dataclass(frozen=True)
class _Scan:
    """Records by group and name, several if distributions clash, and unreadable distributions with the reason."""

    records: dict[Group, dict[str, tuple[Record, ...]]]
    configs: tuple[ConfigEntry, ...]
    unreadable: dict[str, str]


def _entries(distribution: metadata.Distribution) -> Iterator[Record | ConfigEntry]:
    """Yield entries of one distribution; the raw text is searched first, since parsing metadata is slow."""
    if "graphbench." not in (distribution.read_text("entry_points.txt") or ""):
        return
    name: str | None = distribution.metadata["Name"]
    if not name:
        raise ValueError("METADATA gives no name")
    is_core = _identity(name) == listings.DISTRIBUTION
    for core_group, listed in listings.LISTINGS.items() if is_core else ():
        for class_name, target in (named for listing in listed for named in listing.targets()):
            yield Record(class_name, core_group, name, distribution.version, target)
    for entry in distribution.entry_points:
        prefix, _, group = entry.group.partition(".")
        target = entry.value.partition("[")[0].replace(" ", "")  # "module : Class [extra]" is rare, but allowed
        if prefix == "graphbench" and group in GROUPS and not is_core:  # an editable install may have outdated ones
            yield Record(entry.name, group, name, distribution.version, target)
        elif prefix == "graphbench" and group in ("configs", "tables", "weights"):
            yield ConfigEntry(entry.name, name, distribution.version, target, group)


def _identity(name: str) -> str:
    """Normalize the name of a distribution as installers do."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _scan() -> _Scan:
    records: dict[Group, dict[str, tuple[Record, ...]]] = {group: {} for group in GROUPS}
    configs: list[ConfigEntry] = []
    unreadable: dict[str, str] = {}
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            entries = list(_entries(distribution))
        except (TypeError, ValueError, KeyError, OSError) as error:  # what importlib.metadata raises on broken files
            unreadable[str(getattr(distribution, "_path", distribution))] = f"{type(error).__name__}: {error}"
            continue
        # A distribution can be on sys.path twice, such as an editable install and its egg-info: the first counts.
        identity = _identity(entries[0].distribution) if entries else None
        if identity is None or identity in seen:
            continue
        seen.add(identity)
        configs += [entry for entry in entries if isinstance(entry, ConfigEntry)]
        unique = {entry for entry in entries if isinstance(entry, Record)}
        for record in sorted(unique, key=lambda record: (record.name, record.target)):
            by_name = records[record.group]
            by_name[record.name] = (*by_name.get(record.name, ()), record)
    return _Scan(records, tuple(sorted(set(configs), key=lambda entry: (entry.prefix, entry.target))), unreadable)


def refresh() -> None:
    """Clear the caches, after distributions or sources have changed."""
    importlib.invalidate_caches()
    _scan.cache_clear()
    _spec.cache_clear()
    warn_of_version.cache_clear()
    describe.forget()


def records(group: Group) -> dict[str, Record]:
    """Return name -> record of one group, sorted by name, without names that clash (see `clashes`)."""
    return {name: each[0] for name, each in sorted(_scan().records[group].items()) if len(each) == 1}


def architectures() -> dict[str, Record]:
    """Return registered architectures by name."""
    return records("architectures")


def benchmarks() -> dict[str, Record]:
    """Return registered benchmarks by name."""
    return records("benchmarks")


def encodings() -> dict[str, Record]:
    """Return registered encodings and positional encoders, by name."""
    return records("encodings")


def callbacks() -> dict[str, Record]:
    """Return registered callbacks by name."""
    return records("callbacks")


def config_entries() -> tuple[ConfigEntry, ...]:
    """Return entry points of configurations, sorted by prefix."""
    return tuple(entry for entry in _scan().configs if entry.folder == "configs")


def table_entries() -> tuple[ConfigEntry, ...]:
    """Return entry points of published tables, sorted by prefix."""
    return tuple(entry for entry in _scan().configs if entry.folder == "tables")


def weight_entries() -> tuple[ConfigEntry, ...]:
    """Return entry points of weights to start from, sorted by name."""
    return tuple(entry for entry in _scan().configs if entry.folder == "weights")


def clashes(group: Group) -> dict[str, tuple[Record, ...]]:
    """Return names that several distributions register, with all their records."""
    return {name: each for name, each in sorted(_scan().records[group].items()) if len(each) > 1}


def unreadable() -> dict[str, str]:
    """Return metadata folder -> reason, for distributions whose entry points cannot be read."""
    return dict(_scan().unreadable)


def find(group: Group, name: str) -> Record:
    """Find the record of a name.

    Raises:
        UnknownName: the name is not registered; suggests near matches.
        NameClash: several distributions register it.
    """
    if group not in GROUPS:
        raise UnknownName("group of plug-ins", group, GROUPS)
    matches = _scan().records[group].get(name, ())
    if len(matches) > 1:
        owners = " and ".join(f"{record.distribution} {record.version} ({record.target})" for record in matches)
        raise NameClash(
            f"{name!r} is registered as {_SINGULAR[group]} by {owners}. Uninstall all but one of them, or have its "
            "author choose another name."
        )
    if not matches:
        raise UnknownName(_SINGULAR[group].split()[1], name, _scan().records[group], _hint(group, name))
    return matches[0]


def _hint(group: Group, name: str) -> str:
    for other in GROUPS:
        if name in _scan().records[other]:
            return f"{name} is {_SINGULAR[other]}, not {_SINGULAR[group]}."
    owner = listings.absent_supplier(group, name)
    if owner is not None:
        return listings.advice(owner)
    return (
        f"`graphbench list {group}` shows which distribution supplies each. To add one, install its distribution into "
        f"this environment: {sys.executable} -m pip install NAME"
    )


def load(group: Group, name: str) -> type[Any]:
    """Load the class of a name.

    Raises:
        UnknownName: the name is not registered; suggests near matches.
        NameClash: several distributions register it.
        BrokenPlugin: it cannot be imported or breaks its contract.
    """
    return find(group, name).load()
