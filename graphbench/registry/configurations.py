"""Find configurations that installed distributions ship, by name, without importing the distributions.

A distribution declares its configurations with an entry point, whose name is the prefix of their names:

    [project.entry-points."graphbench.configs"]
    my-model = "graphbench_my_model"            # all of the package's folder `configs`
    gps = "graphbench_baselines:gps"            # one folder in it
    quickstart = "graphbench:quickstart.yaml"   # one file in it

`gps/zinc` is then `zinc.yaml` in that folder. The folder `configs` is part of the package in a wheel, and is next to
the package or `src` in a clone.
"""

from __future__ import annotations

import codecs
import difflib
import importlib.util
import itertools
import locale
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """One file of settings, with the name used in `--config`, such as `gps/zinc`, and the distribution of the file."""

    name: str
    path: Path
    distribution: str
    version: str

    @property
    def text(self) -> str:
        """Return the text of the file."""
        return self.path.read_text(encoding="utf-8")

    def content(self) -> dict[str, Any]:
        """Read the settings, see `read`."""
        return read(self.path)

    @property
    def summary(self) -> str:
        """Return the comment at the top of the file, on one line."""
        lines = itertools.takewhile(lambda line: line.startswith("#"), self.text.splitlines())
        return " ".join(line.lstrip("# ") for line in lines)

    @property
    def is_overlay(self) -> bool:
        """Tell whether it changes another configuration instead of being one itself."""
        return _OVERLAYS in self.name.split("/")[:-1]


def read(path: Path) -> dict[str, Any]:
    """Read the settings in a file.

    Raises:
        BadInput: it is not a YAML mapping, or has letters that the parser would decode incorrectly.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = load_yaml(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"--config {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BadInput(f"--config {path} must be a mapping such as 'model: ...', not {type(content).__name__}.")
    # jsonargparse opens files in the encoding of the locale, which is not UTF-8 on Windows, and has no option for that.
    encoding = locale.getpreferredencoding(False)
    if not text.isascii() and codecs.lookup(encoding).name != "utf-8":
        raise BadInput(f"--config {path} has letters beyond ASCII, but files are read as {encoding}: set PYTHONUTF8=1.")
    return content


def folder_of(package: str, name: str = _FOLDER) -> Path | None:
    """Find the folder `configs`, or `name`, of a top-level package without importing the package.

    A folder next to the package counts only in a clone, which has a `pyproject.toml`: folders next to an installed
    package belong to other packages.
    """
    # Only a top-level name: to find a dotted one, Python would import its parent packages.
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        inside = Path(location)
        # A clone has the package in its root or in `src`, and the configurations in its root.
        beside = [root for root in (inside.parent, inside.parent.parent) if (root / "pyproject.toml").is_file()]
        for root in (inside, *beside):
            if (root / name).is_dir():
                return root / name
    return None


def configurations() -> dict[str, tuple[Configuration, ...]]:
    """Return every installed configuration by name, sorted; several for one name if distributions clash."""
    by_name: dict[str, tuple[Configuration, ...]] = {}
    for entry in entry_points.config_entries():
        for configuration in _files_of(entry):
            by_name[configuration.name] = (*by_name.get(configuration.name, ()), configuration)
    return dict(sorted(by_name.items()))


def missing() -> list[str]:
    """Describe entry points that lead to no folder or file."""
    return [
        f"{entry.prefix} of {entry.distribution} {entry.version} ({entry.target})"
        for entry in entry_points.config_entries()
        if (place := _place(entry)) is None or not place.exists()
    ]


def _place(entry: entry_points.ConfigEntry) -> Path | None:
    package, _, part = entry.target.partition(":")
    folder = folder_of(package)
    return None if folder is None else folder / part


def _files_of(entry: entry_points.ConfigEntry) -> Iterator[Configuration]:
    place = _place(entry)
    if place is None:
        return
    if place.is_file():
        yield Configuration(entry.prefix, place, entry.distribution, entry.version)
        return
    for path in place.rglob(f"*{_SUFFIX}"):
        below = path.relative_to(place).with_suffix("").as_posix()
        yield Configuration(f"{entry.prefix}/{below}", path, entry.distribution, entry.version)


def _find_in(entry: entry_points.ConfigEntry, name: str) -> Configuration | None:
    """Find a configuration by name without listing the hundreds of others."""
    is_file, below = name == entry.prefix, name[len(entry.prefix) + 1 :]
    if not is_file and not name.startswith(f"{entry.prefix}/"):
        return None
    place = _place(entry)
    if place is None or place.is_file() != is_file:
        return None
    if not is_file and not {"", ".", ".."}.isdisjoint(below.split("/")):  # it would leave the folder
        return None
    path = place if is_file else place / f"{below}{_SUFFIX}"
    return Configuration(name, path, entry.distribution, entry.version) if path.is_file() else None


def find(name: str) -> Configuration:
    """Find a configuration by name.

    Raises:
        BadInput: there is none; suggests near matches, or the files in a folder of this name.
        NameClash: several distributions ship one.

    Examples:
        >>> find("quickstart").path.name
        'quickstart.yaml'
    """
    matches = [one for entry in entry_points.config_entries() if (one := _find_in(entry, name)) is not None]
    if len(matches) > 1:
        owners = " and ".join(f"{one.distribution} {one.version} ({one.path})" for one in matches)
        raise NameClash(f"The configuration {name!r} is shipped by {owners}. Name the file instead.")
    if matches:
        return matches[0]
    if Path(name).is_dir():
        files = sorted(path for path in Path(name).glob(f"*{_SUFFIX}") if path.is_file())
        raise BadInput(f"--config {name}: this is a folder and not a file.{_suggest(map(str, files))}")
    if (absent := listings.absent_supplier("configs", name)) is not None:
        raise BadInput(f"--config {name}: there is no such file. {listings.advice(absent)}")
    raise BadInput(
        f"--config {name}: there is no such file, and no installed configuration has that name."
        f"{_suggest(_near(name, list(configurations())))} `graphbench list configs` shows all."
    )


def _suggest(names: Iterable[str]) -> str:
    shown = list(itertools.islice(names, 3))
    return f" Did you mean {' or '.join(shown)}?" if shown else ""


def _near(name: str, names: Sequence[str]) -> Iterable[str]:
    """Return similar names, then those with the same last part."""
    short = name.removesuffix(_SUFFIX).casefold()
    same_end = [other for other in names if other.casefold().endswith(f"/{short.rpartition('/')[2]}")]
    return dict.fromkeys([*difflib.get_close_matches(short, names, n=3, cutoff=0.6), *same_end])


def resolve(value: str) -> Path:
    """Resolve `--config VALUE` to an existing file, or to the installed configuration of that name, see `find`.

    Raises:
        BadInput: there is neither, or both: a local file must not be mistaken for an installed configuration.
        NameClash: several distributions ship one.
    """
    path = Path(value)
    if not path.is_file():
        return find(value).path
    if any(_find_in(entry, value) is not None for entry in entry_points.config_entries()):
        raise BadInput(
            f"--config {value} is both an installed configuration and a file in this folder. For the file use "
            f"./{value}; for the configuration rename the file, or change to another folder."
        )
    return path


@dataclass(frozen=True)
class Facts:
    """Facts that a configuration states; "" if it does not state them.

    Args:
        kind: `recipe` (data, model and training), `overlay` (changes a recipe) or `part` (used with other options).
        over: the recipe that an overlay belongs to; "" if it fits several.
        benchmark: registered name.
        model: registered name.
        expected: score that a run should reach.
    """

    kind: str
    over: str
    benchmark: str
    model: str
    expected: Expected


def facts(configuration: Configuration, names: Iterable[str] = ()) -> Facts:
    """Read the facts of a configuration.

    `names` are all configurations, to find the one that an overlay belongs to: `sat/overlays/zinc-x2` to `sat/zinc`.
    """
    content = configuration.content()
    over = base_of(configuration.name, names) if configuration.is_overlay else ""
    kind = "overlay" if configuration.is_overlay else "recipe" if "data" in content else "part"
    model = content.get("model")
    return Facts(
        kind,
        over,
        class_name(content.get("data")),
        class_name(model.get("architecture") if isinstance(model, Mapping) else None),
        Expected.parse(content.get("expected"), str(configuration.path)),
    )


def base_of(name: str, names: Iterable[str]) -> str:
    """Find the recipe whose name is the start of an overlay's name; "" if it fits several.

    Examples:
        >>> base_of("sat/overlays/zinc-x2", ["sat/zinc", "sat/pattern", "graphormer/zinc"])
        'sat/zinc'
        >>> base_of("sat/overlays/fusion", ["sat/zinc"])
        ''
    """
    folder, _, last = name.rpartition(f"/{_OVERLAYS}/")
    fitting = [one for one in names if f"{folder}/{last}".startswith(f"{one}-") and f"/{_OVERLAYS}/" not in one]
    return max(fitting, key=len, default="")


def class_name(value: Any) -> str:
    """Return the class name in a configuration's value, which is a string or a mapping; "" if it names no class."""
    name = value.get("class_path") if isinstance(value, Mapping) else value
    return name.rpartition(".")[2] if isinstance(name, str) else ""
