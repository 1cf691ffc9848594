"""Files that installed packages ship, found and loaded without importing the package; checksums of files."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

from graphbench.errors import MissingData, MissingExtra


def package_file(package: str, relative: str, *, extra: str = "", purpose: str = "") -> Path:
    """Path of a file inside an installed package, found without running any of the package's code.

    Args:
        package: top-level import name.
        relative: path inside the package, with forward slashes.
        extra: optional dependency group of graphbench that installs the package.
        purpose: what the file is needed for, as the beginning of a sentence.

    Raises:
        MissingExtra: the package is not installed.
        MissingData: it is installed but does not hold the file.

    Examples:
        >>> package_file("torch", "nn/functional.py").name
        'functional.py'
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(package, extra, purpose)
    path = Path(next(iter(spec.submodule_search_locations)), relative)
    if not path.is_file():
        raise MissingData(f"The installed package {package!r} has no file {relative} (looked at {path}). Reinstall it.")
    return path


def load_module(path: Path, name: str) -> ModuleType:
    """Run a Python file as a module that is not entered in `sys.modules`.

    For files whose package must not be imported: `import ogb` asks a package index for its newest version in a
    background thread, and RDKit's contributed scorers are in no package at all.

    Raises:
        MissingData: there is no such file.
    """
    if not path.is_file():
        raise MissingData(f"{path} is missing, though the package that ships it is installed. Reinstall the package.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MissingData(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal.

    Raises:
        MissingData: there is no such file.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "abc")
        >>> _ = path.write_bytes(b"abc")
        >>> file_sha256(path)[:16]
        'ba7816bf8f01cfea'
    """
    if not path.is_file():
        raise MissingData(f"{path}: there is no such file.")
    checksum = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            checksum.update(block)
    return checksum.hexdigest()
