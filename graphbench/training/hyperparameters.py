"""Describe how a module was built by plain values, for checkpoints and trackers, and rebuild it from them."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import ArgumentError
from torch import nn
from torch.optim import Optimizer

from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, GraphbenchError
from graphbench.runs import trust
from graphbench.runs.checkpoints import INSTANTIATOR as INSTANTIATOR
from graphbench.runs.checkpoints import check_instantiator

#: Hyper-parameters without which no module can be rebuilt.
_NEEDED = ("spec", "architecture")


class _Unknown(Exception):
    """A Python object that plain values cannot describe."""


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a module, with classes as `class_path` and `init_args`, as far as they have a plain form.

    Classes, functions of a module, `functools.partial` of them, dataclasses and plain values have one; lambdas and
    existing objects do not, and are omitted.

    Examples:
        >>> import torch
        >>> plain_arguments({"optimizer": partial(torch.optim.SGD, lr=0.1), "architecture": lambda spec: spec})
        {'optimizer': {'class_path': 'torch.optim.sgd.SGD', 'init_args': {'lr': 0.1}}}
    """
    plain = {}
    for name, value in arguments.items():
        with contextlib.suppress(_Unknown):
            plain[name] = _plain(value)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):  # numbers from a search or a table, which only NumPy could read back
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, partial):
        if value.args:
            raise _Unknown
        return {"class_path": _path(value.func), "init_args": _plain(value.keywords)}
    path = _path(value)
    return {"class_path": path} if isinstance(value, type) else path


def _path(value: Callable[..., Any]) -> str:
    """Return the dotted path of a class or function that can be imported by it."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    # Only objects that an import of this path returns, so nothing nested in a function or redefined.
    if not module or "<" in name or getattr(sys.modules.get(module), name, None) is not value:
        raise _Unknown
    return f"{module}.{name}"


@contextlib.contextmanager
def rebuilding(
    checkpoint: Mapping[str, Any], file: str | Path | None, options: Mapping[str, Any], path: str | Path, trusted: bool
) -> Iterator[None]:
    """Let a module's hyper-parameters import, within the block, only what is registered, admitted or already imported.

    Those of the YAML `file`, if given, replace the checkpoint's, and `options` override both; `path` is the
    checkpoint's. With `trusted` they may import anything.
    """
    stored = checkpoint.get("hyper_parameters", {})
    if file is not None:
        stored = load_yaml(Path(file).read_text(encoding="utf-8"))
    check_instantiator(stored, file or path)
    check_instantiator(options, path)
    merged = dict(stored) | dict(options)
    missing = [name for name in _NEEDED if name not in merged]
    if missing:
        raise BadInput(
            f"{path} does not say with which {' and '.join(missing)} its module was built: an older version wrote it, "
            "or it was given in Python as an object that plain values cannot describe. Give what is missing: "
            f"load_from_checkpoint(path, {', '.join(f'{name}=...' for name in missing)})."
        )
    named = _dotted({name: value for name, value in merged.items() if name != "spec"})  # which names no classes
    imported = frozenset(where for text in named for where in _imported(text))
    try:
        with trust.enforced(trust.Policy(Path(path), imported, trusted)):
            yield
    except GraphbenchError:
        raise
    except (ArgumentError, TypeError) as error:
        raise BadInput(f"The module of {path} cannot be built from its hyper-parameters: {error}") from error


def _dotted(content: Any) -> Iterator[str]:
    """Yield every string among the values that is a dotted path."""
    if isinstance(content, str):
        if "." in content and all(part.isidentifier() for part in content.split(".")):
            yield content
    elif isinstance(content, (Mapping, list, tuple)):
        for item in content.values() if isinstance(content, Mapping) else content:
            yield from _dotted(item)


def _imported(path: str) -> Iterator[str]:
    """Yield the path of a module or optimizer class that this process has already imported, and where it is defined.

    Other classes are omitted: `subprocess.Popen` is imported in most processes.
    """
    module, _, name = path.rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    if isinstance(cls, type) and issubclass(cls, (nn.Module, Optimizer)):
        yield path
        yield f"{cls.__module__}.{cls.__qualname__}"
