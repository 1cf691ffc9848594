"""Compiled kernels on disk: one file per kernel and signature, in a folder that only this user can write to.

It replaces Numba's own cache, which stores an index next to its data and writes it first: if the disk is full or the
process is killed between the two, or if two processes compile at once, the index refers to code of a different source
or signature. Here the name of a file is a hash of everything that determines the machine code. A file is written under
a temporary name and renamed, and contains its key and a checksum, which are compared before anything in it is used. So
no lock is needed: two processes that compile the same kernel write the same file one after the other.

A file is a pickle with machine code, which runs with your rights. The folder is therefore opened once for each access,
must belong to this user and be closed to all others (mode 700), and files are opened relative to the checked folder. If
it cannot be used, or written to, each process compiles and warns once.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
import os
import pickle
import platform
import stat
import sys
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

__all__ = ["VARIABLE", "DiskCache"]

#: Overrides the folder `graphbench/kernels` in the user's cache.
VARIABLE = "GRAPHBENCH_KERNEL_CACHE"

logger = logging.getLogger(__name__)

#: First line of a file; another layout gets another one.
_MAGIC = b"graphbench kernel 1\n"
_DIGEST = hashlib.sha256().digest_size
#: Number of bytes for the length of the key.
_LENGTH = 8
#: Packages identified by version; sources of all others enter the key.
_VERSIONED = {"numba", "llvmlite", "numpy", "scipy", "torch"}
#: Modules of Python itself, identified by its version.
_STANDARD = sys.stdlib_module_names - {"__main__"}
#: Settings of Numba that change its code.
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "USING_SVML", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")
_DAY = 24 * 60 * 60
#: Files that have not been read for this long belong to old sources, versions or machines.
_UNUSED = 30 * _DAY
#: Kinds of constants that Numba compiles into a function.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
#: Kinds of objects with code; class and static methods are callable and lead to one.
_DEFINED = (FunctionType, CodeType, property, type)
#: Why files were not stored, the first time.
_warned: list[str] = []


class DiskCache(_Cache):
    """Cache of one function's compiled code, as Numba uses it (`dispatcher._cache`).

    Args:
        dispatcher: dispatcher of `numba.njit`, not compiled yet.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._function, self._options = dispatcher.py_func, dispatcher.targetoptions
        self._module = str(self._function.__module__)
        self._enabled = True
        _sources(self._module)  # records the current files, while they are imported

    @property
    def cache_path(self) -> str:
        """Return the folder."""
        return str(_folder())

    def enable(self) -> None:
        """Read and write files, which is the default."""
        self._enabled = True

    def disable(self) -> None:
        """Neither read nor write files."""
        self._enabled = False

    def flush(self) -> None:
        """Delete the files of functions of this name."""
        with _reported(), _opened(_folder()) as folder:
            for entry in os.scandir(folder):
                if entry.name.startswith(f"{self._function.__name__}-"):
                    os.unlink(entry.name, dir_fd=folder)

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Return the code for a signature, None if there is none for this source, CPU and versions."""
        target_context.refresh()
        if (key := self._key(sig, target_context.codegen())) is None:
            return None
        with _reported(), _opened(_folder()) as folder:
            payload = _read(folder, self._name(key), key)
            if payload is not None:
                try:
                    return CompileResult._rebuild(target_context, *pickle.loads(payload))
                except Exception:  # complete and ours, but Numba cannot use it: compile and write it again
                    logger.debug("%s cannot be loaded", self._name(key), exc_info=True)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the code for a signature, unless it contains addresses of this process."""
        key = self._key(sig, data.codegen)
        if key is None or data.library.has_dynamic_globals or any(not lifted.can_cache for lifted in data.lifted):
            return
        payload = dumps(data._reduce())
        with _reported(), _opened(_folder()) as folder:
            _write(folder, self._name(key), key, payload)
            _delete_unused(folder)

    def _name(self, key: bytes) -> str:
        return f"{self._function.__name__}-{hashlib.sha256(key).hexdigest()[:40]}"

    def _key(self, sig: Any, codegen: Any) -> bytes | None:
        """Return everything that determines the machine code, as JSON; None if it is valid only in this process."""
        function, sources = self._function, _sources(self._module)
        signature = str(sig)
        if not self._enabled or sources is None or " at 0x" in signature:  # a function that is an argument
            return None
        cells = dumps(tuple(cell.cell_contents for cell in function.__closure__ or ()))
        key = {
            "kernel": [self._module, function.__qualname__, function.__code__.co_firstlineno],
            "signature": signature,
            "options": {name: str(_content(value)) for name, value in self._options.items()},
            "code": _content(function),
            "closure": hashlib.sha256(cells).hexdigest(),
            "sources": sources,
            "processor": codegen.magic_tuple(),
            "settings": {name: repr(getattr(config, name, None)) for name in _SETTINGS},
            "python": [platform.python_version(), sys.implementation.cache_tag],
            "numba": [numba.__version__, llvmlite.__version__, np.__version__],
        }
        return json.dumps(key, sort_keys=True).encode()


# -- contents of a kernel ----------------------------------------------------------------------------------------


def _sources(module: str) -> dict[str, Any] | None:
    """List the sources that may enter a module's functions: its own, and those of all modules whose names it uses.

    Returns:
        Module -> SHA-256 of its file, and of the loaded objects: constants may come from elsewhere, and code from a
        file replaced since. Package -> version, for large ones. None if a file cannot be read, as at a prompt.
    """
    sources: dict[str, Any] = {}
    waiting = [module, __name__, str(__package__)]
    while waiting:
        name = waiting.pop()
        package, loaded = name.partition(".")[0], sys.modules.get(name)
        if name in sources or package in _STANDARD:
            continue
        if package in _VERSIONED:
            sources[package] = str(getattr(sys.modules[package], "__version__", ""))
            continue
        digest = _file_digest(name, getattr(loaded, "__file__", None))
        if digest is None:
            return None
        values = {key: value for key, value in sorted(vars(loaded).items()) if not key.startswith("__")}
        contents = repr({key: _content(value, name) for key, value in values.items()})
        sources[name] = [digest, hashlib.sha256(contents.encode()).hexdigest()]
        waiting += [origin for value in values.values() if (origin := _origin(value, name))]
    return sources


def _origin(value: Any, module: str) -> str | None:
    """Return the module that defines a value; none for submodules, whose presence depends on other imports."""
    if isinstance(value, ModuleType):
        return None if value.__name__.startswith(f"{module}.") else value.__name__
    origin = getattr(value, "__module__", None)
    return origin if isinstance(origin, str) else None


@cache
def _file_digest(module: str, file: str | None) -> str | None:
    """Return the SHA-256 of a module's file at the first call, which is during its import: it may change later."""
    try:
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None


def _content(value: Any, module: str = "") -> str | None:
    """Describe a constant, a function or a class of a module by text that is the same in each process."""
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple):
        return f"({','.join(str(_content(item, module)) for item in value)})"
    if isinstance(value, frozenset | set):
        return f"{{{','.join(sorted(str(_content(item, module)) for item in value))}}}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if callable(value) or isinstance(value, classmethod):
        value = inspect.unwrap(value)  # remove wrappers of Numba and others
    return _definition(value, module) if isinstance(value, _DEFINED) else None


@cache
def _definition(value: Any, module: str) -> str | None:
    """Return the SHA-256 of the code of a function or class; None for a class of another module."""
    if isinstance(value, FunctionType):
        value = value.__code__
    if isinstance(value, CodeType):
        parts = [f"{value.co_code!r}{value.co_names}", _content(value.co_consts, module)]
    elif isinstance(value, property):
        parts = [_content(value.fget, module), _content(value.fset, module)]
    elif isinstance(value, type):
        if value.__module__ != module:
            return None
        # classes that refer to each other, or themselves, are represented by name: the module's own walk inspects each
        parts = [
            f"{name}{part.__qualname__ if isinstance(part, type) else _content(part, module)}"
            for name, part in vars(value).items()
        ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


# -- files -----------------------------------------------------------------------------------------------------------


class _Unsafe(OSError):
    """A folder that others could have written to."""


def _folder() -> Path:
    """Return the folder of the files: from the environment, else a folder in the user's cache.

    Raises:
        OSError: there is no home folder.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        caches = caches if caches.is_absolute() else Path.home() / ".cache"  # the specification ignores relative ones
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error
    return caches / "graphbench" / "kernels"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open the folder, which must be private to this user; create it if it is missing.

    Raises:
        OSError: it cannot be created or opened, or others could have written to it.
    """
    if os.open not in os.supports_dir_fd:
        raise _Unsafe("this system cannot tell whether others write to a folder")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_owner(folder, str(path), 0o077)
        yield folder
    finally:
        os.close(folder)


def _check_owner(descriptor: int, name: str, closed: int) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise _Unsafe(f"{name} belongs to user {status.st_uid}, this is user {os.geteuid()}")
    if status.st_mode & closed:
        raise _Unsafe(f"{name} is open to others (mode {stat.S_IMODE(status.st_mode):o} instead of 700)")


def _read(folder: int, name: str, key: bytes) -> bytes | None:
    """Read a file if it is complete and belongs to this key, else None.

    Raises:
        OSError: it cannot be read, or another user may have written it.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        _check_owner(descriptor, name, 0o022)
        if time.time() - os.fstat(descriptor).st_mtime > _DAY:
            with contextlib.suppress(OSError):
                os.utime(descriptor)  # it is in use, see `_delete_unused`
        content = file.read()
    start = len(_MAGIC) + _DIGEST
    magic, digest, body = content[: len(_MAGIC)], content[len(_MAGIC) : start], content[start:]
    if magic != _MAGIC or digest != hashlib.sha256(body).digest():
        return None
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    return body[end:] if body[_LENGTH:end] == key else None


def _write(folder: int, name: str, key: bytes, payload: bytes) -> None:
    """Replace a file atomically with this content.

    Raises:
        OSError: there is no room, or the folder is read-only.
    """
    body = len(key).to_bytes(_LENGTH, "little") + key + payload
    part = f".{name}-{uuid.uuid4().hex}"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


def _delete_unused(folder: int) -> None:
    """Delete files that have not been read for a month, and leftovers of killed processes."""
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):  # another process was faster
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _UNUSED:
                os.unlink(entry.name, dir_fd=folder)


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Turn disk errors into one warning per process."""
    try:
        yield
    except OSError as error:
        if not _warned:
            _warned.append(reason := str(error) if isinstance(error, _Unsafe) else f"{error.strerror or error}")
            logger.warning(
                "Compiled kernels are not stored on disk, so each process compiles them again: %s%s. The variable %s "
                "names another folder, which must be yours and closed to others (mode 700).",
                reason,
                "" if isinstance(error, _Unsafe) or error.errno is None else f" ({_folder()})",
                VARIABLE,
            )
