"""Find weights that installed distributions ship, by name, without importing the distributions.

A distribution declares them with an entry point, whose name can be used in `--model.init_from`:

    [project.entry-points."graphbench.weights"]
    molecules-base = "graphbench_weights:molecules-base.safetensors"   # a file in the package's folder `weights`

The folder is where `graphbench.registry.configurations` searches for configurations: in the package, or next to the
package or `src` in a clone.
"""

from __future__ import annotations

from pathlib import Path

from graphbench.errors import BrokenPlugin, NameClash, UnknownName
from graphbench.registry import entry_points, listings
from graphbench.registry.configurations import folder_of
from graphbench.registry.entry_points import ConfigEntry

_FOLDER = "weights"


def starting_weights() -> dict[str, tuple[ConfigEntry, ...]]:
    """Return the entry points of installed weights by name, sorted; several for one name if distributions clash."""
    by_name: dict[str, tuple[ConfigEntry, ...]] = {}
    for entry in entry_points.weight_entries():
        by_name[entry.prefix] = (*by_name.get(entry.prefix, ()), entry)
    return by_name


def find_weights(name: str) -> Path:
    """Find the file of weights by name.

    Raises:
        UnknownName: there are none of this name; suggests near matches, or the distribution to install.
        NameClash: several distributions ship weights of this name.
        BrokenPlugin: the distribution's file is missing.
    """
    every = starting_weights()
    matches = every.get(name, ())
    if len(matches) > 1:
        owners = " and ".join(f"{one.distribution} {one.version}" for one in matches)
        raise NameClash(f"The weights {name!r} are shipped by {owners}. Name the file instead, or uninstall one.")
    if not matches:
        owner = listings.absent_supplier("weights", name)
        raise UnknownName(
            "checkpoint, folder or installed weights", name, every, listings.advice(owner) if owner else ""
        )
    package, _, part = matches[0].target.partition(":")
    folder = folder_of(package, _FOLDER)
    if folder is None or not (folder / part).is_file():
        raise BrokenPlugin(
            f"The weights {name!r} of {matches[0].distribution} {matches[0].version} ({matches[0].target}) are "
            f"missing. Reinstall the distribution: pip install --force-reinstall --no-deps {matches[0].distribution}"
        )
    return folder / part
