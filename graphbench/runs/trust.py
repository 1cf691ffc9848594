"""Restrict the imports that a run's configuration may cause.

A run sent by someone else names classes and functions, and importing one runs the code of its module. So a run may name
objects that an installed distribution registers or that `ADMITTED` lists. Anything else needs `--trust` (`trust=True`
in Python) once: the checksum of the configuration is stored for its folder, in the user's state directory. A fit stores
the checksum of its run in the same way, so a user's own runs need no `--trust`. Names on a command line come from the
user, and are trusted.

A configuration is not searched for names: `Policy` decides at the import, for jsonargparse (`enforced`) and for
`graphbench.registry.importing`.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.data.files.foreign import load_json, load_yaml
from graphbench.data.files.nested import texts_in
from graphbench.data.files.sharing import plain_lock
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.registry import importing, listings

_ROOMS = ("benchmarks", "callbacks", "contracts", "encodings", "nn", "tasks", "training")
_OF_LIGHTNING = ("callbacks", "loggers", "profilers", "strategies")
#: Packages whose classes any run may name, subpackages included.
ADMITTED = (
    *(f"graphbench.{room}" for room in _ROOMS),
    "graphbench.registry.expected",  # plain data that every recipe's configuration names
    *(f"{package}.{part}" for package in ("lightning.pytorch", "pytorch_lightning") for part in _OF_LIGHTNING),
    "torch.optim",
    "torchmetrics",
)
#: Parts of these packages that load third-party models, none of which scores graphs.
REFUSED = tuple(
    f"torchmetrics.{base}{part}" for base in ("", "functional.") for part in ("audio", "image", "multimodal", "text")
)
#: Keys of a mapping that represents a class.
_CLASS_KEYS = frozenset({"class_path", "init_args", "dict_kwargs"})
#: Seconds to wait for other processes that store the trust in their configurations.
_PATIENCE = 60.0
#: jsonargparse has one setting per process, so threads that load models must take turns.
_SETTING = threading.RLock()
#: Keys of mappings of options in a configuration.
_MAPPINGS = (
    (), ("data",), ("data", "init_args"), ("model",), ("model", "architecture"), ("model", "architecture", "init_args"),
    ("trainer",),
)  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """Imports that are admitted for a configuration.

    Args:
        config: the file.
        paths: admitted dotted paths that are neither listed nor registered.
        trust: whether everything is admitted.
        keep: whether to store the trust, if it was needed.
        foreign: paths imported during the command that are neither listed nor registered.
        refusals: errors of the paths refused during the command.
    """

    config: Path
    paths: frozenset[str] = frozenset()
    trust: bool = False
    keep: bool = False
    foreign: set[str] = field(default_factory=set, compare=False)
    refusals: list[BadInput] = field(default_factory=list, compare=False)
    _file: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Absolute, since jsonargparse changes to the folder of a configuration while reading it.
        object.__setattr__(self, "_file", self.config.absolute())

    @classmethod
    def of(
        cls, config: Path, trust: bool = False, paths: frozenset[str] = frozenset(), remembered: bool = True
    ) -> Policy:
        """Create the policy for a run's configuration, which admits everything if its checksum is stored.

        `paths` are dotted paths on the user's command line; a stored checksum counts if `remembered`.

        Raises:
            BadInput: the file is not a YAML mapping, or, without `trust`, names other files or has a form that `fit`
                does not write.
        """
        raw, content = _read(config)
        trusted = remembered and _stored_checksums().get(str(config.resolve())) == hashlib.sha256(raw).hexdigest()
        if not trust:  # the checksum does not cover other files that it names
            _check_form(config, content)
        return cls(config, paths, trust or trusted, keep=trust)

    def check(self, path: str, listed: bool = True, shown: str = "") -> None:
        """Refuse a dotted path that is not admitted.

        Args:
            path: as named, or that of the object's definition.
            listed: whether to admit `ADMITTED` and registered classes.
            shown: path for the message, `path` by default.

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
        # `Path()` is the command line, whose words come from the user.
        if self.config != Path() and (owner := listings.absent_owner(path)):
            self.refusals.append(BadInput(f"{self.config} names {path}. {listings.advice(owner)}"))
            raise self.refusals[-1]
        self.foreign.add(path)
        if self.trust or path in self.paths or any(path == _definition(named) for named in self.paths):
            return
        text = shown or path
        text = text if text.isprintable() else repr(text)
        refusal = BadInput(
            f"{self.config} names {text}, which is no registered class and not in the list of what a run may import; "
            f"importing it runs its code.{self._missing_plugin(path)}{self._other_classes(path)} Where you know that "
            "code and want it, add --trust (in Python: trust=True)."
        )
        self.refusals.append(refusal)  # jsonargparse turns it into an error of its own, see `enforced`
        raise refusal

    def _missing_plugin(self, path: str) -> str:
        """Name the plug-in that has the class according to the run's environment, if it is not installed here."""
        package = path.partition(".")[0]
        with contextlib.suppress(OSError, ValueError, AttributeError, KeyError):  # it may be damaged or missing
            for name, version in load_json(self._file.with_name("environment.json"))["packages"].items():
                made_with = f"{name} {version}"
                if name.replace("-", "_") == package and made_with.isprintable() and not find_spec(package):
                    return f" The run was made with {made_with}, which is not installed here."
        return ""

    def _other_classes(self, path: str) -> str:
        """Name the other classes that --trust would import."""
        is_yaml = self._file.suffix in (".yaml", ".yml") and self._file.is_file()  # not a checkpoint
        classes = _classes(_read(self._file)[1], "") if is_yaml else ()
        named = sorted({entry["class_path"] for _, entry in classes} - {path})
        others = [repr(one) for one in named if "." in one and not (_is_listed(one) or _is_registered(one))]
        return f" So would be {', '.join(others)}." if others else ""


def _is_listed(path: str) -> bool:
    """Return whether `ADMITTED` covers a path more closely than `REFUSED`."""
    parts = path.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((prefix in ADMITTED for prefix in prefixes if prefix in ADMITTED or prefix in REFUSED), False)


def _is_registered(path: str) -> bool:
    """Return whether a path refers to a registered class, as registered, as defined, or through a parent package.

    Imports the plug-in that registers the class.
    """
    package, _, name = path.rpartition(".")
    for group in registry.GROUPS:
        record = registry.records(group).get(name)
        if record is None or record.target.partition(":")[0].partition(".")[0] != path.partition(".")[0]:
            continue
        if path == record.class_path or f"{record.load().__module__}.".startswith(f"{package}."):
            return True
    return False


def _definition(path: str) -> str | None:
    """Return the path of the definition of an imported object; None if it is not imported."""
    module, _, name = path.rpartition(".")
    loaded: Any = getattr(sys.modules.get(module), name, None)
    return f"{loaded.__module__}.{loaded.__qualname__}" if hasattr(loaded, "__qualname__") else None


def _read(config: Path) -> tuple[bytes, dict[str, Any]]:
    try:
        raw = config.read_bytes()
        content = load_yaml(raw.decode("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadInput(f"{config} cannot be read ({' '.join(str(error).split())}).") from error
    if not isinstance(content, dict):
        raise BadInput(f"{config} must be a mapping such as 'model: ...', not {type(content).__name__}.")
    return raw, content


def _check_form(config: Path, content: Mapping[str, Any]) -> None:
    """Refuse forms that `fit` never writes, which other readers of a run might read differently than the parser."""
    advice = "add --trust (in Python: trust=True) if you know this file, or write it as `graphbench fit` does."
    for part in _MAPPINGS:
        value: Any = content
        for key in part:
            value = value.get(key) if isinstance(value, Mapping) else None
        place = ".".join(part)
        if isinstance(value, str) and part != () and not _is_class(config, part, value):
            raise BadInput(f"{config}: {place} is {value!r}, another file or a text, not a mapping; {advice}")
        for key in value if isinstance(value, Mapping) else ():
            if not (isinstance(key, str) and key.isidentifier()) or (part == () and key == "config"):
                raise BadInput(f"{config}: the key {key!r}{f' of {place}' * bool(place)} is not an option; {advice}")
    for place, entry in _classes(content, ""):
        if not entry.keys() <= _CLASS_KEYS or not isinstance(entry.get("init_args") or {}, Mapping):
            raise BadInput(f"{config}: {place} must contain only class_path and a mapping init_args; {advice}")


def _is_class(config: Path, part: Sequence[str], text: str) -> bool:
    """Return whether a text in place of a mapping names a class, not a file."""
    named = part[-1] in ("data", "architecture") and all(piece.isidentifier() for piece in text.split("."))
    return named and not Path(text).exists() and not (config.parent / text).exists()


def _classes(content: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping that represents a class, with its place."""
    if isinstance(content, Mapping):
        if isinstance(content.get("class_path"), str):
            yield place, content
        for key, value in content.items():
            yield from _classes(value, f"{place}.{key}" if place else str(key))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _classes(value, f"{place}[{number}]")


def named_in(words: Sequence[str]) -> frozenset[str]:
    """Return the dotted paths that a command line names, directly or in its files.

    Names of existing files and folders are not paths of classes, so a folder's name admits nothing.

    Examples:
        >>> sorted(named_in(["--data.source", "mine:load", "--trainer.callbacks+=mine.Watch", "--x", "0.1"]))
        ['mine.Watch', 'mine.load', 'mine:load']
    """
    paths: set[str] = set()
    for word in words:
        text = word.partition("=")[2] if word.startswith("-") else word
        content: Any = text
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError):  # the parser reports it, with the option
            if Path(text).is_file() and Path(text).suffix in (".yaml", ".yml", ".json"):
                content = load_yaml(Path(text).read_text(encoding="utf-8"))
            elif text.startswith(("{", "[")):
                content = load_yaml(text)
        paths.update(path for piece in texts_in(content) for path in _paths_in(piece))
    return frozenset(paths)


def _paths_in(text: str) -> Iterator[str]:
    """Yield the dotted paths that a text may mean: a class, MODULE:FUNCTION, or a data set of PyG."""
    name, colon, rest = text.partition(":")
    if os.path.lexists(text):
        return
    if colon:
        yield text
    if all(piece.isidentifier() for piece in name.split(".")):
        if "." in name or colon:
            yield f"{name}.{rest}" if colon else name
        if "." not in name and name[:1].isupper():
            yield f"torch_geometric.datasets.{name}"


def _trust_file() -> Path:
    """Return the user's file of trusted configurations, in the folder of the XDG specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "graphbench" / "trusted.json"


def _stored_checksums() -> dict[str, str]:
    """Return the SHA-256 of each trusted configuration."""
    try:
        content = load_json(_trust_file())
    except (OSError, ValueError, RuntimeError):  # RuntimeError: no home directory
        return {}
    if not isinstance(content, dict):
        return {}
    return {config: checksum for config, checksum in content.items() if isinstance(checksum, str)}


def remember(config: Path) -> None:
    """Store the checksum of a configuration as trusted, if this command imported anything not admitted.

    Without a writable state directory, `--trust` is needed again.
    """
    policy = importing.current_gate()
    if not isinstance(policy, Policy) or not policy.foreign:
        return
    with contextlib.suppress(OSError, RuntimeError):
        checksum = hashlib.sha256(config.read_bytes()).hexdigest()
        _trust_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone():
            checksums = {other: stored for other, stored in _stored_checksums().items() if Path(other).is_file()}
            write_text(_trust_file(), json.dumps(checksums | {str(config.resolve()): checksum}, indent=1) + "\n")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes from writing the user's file: the fits of a sweep start together, and add a line each."""
    lock = plain_lock(_trust_file().with_name(".trusted.lock"))
    with contextlib.suppress(NotImplementedError, OSError):  # a file system without locks, or one that hangs
        lock.acquire(timeout=_PATIENCE)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def admitting_all() -> Iterator[None]:
    """Admit all imports within a command, and record foreign ones; `restrict_to` restricts them."""
    with importing.limited_to(Policy(Path(), trust=True)):
        yield


def restrict_to(policy: Policy) -> None:
    """Restrict imports by name to those that the policy admits, until the command ends."""
    importing.set_gate(policy)


class _Verdicts(dict[str, bool]):
    """Verdicts of a policy, replacing jsonargparse's dictionary, which looks up whole paths; "*" denies all."""

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
    """Restrict jsonargparse's imports in the block to those that a policy admits, by default that of the command.

    jsonargparse checks classes and callables by their path in the configuration and by that of their definition, so
    that `admitted.module.os.system` is refused.
    """
    from jsonargparse._common import parsing_settings  # public functions can only add to the settings

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
