"""Find sources by name: functions, and data sets of PyG, the Open Graph Benchmark and graphbench-lib."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from graphbench.benchmarks.graphs.readers import ogb_sets, pyg_sets
from graphbench.benchmarks.graphs.readers.saved import load_saved
from graphbench.benchmarks.graphs.readers.third_party import Named
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, GraphbenchError
from graphbench.registry.importing import check, import_object

#: Environment variable with the folder of graphbench-lib, whose modules have the same name as this package.
LIBRARY = "GRAPHBENCH_LIB"
_LIBRARY_PREFIX = "graphbench-lib:"
#: Script for another Python process, which imports graphbench from graphbench-lib.
_EXPORT = """
import sys
library, root, name, output = sys.argv[1:]
sys.path.insert(0, library)
from graphbench import Loader
sets = Loader(root, name).load()
if len(sets) != 1:
    sys.exit(f"{name} names {len(sets)} data sets; name one of them")
import torch
from torch_geometric.data import Data
kept = (torch.Tensor, int, float, str)
plain = lambda graph: Data(**{k: v for k, v in graph.to_dict().items() if isinstance(v, kept)})
torch.save({split: [plain(graph) for graph in graphs] for split, graphs in sets[0].items()}, output)
"""


def find(source: str, arguments: Mapping[str, Any], root: Path) -> Named | None:
    """Find the source of that name; return None for a text that cannot be a name.

    Raises:
        UnknownName: there is no such class in PyG, or data set in OGB.
        BadInput: a function or an argument is wrong, or graphbench-lib is not installed.
    """
    if source.startswith(_LIBRARY_PREFIX):
        return _from_library(source, arguments, root)
    if source.startswith(tuple(ogb_sets.PREFIXES)):
        return ogb_sets.from_ogb(source, arguments, root)
    name, _, given = source.partition(":")
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    if "." not in name and name[:1].isupper():  # a class, not a module
        parsed = _parse_arguments(given)
        if twice := parsed.keys() & arguments.keys():
            raise BadInput(f"--data.source {source}: the argument {min(twice)!r} is also in data.arguments.")
        return pyg_sets.from_pyg(source, name, parsed | dict(arguments), root)
    return _from_function(source, name, given, arguments) if given else None


def _parse_arguments(given: str) -> dict[str, Any]:
    """Parse `MUTAG,use_node_attr=true` as `{"0": "MUTAG", "use_node_attr": True}`."""
    arguments: dict[str, Any] = {}
    for position, part in enumerate(part.strip() for part in given.split(",") if part.strip()):
        name, equals, value = part.partition("=")
        name = name.strip() if equals else str(position)
        if name in arguments:
            raise BadInput(f"--data.source: the argument {name!r} is given twice.")
        try:
            arguments[name] = yaml.safe_load(value if equals else part)
        except yaml.YAMLError as error:
            raise BadInput(f"--data.source: the argument {part!r} cannot be read.") from error
    return arguments


# -- functions -----------------------------------------------------------------------------------------------------


def _from_function(source: str, module: str, name: str, arguments: Mapping[str, Any]) -> Named:
    """Find a function of an importable module; it is called once, and its result identifies the content."""
    function = _import_function(source, module, name)

    @cache
    def load() -> Any:
        try:
            return function(**arguments)
        except GraphbenchError:
            raise
        except Exception as error:  # a user's function may raise anything
            raise BadInput(f"--data.source {source}: it failed with {type(error).__name__}: {error}") from error

    return Named(source, "function", load)


def _import_function(source: str, module: str, name: str) -> Callable[..., Any]:
    check(f"{module}.{name}", listed=False)  # it would be called with arguments from the configuration
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # unlike `python`, a console script does not put the working directory on the path
    try:
        loaded = import_object(module, name, listed=False)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"--data.source {source}: {error}. It must be MODULE:FUNCTION, importable from {here} or installed."
        ) from error
    if not callable(loaded):
        raise BadInput(
            f"--data.source {source}: this is a {type(loaded).__name__}, not a function that returns graphs."
        )
    return loaded  # type: ignore[no-any-return]


# -- graphbench-lib ------------------------------------------------------------------------------------------------


def _from_library(source: str, arguments: Mapping[str, Any], root: Path) -> Named:
    """Find a data set of graphbench-lib, which another Python process loads and saves as plain graphs."""
    name = source.removeprefix(_LIBRARY_PREFIX)
    check(source, listed=False)  # graphbench-lib unpickles files of `root`
    library = Path(os.environ.get(LIBRARY, ""))
    if not os.environ.get(LIBRARY) or not (library / "graphbench").is_dir():
        raise BadInput(
            f"--data.source {source} needs graphbench-lib in a separate folder, since its modules are called "
            f"graphbench like ours: pip install --target FOLDER graphbench-lib, then set {LIBRARY}=FOLDER."
        )
    if arguments or not re.fullmatch(r"[\w-]+", name):
        raise BadInput(f"--data.source {source}: graphbench-lib accepts one name of a data set, and no arguments.")
    output = root / "graphbench-lib" / f"{name}.pt"

    def export() -> Path:
        if not output.is_file():
            output.parent.mkdir(parents=True, exist_ok=True)
            part = output.with_name(f".{output.name}.{os.getpid()}")
            command = [sys.executable, "-I", "-c", _EXPORT, str(library.resolve()), str(output.parent), name, str(part)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                message = done.stderr.strip().splitlines()[-1:] or ["no message"]
                raise BadInput(f"--data.source {source}: graphbench-lib could not load it: {message[0]}")
            part.replace(output)
        return output

    # Use the content: the address of a data set of graphbench-lib has no version.
    key = lambda: {"set": name, "sha256": file_sha256(export())}  # noqa: E731
    return Named(source, "graphbench-lib", lambda: load_saved(export()), key, local=False)
