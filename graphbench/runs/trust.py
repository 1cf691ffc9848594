"""What the configuration of a run may import.

A run that somebody sends names classes, and importing a class runs the code of its module. So a run may name what is
registered by an installed distribution, and what `ADMITTED` lists; anything else needs `--trust` (`trust=True` in
Python), once: the answer is kept beside the user's other settings, for this folder and these classes. What a fit was
told to import is kept in the same way, so that one's own runs are used again without a question.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.errors import BadInput
from graphbench.files.json_files import load_json
from graphbench.files.safe_yaml import load_yaml
from graphbench.files.writing import write_text
from graphbench.registry import plugins

#: Packages whose classes any run may name; subpackages are meant as well.
ADMITTED = (
    "graphbench",
    "graphbench.registry.expected",  # plain data that the configuration of every recipe names
    "lightning.pytorch.callbacks",
    "lightning.pytorch.loggers",
    "lightning.pytorch.profilers",
    "lightning.pytorch.strategies",
    "pytorch_lightning.callbacks",
    "pytorch_lightning.loggers",
    "pytorch_lightning.profilers",
    "pytorch_lightning.strategies",
    "torch.optim",
    "torchmetrics",
)
#: Parts of them that are no classes for configurations.
REFUSED = tuple(f"graphbench.{room}" for room in ("cli", "data", "experiments", "registry", "runs", "testing", "trust"))
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
#: What jsonargparse says of an import that it refuses.
_DENIED = re.compile(r"Importing '([\w.]+)' is not allowed")


@dataclass(frozen=True)
class Policy:
    """What may be imported for a configuration.

    Args:
        config: the file.
        paths: dotted paths that may be named beside `ADMITTED`.
        trust: whether everything may.
    """

    config: Path
    paths: frozenset[str] = frozenset()
    trust: bool = False

    @classmethod
    def of(cls, config: Path, trust: bool = False) -> Policy:
        """The policy for the configuration of a run: what is registered, and what was trusted in this folder before.

        Raises:
            BadInput: the file is no YAML mapping, or names a class that may not be imported.
        """
        named = _class_paths(_content(config))
        policy = cls(config, frozenset(_registered(named)) | frozenset(_remembered().get(_key(config), ())), trust)
        for path in named:
            policy.check(path)
        return policy

    @classmethod
    def naming(cls, file: Path, named: Iterable[str], *also: str) -> Policy:
        """The policy for what another file names, such as a checkpoint: what of it is registered, and `also`."""
        return cls(file, frozenset(_registered(named)) | frozenset(also))

    def admits(self, path: str) -> bool:
        """Whether a dotted path may be imported; the longest entry that covers it decides.

        Examples:
            >>> policy = Policy(Path("config.yaml"), frozenset({"mine.Model"}))
            >>> [policy.admits(path) for path in ("torch.optim.AdamW", "mine.Model", "mine.Other", "torch.load")]
            [True, True, False, False]
        """
        parts = path.split(".")
        covering = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        refused = max(map(len, covering & set(REFUSED)), default=0)
        return self.trust or path in self.paths or max(map(len, covering & set(ADMITTED)), default=0) > refused

    def check(self, path: str) -> None:
        """Refuse a dotted path that may not be imported; a name without a dot is one that is registered.

        Raises:
            BadInput: names the path and what to do.
        """
        if owner := plugins.absent_owner(path):
            raise BadInput(f"{self.config} names {path}. {plugins.advice(owner)}")
        if "." in path and not self.admits(path):
            raise BadInput(
                f"{self.config} names {path}, which is no registered class and not in the list of what a run may "
                "import; importing it runs its code. Where you know that code and want it, add --trust (in Python: "
                "trust=True)."
            )


def _content(config: Path) -> Any:
    try:
        content = load_yaml(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadInput(f"{config} cannot be read ({' '.join(str(error).split())}).") from error
    if not isinstance(content, dict):
        raise BadInput(f"{config} must hold a mapping such as 'model: ...', not {type(content).__name__}.")
    return content


#: A source of the benchmark `Graphs` that names a function, MODULE:NAME; a capital letter begins a data set of PyG.
_FUNCTION = re.compile(r"(?:[a-z_]\w*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+):[A-Za-z_][\w.]*")


def _class_paths(content: Any) -> list[str]:
    """Every text that a configuration gives as a `class_path`, and the function that a `source` names."""
    if isinstance(content, list):
        return [path for item in content for path in _class_paths(item)]
    if not isinstance(content, dict):
        return []
    own = [content["class_path"]] if isinstance(content.get("class_path"), str) else []
    if isinstance(source := content.get("source"), str) and _FUNCTION.fullmatch(source):
        own.append(source.replace(":", "."))
    return own + [path for item in content.values() for path in _class_paths(item)]


def _registered(named: Iterable[str]) -> Iterator[str]:
    """Paths of the registered classes whose names occur: where they are defined, and every package that may show them.

    A plug-in that is named is imported, as any plug-in is whose name stands in a configuration.
    """
    names = {path.rpartition(".")[2] for path in named}
    for group in registry.GROUPS:
        for name in names & registry.records(group).keys():
            record = registry.find(group, name)
            found = record.load()
            module = found.__module__.split(".")
            yield record.class_path
            yield from (f"{'.'.join(module[:length])}.{name}" for length in range(1, len(module) + 1))


# -- what was trusted before -----------------------------------------------------------------------------------------


def _memory() -> Path:
    """The user's file of what was trusted; the folder is that of the XDG specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "graphbench" / "trusted.json"


def _key(config: Path) -> str:
    return str(config.resolve())


def _remembered() -> dict[str, list[str]]:
    """Configuration -> dotted paths; empty where nothing is known."""
    try:
        found = load_json(_memory())
    except (OSError, ValueError, RuntimeError):  # no home directory
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        config: [path for path in paths if isinstance(path, str)]
        for config, paths in found.items()
        if isinstance(paths, list)
    }


def remember(config: Path) -> None:
    """Keep the classes that a run names as trusted in its folder: its fit was told to, or somebody said `--trust`.

    Nothing is written for a run that names admitted classes alone. Where nothing can be written, `--trust` is asked
    for again.
    """
    named = _class_paths(_content(config))
    policy = Policy(config, frozenset(_registered(named)))
    foreign = [path for path in dict.fromkeys(named) if "." in path and not policy.admits(path)]
    if not foreign:
        return
    known = {other: paths for other, paths in _remembered().items() if Path(other).is_file()}
    known[_key(config)] = sorted({*foreign, *(where for path in foreign for where in _defined(path))})
    with contextlib.suppress(OSError, RuntimeError):
        _memory().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(_memory(), json.dumps(known, indent=1) + "\n")


def _defined(path: str) -> Iterator[str]:
    """Where a class that is imported already is defined, if elsewhere than it is named."""
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    if isinstance(found, type):
        yield f"{found.__module__}.{found.__qualname__}"


# -- the import of what a parser is given ----------------------------------------------------------------------------

_current: ContextVar[Policy | None] = ContextVar("policy", default=None)


@contextlib.contextmanager
def command() -> Iterator[None]:
    """A command: the policy that `require` sets ends with it."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def require(policy: Policy) -> None:
    """From now on, until the command ends, parsers import what the policy admits."""
    _current.set(policy)


@contextlib.contextmanager
def enforced(policy: Policy | None = None) -> Iterator[None]:
    """Within the block jsonargparse imports what a policy admits: this one, or that of this command if it has one.

    It compares both the path that is named and the one where the object is defined, so `admitted.module.os.system` is
    refused, too; and callables as well as classes.

    Raises:
        BadInput: it met a path that is not admitted; names it.
    """
    from jsonargparse import set_parsing_settings
    from jsonargparse._common import parsing_settings  # there is no public way back to the former settings

    policy = policy or _current.get()
    if policy is None or policy.trust:
        yield
        if policy is not None:
            remember(policy.config)
        return
    names = ("import_path_verdicts", "import_paths_enforced")
    before = {name: parsing_settings[name] for name in names}
    set_parsing_settings(
        import_path_denylist=["*", *REFUSED],
        import_path_allowlist=[*ADMITTED, *(path for path in sorted(policy.paths) if _PATH.fullmatch(path))],
    )
    try:
        yield
    except Exception as error:
        if denied := _DENIED.search(str(error)):
            policy.check(denied[1])
        raise
    finally:
        parsing_settings.update(before)
