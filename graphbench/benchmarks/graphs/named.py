"""Sources by name: functions, data sets of PyG, of the Open Graph Benchmark, and of graphbench-lib."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from torch.serialization import safe_globals

from graphbench.benchmarks.graphs.plain_pickles import plain_pickles
from graphbench.benchmarks.graphs.saved import PARTS_OF_DATA, load_saved
from graphbench.contracts import SPLITS
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, GraphbenchError, MissingData, UnknownName

#: Where graphbench-lib is installed; its modules have the name of ours.
LIBRARY = "GRAPHBENCH_LIB"
_LIBRARY_PREFIX, _OGB_PREFIX = "graphbench-lib:", "ogbg-"
#: Defaults of an option `split` of PyG's classes that names one of the splits; others say how nodes are split.
_BY_SPLIT = (None, "train", "trainval")
_OGB_METRICS = {"rocauc": "AUROC", "ap": "AP", "rmse": "RMSE", "acc": "accuracy"}
_OGB_TASKS = {
    "binary classification": "graph-multilabel",
    "multiclass classification": "graph-classification",
    "regression": "graph-regression",
}
#: Run by another Python, in which the name graphbench is graphbench-lib's.
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


@dataclass(frozen=True)
class Named:
    """A source that is named.

    Args:
        name: as the user gave it.
        kind: of source.
        load: makes the graphs.
        key: JSON values that name the content; nothing where only the content itself can tell.
        splits: rows of each split where the set publishes them; none otherwise.
        hints: what is known of the task.
        local: whether it needs no network.
    """

    name: str
    kind: str
    load: Callable[[], Any]
    key: Callable[[], dict[str, Any]] = dict
    splits: Callable[[], dict[str, np.ndarray] | None] = lambda: None
    hints: dict[str, str] = field(default_factory=dict)
    local: bool = True


def find(source: str, arguments: Mapping[str, Any], root: Path) -> Named | None:
    """What the name means; None where it is no name at all.

    Raises:
        UnknownName: no class of PyG, no set of OGB has that name, though it looks like one.
        BadInput: a function or an argument is wrong; graphbench-lib is not installed.
    """
    if source.startswith(_LIBRARY_PREFIX):
        return _from_library(source, arguments, root)
    if source.startswith(_OGB_PREFIX):
        return _from_ogb(source, arguments, root)
    name, _, given = source.partition(":")
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    if "." not in name and name[:1].isupper():  # never a module: a run that somebody sends may name these
        return _from_pyg(source, name, _parsed(given) | dict(arguments), root)
    return _from_function(source, name, given, arguments) if given else None


def _parsed(given: str) -> dict[str, Any]:
    """`MUTAG,use_node_attr=true` as `{"": "MUTAG", "use_node_attr": True}`; what has no name has a number instead.

    Raises:
        BadInput: a value cannot be read.
    """
    found: dict[str, Any] = {}
    for position, part in enumerate(part.strip() for part in given.split(",") if part.strip()):
        name, equals, value = part.partition("=")
        try:
            found[name.strip() if equals else str(position)] = yaml.safe_load(value if equals else part)
        except yaml.YAMLError as error:
            raise BadInput(f"--data.source: the argument {part!r} cannot be read.") from error
    return found


# -- functions -----------------------------------------------------------------------------------------------------


def _from_function(source: str, module: str, name: str, arguments: Mapping[str, Any]) -> Named:
    """A function of an importable module; it is called once, and its result is its checksum."""
    function = _imported(source, module, name)

    @cache
    def load() -> Any:
        try:
            return function(**arguments)
        except GraphbenchError:
            raise
        except Exception as error:  # a user's function can fail in any way
            raise BadInput(f"--data.source {source}: it failed with {type(error).__name__}: {error}") from error

    return Named(source, "function", load)


def _imported(source: str, module: str, name: str) -> Callable[..., Any]:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # the command does not begin in the folder of a script, as Python itself would
    try:
        loaded: Any = importlib.import_module(module)
        for part in name.split("."):
            loaded = getattr(loaded, part)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"--data.source {source}: {error}. It must be MODULE:FUNCTION, importable from {here} or installed."
        ) from error
    if not callable(loaded):
        raise BadInput(
            f"--data.source {source}: this is a {type(loaded).__name__}, not a function that returns graphs."
        )
    return loaded  # type: ignore[no-any-return]


# -- PyG -----------------------------------------------------------------------------------------------------------


def _is_pyg(name: str) -> bool:
    import torch_geometric.datasets

    return name in torch_geometric.datasets.__all__


def _from_pyg(source: str, name: str, arguments: dict[str, Any], root: Path) -> Named:
    """A class of `torch_geometric.datasets`; its published splits where it has an option `split` that names them."""
    import torch_geometric.datasets

    if not _is_pyg(name):
        raise UnknownName("data set of PyG", name, torch_geometric.datasets.__all__)
    cls = getattr(torch_geometric.datasets, name)
    options = inspect.signature(cls.__init__).parameters
    positional = [option for option in options if option not in ("self", "root")]
    for key in [key for key in arguments if key.isdecimal()]:
        if int(key) >= len(positional):
            raise BadInput(f"--data.source {source}: {name} takes {', '.join(positional)}.")
        arguments.setdefault(positional[int(key)], arguments.pop(key))
    for key in arguments:
        if key not in positional and not any(p.kind is p.VAR_KEYWORD for p in options.values()):
            raise UnknownName(f"argument of {name}", key, positional)
    folder = root / name
    fixed = {"root": str(folder)} if "root" in options else {}

    @cache
    def load() -> Any:
        if "split" not in options or "split" in arguments or options["split"].default not in _BY_SPLIT:
            return list(_made(source, folder, lambda: cls(**fixed, **arguments)))
        make = lambda split: cls(**fixed, **arguments, split=split)  # noqa: E731
        return {split: list(_made(source, folder, lambda split=split: make(split))) for split in SPLITS}  # type: ignore[misc]

    def known_by() -> dict[str, Any]:
        if not fixed:
            return {}
        inner = next((folder / value for value in arguments.values() if isinstance(value, str) and value), folder)
        base = inner if inner.is_dir() else folder
        if not _raw_files(base):
            load()  # fetches them
            base = inner if inner.is_dir() else folder
        known = {"class": name, "arguments": {k: str(v) for k, v in arguments.items()}}
        return known | {"version": importlib.import_module("torch_geometric").__version__, "raw": _raw_key(base)}

    return Named(source, "pyg", load, known_by, local="root" not in options)


def _raw_files(base: Path) -> list[Path]:
    """Published files below the folder of a data set: those in its folders `raw`, `raw_cleaned`, ..."""
    return sorted(
        file for folder in base.rglob("raw*") if folder.is_dir() for file in folder.rglob("*") if file.is_file()
    )


def _raw_key(base: Path) -> dict[str, str]:
    return {file.relative_to(base).as_posix(): file_sha256(file) for file in _raw_files(base)}


def _made(source: str, folder: Path, make: Callable[[], Any]) -> Any:
    """A data set of another package, made without its prints, its effect on random numbers, or pickles of its files.

    Raises:
        MissingData: its files could not be fetched.
        BadInput: it could not be made for another reason.
    """
    try:
        with _quietly():
            return make()
    except (OSError, ConnectionError) as error:
        raise MissingData(
            f"--data.source {source}: its files are not in {folder} and could not be fetched "
            f"({type(error).__name__}: {error}). Without a network put the published ones into a folder raw there, as "
            "the package does itself."
        ) from error
    except (Exception, SystemExit) as error:  # foreign code can fail in any way
        if type(error).__module__.partition(".")[0] in ("aiohttp", "requests", "urllib3", "fsspec"):
            raise MissingData(
                f"--data.source {source}: its files are not in {folder} and could not be fetched "
                f"({type(error).__name__}: {error})."
            ) from error
        raise BadInput(f"--data.source {source} could not be made: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Prints go to standard error, pickles that hold code are refused, and random numbers are the same every time."""
    forced = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before, states = os.environ.get(forced), (random.getstate(), np.random.get_state())
    os.environ[forced] = "1"
    try:
        with (
            torch.random.fork_rng(devices=[]),
            contextlib.redirect_stdout(sys.stderr),
            safe_globals(PARTS_OF_DATA),
            plain_pickles(),
        ):
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if before is None:
            del os.environ[forced]
        else:
            os.environ[forced] = before


# -- OGB -----------------------------------------------------------------------------------------------------------


def _from_ogb(source: str, arguments: Mapping[str, Any], root: Path) -> Named:
    """A set of `ogb.graphproppred` with its published split and metric."""
    import ogb.graphproppred

    published = pd.read_csv(
        Path(ogb.graphproppred.__file__).with_name("master.csv"), index_col=0, keep_default_na=False
    )
    if source not in published:
        raise UnknownName("graph-property set of OGB", source, map(str, published))
    if arguments:
        raise BadInput(f"arguments: {source} takes none.")
    about = {str(key): str(value) for key, value in published[source].items()}
    if about["task type"] not in _OGB_TASKS:
        raise BadInput(f"--data.source {source}: no task does {about['task type']}.")
    folder = root / source.replace("-", "_")
    release = folder / f"RELEASE_v{about['version']}.txt"
    if folder.is_dir() and not release.is_file():
        raise BadInput(
            f"--data.source {source}: {release} is missing, so {folder} is another release. Remove that folder."
        )

    @cache
    def dataset() -> Any:
        return _made(source, folder, lambda: ogb.graphproppred.PygGraphPropPredDataset(source, str(root)))

    def splits() -> dict[str, np.ndarray]:
        found = _made(source, folder, dataset().get_idx_split)
        return {split: np.asarray(found["valid" if split == "val" else split], dtype=np.int64) for split in SPLITS}

    def key() -> dict[str, Any]:
        if not _raw_files(folder):
            dataset()
        return {"set": source, "address": about["url"], "raw": _raw_key(folder)}

    hints = {"task": _OGB_TASKS[about["task type"]], "metric": _OGB_METRICS[about["eval metric"]]}
    return Named(source, "ogb", lambda: list(dataset()), key, splits, hints, local=False)


# -- graphbench-lib ------------------------------------------------------------------------------------------------


def _from_library(source: str, arguments: Mapping[str, Any], root: Path) -> Named:
    """A set of graphbench-lib, loaded by a Python of its own and kept as plain graphs."""
    name = source.removeprefix(_LIBRARY_PREFIX)
    library = Path(os.environ.get(LIBRARY, ""))
    if not os.environ.get(LIBRARY) or not (library / "graphbench").is_dir():
        raise BadInput(
            f"--data.source {source} needs graphbench-lib in a folder of its own, since its modules are called "
            f"graphbench like ours: pip install --target FOLDER graphbench-lib, then set {LIBRARY}=FOLDER."
        )
    if arguments or not re.fullmatch(r"[\w-]+", name):
        raise BadInput(f"--data.source {source}: graphbench-lib takes one name of a data set, and no arguments.")
    output = root / "graphbench-lib" / f"{name}.pt"

    def export() -> Path:
        if not output.is_file():
            output.parent.mkdir(parents=True, exist_ok=True)
            part = output.with_name(f".{output.name}.{os.getpid()}")
            command = [sys.executable, "-I", "-c", _EXPORT, str(library.resolve()), str(output.parent), name, str(part)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                told = done.stderr.strip().splitlines()[-1:] or ["no message"]
                raise BadInput(f"--data.source {source}: graphbench-lib could not load it: {told[0]}")
            part.replace(output)
        return output

    key = lambda: {"set": name, "sha256": file_sha256(export())}  # noqa: E731
    return Named(source, "graphbench-lib", lambda: load_saved(export()), key, local=False)
