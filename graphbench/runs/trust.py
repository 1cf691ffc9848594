"""What the configuration of a run may import.

A run that somebody sends names classes and functions, and importing one runs the code of its module. So a run may name
what is registered by an installed distribution, and what `ADMITTED` lists; anything else needs `--trust` (`trust=True`
in Python), once: the checksum of the configuration is kept beside the user's other settings, for its folder. That of a
run whose fit was told to import something else is kept in the same way, so that one's own runs are used again without a
question. What a command line names itself is its user's.

Nothing here reads a configuration to find names in it: `Policy` is asked where something is imported, by jsonargparse
(`enforced`) and by `graphbench.registry.importing`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.data.files.foreign import load_json, load_yaml
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.registry import importing, listings

#: Packages whose classes any run may name; subpackages are meant as well.
ADMITTED = (
    *(
        f"graphbench.{room}"
        for room in ("benchmarks", "callbacks", "contracts", "encodings", "nn", "tasks", "training")
    ),
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
#: Parts of them that load models of others, which score no graphs.
REFUSED = tuple(
    f"torchmetrics.{base}{part}" for base in ("", "functional.") for part in ("audio", "image", "multimodal", "text")
)
#: The keys of a mapping that stands for a class.
_OF_CLASS = frozenset({"class_path", "init_args", "dict_kwargs"})
#: Parts of a configuration whose keys are options.
_PARTS = (
    (), ("data",), ("data", "init_args"), ("model",), ("model", "architecture"), ("model", "architecture", "init_args"),
    ("trainer",),
)  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """What may be imported for a configuration.

    Args:
        config: the file.
        paths: dotted paths that may be named beside what is listed or registered.
        trust: whether everything may.
        keep: whether to keep that everything may, once it was of use.
        foreign: what was imported that is neither listed nor registered; filled as it happens.
        refusals: what was refused; filled as it happens.
    """

    config: Path
    paths: frozenset[str] = frozenset()
    trust: bool = False
    keep: bool = False
    foreign: set[str] = field(default_factory=set, compare=False)
    refusals: list[BadInput] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, config: Path, trust: bool = False, paths: frozenset[str] = frozenset()) -> Policy:
        """The policy for the configuration of a run: everything where it was trusted as it is, in this folder.

        Args:
            config: the file.
            trust: the user trusts it.
            paths: that the user's own command line names.

        Raises:
            BadInput: the file is no YAML mapping, or it is not trusted and names other files or writes options in
                another way than `fit` does.
        """
        text, content = _read(config)
        known = _remembered().get(_key(config)) == _digest(text)
        if not (trust or known):
            _check_form(config, content)
        return cls(config, paths, trust or known, keep=trust)

    def check(self, path: str, listed: bool = True, shown: str = "") -> None:
        """Refuse a dotted path that may not be imported.

        Args:
            path: as it is named, or where the object is defined.
            listed: whether what is registered and `ADMITTED` is enough.
            shown: what to call it in the message.

        Raises:
            BadInput: names the path and what to do.

        Examples:
            >>> policy = Policy(Path("config.yaml"), frozenset({"mine.Model"}))
            >>> for path in ("torch.optim.AdamW", "mine.Model", "torch.load"):
            ...     policy.check(path)
            Traceback (most recent call last):
            graphbench.errors.BadInput: config.yaml names torch.load, which is no registered class and not in the list \
of what a run may import; importing it runs its code. Where you know that code and want it, add --trust (in Python: \
trust=True).
        """
        if listed and (_is_listed(path) or _is_registered(path)):
            return
        if self.config != Path() and (owner := listings.absent_owner(path)):
            self.refusals.append(BadInput(f"{self.config} names {path}. {listings.advice(owner)}"))
            raise self.refusals[-1]
        self.foreign.add(path)
        if self.trust or path in self.paths or any(path in _definitions(named) for named in self.paths):
            return
        self.refusals.append(
            BadInput(
                f"{self.config} names {shown or path}, which is no registered class and not in the list of what a run "
                "may import; importing it runs its code. Where you know that code and want it, add --trust (in Python: "
                "trust=True)."
            )
        )
        raise self.refusals[-1]


def _is_listed(path: str) -> bool:
    """Whether `ADMITTED` covers a path; the longest entry that covers it decides."""
    parts = path.split(".")
    covering = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((entry in ADMITTED for entry in covering if entry in ADMITTED or entry in REFUSED), False)


def _is_registered(path: str) -> bool:
    """Whether a path leads to a registered class: where it is registered, defined, or shown by a package around it.

    A plug-in that is named is imported, as any plug-in is whose name stands in a configuration.
    """
    package, _, name = path.rpartition(".")
    for group in registry.GROUPS:
        record = registry.records(group).get(name)
        if record is None or record.target.partition(":")[0].partition(".")[0] != path.partition(".")[0]:
            continue
        if path == record.class_path or f"{record.load().__module__}.".startswith(f"{package}."):
            return True
    return False


def _definitions(path: str) -> Iterator[str]:
    """Where an object that is imported already is defined, if elsewhere than it is named."""
    module, _, name = path.rpartition(".")
    found: Any = getattr(sys.modules.get(module), name, None)
    if hasattr(found, "__qualname__"):
        yield f"{found.__module__}.{found.__qualname__}"


# -- the file --------------------------------------------------------------------------------------------------------


def _read(config: Path) -> tuple[bytes, dict[str, Any]]:
    try:
        raw = config.read_bytes()
        content = load_yaml(raw.decode("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadInput(f"{config} cannot be read ({' '.join(str(error).split())}).") from error
    if not isinstance(content, dict):
        raise BadInput(f"{config} must hold a mapping such as 'model: ...', not {type(content).__name__}.")
    return raw, content


def _check_form(config: Path, content: Mapping[str, Any]) -> None:
    """Refuse spellings that `fit` never writes: what reads a run otherwise than the parser would see another run.

    Raises:
        BadInput: names the place.
    """
    advice = "add --trust (in Python: trust=True) where you know this file, or write it as `graphbench fit` does."
    for part in _PARTS:
        value: Any = content
        for key in part:
            value = value.get(key) if isinstance(value, Mapping) else None
        place = ".".join(part)
        if isinstance(value, str) and part != () and not _is_class(config, part, value):
            raise BadInput(f"{config}: {place} is {value!r}, another file or a text, and no mapping; {advice}")
        for key in value if isinstance(value, Mapping) else ():
            if not (isinstance(key, str) and key.isidentifier()) or (part == () and key == "config"):
                raise BadInput(f"{config}: the key {key!r}{f' of {place}' * bool(place)} is no option; {advice}")
    for place, found in _classes(content, ""):
        if not found.keys() <= _OF_CLASS or not isinstance(found.get("init_args") or {}, Mapping):
            raise BadInput(f"{config}: {place} must hold class_path and a mapping init_args alone; {advice}")


def _is_class(config: Path, part: Sequence[str], text: str) -> bool:
    """Whether a part is the name of a class in place of a mapping, and not of a file."""
    name = all(piece.isidentifier() for piece in text.split("."))
    return (
        part[-1] in ("data", "architecture")
        and name
        and not Path(text).exists()
        and not (config.parent / text).exists()
    )


def _classes(content: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping that stands for a class, and where."""
    if isinstance(content, Mapping):
        if isinstance(content.get("class_path"), str):
            yield place, content
        for key, value in content.items():
            yield from _classes(value, f"{place}.{key}" if place else str(key))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _classes(value, f"{place}[{number}]")


# -- what a user names -----------------------------------------------------------------------------------------------


def named_in(words: Sequence[str]) -> frozenset[str]:
    """Dotted paths that a command line names, by itself or in files of its own: they are its user's.

    What is a file or folder is no name of a class, so that the name of a folder that was sent admits nothing.

    Examples:
        >>> sorted(named_in(["--data.source", "mine:load", "--trainer.callbacks+=mine.Watch", "--x", "0.1"]))
        ['mine.Watch', 'mine.load', 'mine:load']
    """
    found: set[str] = set()
    for word in words:
        text = word.partition("=")[2] if word.startswith("-") else word
        content: Any = text
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError):  # told by the parser, with the option
            if Path(text).is_file() and Path(text).suffix in (".yaml", ".yml", ".json"):
                content = load_yaml(Path(text).read_text(encoding="utf-8"))
            elif text.startswith(("{", "[")):
                content = load_yaml(text)
        found.update(path for piece in _texts(content) for path in _paths_in(piece))
    return frozenset(found)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, (Mapping, list)):
        for value in content.values() if isinstance(content, Mapping) else content:
            yield from _texts(value)


def _paths_in(text: str) -> Iterator[str]:
    """What a text may name: a class, MODULE:FUNCTION, or a data set of PyG or others, arguments behind a colon."""
    name, colon, given = text.partition(":")
    if os.path.lexists(text):
        return
    if colon:
        yield text
    if all(piece.isidentifier() for piece in name.split(".")):
        if "." in name or colon:
            yield f"{name}.{given}" if colon else name
        if "." not in name and name[:1].isupper():
            yield f"torch_geometric.datasets.{name}"


# -- what was trusted before -----------------------------------------------------------------------------------------


def _memory() -> Path:
    """The user's file of what was trusted; the folder is that of the XDG specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "graphbench" / "trusted.json"


def _key(config: Path) -> str:
    return str(config.resolve())


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _remembered() -> dict[str, str]:
    """Configuration -> its SHA-256 when it was trusted; empty where nothing is known."""
    try:
        found = load_json(_memory())
    except (OSError, ValueError, RuntimeError):  # no home directory
        return {}
    if not isinstance(found, dict):
        return {}
    return {config: checksum for config, checksum in found.items() if isinstance(checksum, str)}


def remember(config: Path) -> None:
    """Keep that a configuration is trusted as it is: its fit was told what is in it, or somebody said `--trust`.

    Nothing is written where this command imported admitted classes alone. Where nothing can be written, `--trust` is
    asked for again.
    """
    policy = importing.current_gate()
    if not isinstance(policy, Policy) or not policy.foreign:
        return
    known = {other: checksum for other, checksum in _remembered().items() if Path(other).is_file()}
    with contextlib.suppress(OSError, RuntimeError):
        known[_key(config)] = _digest(config.read_bytes())
        _memory().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(_memory(), json.dumps(known, indent=1) + "\n")


# -- the import of what a parser is given ----------------------------------------------------------------------------

#: jsonargparse has one setting for the process; two threads that load models wait for each other.
_SETTING = threading.RLock()


@contextlib.contextmanager
def command() -> Iterator[None]:
    """A command of one's own: everything may be imported, and what is foreign is noted; `require` changes that."""
    with importing.limited_to(Policy(Path(), trust=True)):
        yield


def require(policy: Policy) -> None:
    """From now on, until the command ends, only what the policy admits is imported by name."""
    importing.set_gate(policy)


class _Verdicts(dict[str, bool]):
    """The list of jsonargparse, which asks for the whole path first: a policy answers. Read as a list it denies all."""

    def __init__(self, policy: Policy) -> None:
        super().__init__({"*": False})
        self._policy = policy

    def __contains__(self, path: object) -> bool:
        return True

    def __getitem__(self, path: str) -> bool:
        try:
            self._policy.check(path)
        except BadInput:
            return False
        return True


@contextlib.contextmanager
def enforced(policy: Policy | None = None) -> Iterator[None]:
    """Within the block jsonargparse imports what a policy admits: this one, or that of this command if it has one.

    It compares both the path that is named and the one where the object is defined, so `admitted.module.os.system` is
    refused, too; and callables as well as classes.

    Raises:
        BadInput: a path is not admitted; names it.
    """
    from jsonargparse._common import parsing_settings  # public functions only add to the settings

    current = importing.current_gate()
    policy = policy or (current if isinstance(current, Policy) else None)
    if policy is None:
        yield
        return
    with _SETTING, importing.limited_to(policy):
        names = ("import_path_verdicts", "import_paths_enforced")
        before = {name: parsing_settings[name] for name in names}
        parsing_settings.update(import_path_verdicts=_Verdicts(policy), import_paths_enforced=True)
        try:
            yield
        except Exception as error:
            if policy.refusals and error is not policy.refusals[0]:
                raise policy.refusals[0] from error
            raise
        finally:
            parsing_settings.update(before)
        if policy.keep:
            remember(policy.config)
