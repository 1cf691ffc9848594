"""What constructors and Lightning refuse, in words: which option, which value, what would be right."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from pytorch_lightning.utilities.exceptions import MisconfigurationException

from graphbench.contracts import Architecture, Benchmark, Encoding, PositionalEncoder
from graphbench.errors import BadInput, GraphbenchError
from graphbench.training.arguments import parameters

#: Option that names a class -> what its constructor makes.
_MADE: dict[str, type] = {"data": Benchmark, "model.architecture": Architecture}
#: Functions in which something is being made: the second checks the options that all architectures share.
_MAKING = ("__init__", "checked")


def reason(error: BaseException) -> str:
    """Why a class could not be made, in one line, out of what jsonargparse or Lightning say around it."""
    error = _root(error)
    return " ".join(str(error).split()) or type(error).__name__


def _root(error: BaseException) -> BaseException:
    """What others only passed on."""
    while isinstance(error.__cause__, Exception) and not isinstance(error, GraphbenchError):
        error = error.__cause__
    return error


def constructed(error: BaseException) -> str | None:
    """Name of the class whose constructor an error comes out of, the outermost that is no part of the module's own."""
    return next((type(made).__name__ for made, _ in _constructors(error)), None)


def _constructors(error: BaseException) -> Iterator[tuple[Any, bool]]:
    """What was being made where an error came up, from the outside, and whether nothing else of a class was at work."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for number, frame in enumerate(frames):
        made = frame.f_locals.get("self")
        if frame.f_code.co_name in _MAKING and isinstance(made, (Architecture, Benchmark, Encoding, PositionalEncoder)):
            yield made, all(inner.f_locals.get("self", made) is made for inner in frames[number:])


def with_whole_name(error: BaseException, configured: Callable[[str], Any]) -> str | None:
    """The message of a constructor that begins with an option, which gets the name that a command line has for it.

    A part of a model may have an option of the same name: there the value that was refused must be the one given.

    Args:
        error: came out of a constructor.
        configured: what an option of the command line was set to, None for unknown ones.

    Returns:
        None where the message is about something else, or whole already.
    """
    error = _root(error)
    if type(error) is not BadInput:
        return None
    part = (re.match(r"[a-z_]+\.\w+(?=[ :=])", str(error)) or [""])[0]  # of the module's own, such as schedule.warmup
    if part and configured(f"model.{part}") is not None:
        return f"--model.{error}"
    made, own = next(_constructors(error), (None, False))
    slot = next((slot for slot, kind in _MADE.items() if isinstance(made, kind)), "")
    name = (re.match(r"[a-z_]\w*(?=[ :=])", str(error)) or [""])[0]
    path = configured(f"{slot}.class_path") if slot else None
    if not isinstance(path, str) or path.rpartition(".")[2] != type(made).__name__:  # made as an option of another one
        return None
    if name not in parameters(type(made)):
        return None
    given = f", but got {configured(f'{slot}.init_args.{name}')!r}."
    return f"--{slot}.{name}{str(error).removeprefix(name)}" if own or str(error).endswith(given) else None


def of_lightning(error: BaseException) -> bool:
    """Whether Lightning, or a package that one of its loggers needs, refused an option: then it is no fault of ours."""
    return _passed(error, "pytorch_lightning.loggers", "pytorch_lightning.strategies", "pytorch_lightning.trainer")


def of_logger(error: BaseException) -> bool:
    """Whether a logger failed, such as one whose server wants a key."""
    return _passed(error, "lightning_fabric.loggers", "pytorch_lightning.loggers")


def of_training(error: BaseException) -> bool:
    """Whether Lightning ended a training over an option, such as a callback that watches what nobody logs."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    refused = isinstance(error, (RuntimeError, ValueError, MisconfigurationException))
    return refused and modules[-1].startswith(("pytorch_lightning.callbacks", "lightning_fabric.plugins.environments"))


def _passed(error: BaseException, *packages: str) -> bool:
    """Whether an error comes through one of these packages, and not out of graphbench itself."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.startswith(packages) for name in modules) and not modules[-1].startswith("graphbench")
