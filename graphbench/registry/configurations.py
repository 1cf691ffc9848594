"""Configurations by name: those that installed distributions ship, found and read without importing any of them.

A distribution says where its configurations are by an entry point, whose name is what their names begin with:

    [project.entry-points."graphbench.configs"]
    my-model = "graphbench_my_model"            # all of the package's folder `configs`
    gps = "graphbench_baselines:gps"            # one folder in it
    quickstart = "graphbench:quickstart.yaml"   # one file in it

`gps/zinc` is then `zinc.yaml` of that folder. The folder `configs` is part of the package in a wheel, and lies beside
the package or beside `src` in a clone.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, NameClash
from graphbench.registry import entry_points, listings
from graphbench.registry.expected import Expected

_FOLDER = "configs"
_SUFFIX = ".yaml"
_OVERLAYS = "overlays"


@dataclass(frozen=True)
class Configuration:
    """One file of settings that a distribution ships.

    Args:
        name: what `--config` takes, such as `gps/zinc`.
        path: the file.
        distribution: name of the distribution that ships it.
        version: its version.
    """

    name: str
    path: Path
    distribution: str
    version: str

    @property
    def text(self) -> str:
        """The file as it is."""
        return self.path.read_text(encoding="utf-8")

    def content(self) -> dict[str, Any]:
        """The settings.

        Raises:
            BadInput: the file is not a YAML mapping.
        """
        return read(self.path)

    @property
    def summary(self) -> str:
        """The comment that the file begins with, on one line."""
        lines = []
        for line in self.text.splitlines():
            if not line.startswith("#"):
                break
            lines.append(line.lstrip("# "))
        return " ".join(lines)

    @property
    def is_overlay(self) -> bool:
        """Whether it changes another configuration and is none by itself."""
        return _OVERLAYS in self.name.split("/")[:-1]


def read(path: Path) -> dict[str, Any]:
    """The settings in a file.

    Raises:
        BadInput: it is not a YAML mapping.
    """
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"--config {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BadInput(f"--config {path} must hold a mapping such as 'model: ...', not {type(content).__name__}.")
    return content


def folder_of(package: str, name: str = _FOLDER) -> Path | None:
    """The folder `configs`, or `name`, of a top-level package, which is not imported; None where it has none.

    Beside a package only a clone has one, which its `pyproject.toml` shows: what lies beside an installed package
    belongs to others.
    """
    found = importlib.util.find_spec(package)
    for location in (found.submodule_search_locations or ()) if found is not None else ():
        inside = Path(location)
        beside = [root for root in (inside.parent, inside.parent.parent) if (root / "pyproject.toml").is_file()]
        for root in (inside, *beside):
            if (root / name).is_dir():
                return root / name
    return None


def configurations() -> dict[str, tuple[Configuration, ...]]:
    """Every installed configuration by name, sorted; several of one name where distributions clash."""
    found: dict[str, tuple[Configuration, ...]] = {}
    for entry in entry_points.config_entries():
        for configuration in _of(entry):
            found[configuration.name] = (*found.get(configuration.name, ()), configuration)
    return dict(sorted(found.items()))


def missing() -> list[str]:
    """Entry points that lead to no folder or file, each with its distribution."""
    return [
        f"{entry.prefix} of {entry.distribution} {entry.version} ({entry.target})"
        for entry in entry_points.config_entries()
        if (place := _place(entry)) is None or not place.exists()
    ]


def _place(entry: entry_points.ConfigEntry) -> Path | None:
    package, _, part = entry.target.partition(":")
    folder = folder_of(package)
    return None if folder is None else folder / part


def _of(entry: entry_points.ConfigEntry) -> Iterator[Configuration]:
    place = _place(entry)
    if place is None:
        return
    if place.is_file():
        yield Configuration(entry.prefix, place, entry.distribution, entry.version)
        return
    for path in place.rglob(f"*{_SUFFIX}"):
        below = path.relative_to(place).with_suffix("").as_posix()
        yield Configuration(f"{entry.prefix}/{below}", path, entry.distribution, entry.version)


def _named(entry: entry_points.ConfigEntry, name: str) -> Configuration | None:
    """The configuration of an entry that has a name, without a look at its others: there are hundreds."""
    if name != entry.prefix and not name.startswith(f"{entry.prefix}/"):
        return None
    place, below = _place(entry), name[len(entry.prefix) + 1 :]
    if place is None or place.is_file() != (name == entry.prefix):
        return None
    if name != entry.prefix and not {"", ".", ".."}.isdisjoint(below.split("/")):  # no name: a way to leave the folder
        return None
    path = place / f"{below}{_SUFFIX}" if below else place
    return Configuration(name, path, entry.distribution, entry.version) if path.is_file() else None


def find(name: str) -> Configuration:
    """The configuration of a name.

    Raises:
        BadInput: none has it; names near matches, or the files in a folder of this name.
        NameClash: several distributions ship one.

    Examples:
        >>> find("quickstart").path.name
        'quickstart.yaml'
    """
    found = [one for entry in entry_points.config_entries() if (one := _named(entry, name)) is not None]
    if len(found) > 1:
        owners = " and ".join(f"{one.distribution} {one.version} ({one.path})" for one in found)
        raise NameClash(f"The configuration {name!r} is shipped by {owners}. Name the file instead.")
    if not found and Path(name).is_dir():
        raise BadInput(f"--config {name}: this is a folder and not a file.{_inside(Path(name))}")
    if not found and (absent := listings.absent_supplier("configs", name)) is not None:
        raise BadInput(f"--config {name}: there is no such file. {listings.advice(absent)}")
    if not found:
        raise BadInput(
            f"--config {name}: there is no such file, and no installed configuration has that name."
            f"{_near(name, configurations())} `graphbench list configs` shows all."
        )
    return found[0]


def _inside(folder: Path) -> str:
    """The configurations that lie in a folder."""
    found = sorted(path for path in folder.glob(f"*{_SUFFIX}") if path.is_file())[:3]
    return f" Did you mean {' or '.join(map(str, found))}?" if found else ""


def _near(name: str, known: Iterable[str]) -> str:
    """Names that are alike, or end alike."""
    every = list(known)
    short = name.removesuffix(_SUFFIX).casefold()
    last = [other for other in every if other.casefold().endswith(f"/{short.rpartition('/')[2]}")]
    alike = difflib.get_close_matches(short, every, n=3, cutoff=0.6)
    near = list(dict.fromkeys([*alike, *last]))[:3]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def resolve(value: str) -> Path:
    """The file that `--config VALUE` means: an existing file, else the installed configuration of that name.

    Raises:
        BadInput: there is neither; names near matches.
        NameClash: several distributions ship one of that name.
    """
    path = Path(value)
    return path if path.is_file() else find(value).path


@dataclass(frozen=True)
class Facts:
    """What a configuration says about itself, as far as it does.

    Args:
        kind: `recipe` (data, model and training), `overlay` (changes a recipe) or `part` (goes beside options).
        over: the recipe that an overlay belongs to; "" where it goes over several.
        benchmark: registered name.
        model: registered name.
        expected: what a run of it should reach.
    """

    kind: str
    over: str
    benchmark: str
    model: str
    expected: Expected


def facts(configuration: Configuration, names: Iterable[str] = ()) -> Facts:
    """What a configuration says about itself.

    Args:
        configuration: which.
        names: all configurations, for the one that an overlay belongs to: `sat/overlays/zinc-x2` to `sat/zinc`.

    Raises:
        BadInput: its file is damaged, or has an unknown key in `expected`.
    """
    content = configuration.content()
    over = base_of(configuration.name, names) if configuration.is_overlay else ""
    kind = "overlay" if configuration.is_overlay else "recipe" if "data" in content else "part"
    model = content.get("model")
    return Facts(
        kind,
        over,
        _class(content.get("data")),
        _class(model.get("architecture") if isinstance(model, Mapping) else None),
        Expected.parse(content.get("expected"), str(configuration.path)),
    )


def base_of(name: str, names: Iterable[str]) -> str:
    """The recipe whose name an overlay's begins with; "" where it goes over several.

    Examples:
        >>> base_of("sat/overlays/zinc-x2", ["sat/zinc", "sat/pattern", "graphormer/zinc"])
        'sat/zinc'
        >>> base_of("sat/overlays/fusion", ["sat/zinc"])
        ''
    """
    folder, _, own = name.rpartition(f"/{_OVERLAYS}/")
    fitting = [one for one in names if f"{folder}/{own}".startswith(f"{one}-") and f"/{_OVERLAYS}/" not in one]
    return max(fitting, key=len, default="")


def _class(value: Any) -> str:
    """The last part of the class that a slot names."""
    name = value.get("class_path") if isinstance(value, Mapping) else value
    return name.rpartition(".")[2] if isinstance(name, str) else ""
