"""Explain errors that constructors and Lightning raise: one line with the option, the value and what would be right."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from jsonargparse import ArgumentError, ArgumentParser, Namespace
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from graphbench.contracts import Architecture, Benchmark, Encoding, PositionalEncoder
from graphbench.data.files.writing import no_room
from graphbench.errors import BadInput, GraphbenchError
from graphbench.registry.importing import import_object
from graphbench.training.arguments import parameters

#: Option that names a class -> base class of what its constructor builds.
_BUILT: dict[str, type] = {"data": Benchmark, "model.architecture": Architecture}

#: Where Lightning chooses devices, and the options that it uses.
_DEVICES = "pytorch_lightning.trainer.connectors.accelerator_connector"
_OF_DEVICES = ("accelerator", "devices", "num_nodes", "strategy", "precision", "plugins")
#: Where it raises errors about options once it knows the data.
_WITH_DATA = (
    "pytorch_lightning.callbacks", "pytorch_lightning.loops", "pytorch_lightning.trainer.connectors",
    "lightning_fabric.plugins.environments",
)  # fmt: skip
#: Options of the trainer that name classes, one or several.
_BUILT_BY_LIGHTNING = ("logger", "profiler", "plugins", "callbacks")


def explain_construction(error: Exception, configured: Callable[[str], Any]) -> str | None:
    """Return one line for an error while data, model and trainer are built; None if it should be raised unchanged.

    `configured` returns the value of an option of the command line, None for unknown ones.
    """
    if not isinstance(error, GraphbenchError) and _passed(error, _DEVICES):
        given = {name: _named(configured(f"trainer.{name}")) for name in _OF_DEVICES}
        usual = ("auto", "None", "1" if "num_nodes" not in str(error) else "")
        chosen = [f"--trainer.{name} {value}" for name, value in given.items() if value not in usual]
        return f"{', '.join(chosen)}: {reason(error)}" if chosen else reason(error)
    if fault := _fault(error, configured):
        return fault
    if isinstance(error, (GraphbenchError, ValueError, ArgumentError, MisconfigurationException, ModuleNotFoundError)):
        return with_whole_name(error, configured) or (None if isinstance(error, GraphbenchError) else reason(error))
    if isinstance(error, (ArithmeticError, MemoryError, RuntimeError)):  # numbers that a constructor computes with
        built = next((type(one).__name__ for one, _ in _constructors(error)), None)
        if built is not None:
            return f"{built} cannot be built with these options: {reason(error)}"
    from_lightning = _passed(
        error, "pytorch_lightning.loggers", "pytorch_lightning.strategies", "pytorch_lightning.trainer"
    )
    return reason(error) if from_lightning else None


def _fault(error: BaseException, configured: Callable[[str], Any]) -> str | None:
    """Return why a class of the trainer cannot be built, with its option, which jsonargparse does not name in lists."""
    if not str(error).startswith("Does not validate"):
        return None
    for option in _BUILT_BY_LIGHTNING:
        for item in _items(configured(f"trainer.{option}")):
            if isinstance(item, Namespace) and "class_path" in item:
                parser = ArgumentParser(exit_on_error=False)
                parser.add_argument("--item", type=import_object(*item.class_path.rsplit(".", 1)))
                try:
                    parser.instantiate_classes(Namespace(item=item))
                except Exception as cause:
                    return f"--trainer.{option} {_named(item)}: {reason(cause)}"
    return None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(value: Any) -> str:
    """Format the value of an option, with classes as their names."""
    names = [item.class_path.rpartition(".")[2] if isinstance(item, Namespace) else str(item) for item in _items(value)]
    return ",".join(names)


def with_whole_name(error: BaseException, configured: Callable[[str], Any]) -> str | None:
    """Replace the option's name in a constructor's message with its full name on the command line.

    A part of a model may have an option of the same name: then the refused value must be the configured one. None if
    the message is about something else, or already has the full name.
    """
    error = _root(error)
    if type(error) is not BadInput:
        return None
    part = (re.match(r"[a-z_]+\.\w+(?=[ :=])", str(error)) or [""])[0]  # of the module, such as schedule.warmup
    if part and configured(f"model.{part}") is not None:
        return f"--model.{error}"
    built, is_alone = next(_constructors(error), (None, False))
    slot = next((slot for slot, kind in _BUILT.items() if isinstance(built, kind)), "")
    name = (re.match(r"[a-z_]\w*(?=[ :=])", str(error)) or [""])[0]
    path = configured(f"{slot}.class_path") if slot else None
    if not isinstance(path, str) or path.rpartition(".")[2] != type(built).__name__:  # an option of another class
        return None
    if name not in parameters(type(built)):
        return None
    given = f", but got {configured(f'{slot}.init_args.{name}')!r}."
    return f"--{slot}.{name}{str(error).removeprefix(name)}" if is_alone or str(error).endswith(given) else None


def reason(error: BaseException) -> str:
    """Return the first cause of an error as one line, without the text that jsonargparse or Lightning add."""
    error = _root(error)
    return " ".join(str(error).split()) or type(error).__name__


def explain_training(error: BaseException) -> str | None:
    """Return one line for a training error that a logger, an optimizer or Lightning raised; None for others."""
    if no_room(error):  # the file is named instead
        return None
    if _passed(error, "lightning_fabric.loggers", "pytorch_lightning.loggers"):  # such as one whose server needs a key
        return f"--trainer.logger: {reason(error)}"
    if not isinstance(error, (RuntimeError, ValueError, MisconfigurationException)):
        return None
    last = _modules(error)[-1]
    if last.startswith("torch.optim."):  # on the first gradients, as from optimizers only for sparse tensors
        return f"The optimizer of --model.optimizer cannot train this model: {reason(error)}"
    # Refused once the data were known, such as a monitor or a share of batches.
    return reason(error) if last.startswith(_WITH_DATA) else None


def explain_lost_process(error: BaseException) -> str | None:
    """Return one line for an exchange with other processes that failed, over gloo or NCCL; None for other errors.

    Every remaining process gets such an error; the one that exited has reported why.

    Examples:
        >>> lost = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer. This is typically ...")
        >>> explain_lost_process(lost).partition("] ")[2]
        'Connection closed by peer.'
        >>> explain_lost_process(RuntimeError("shapes do not fit")) is None
        True
    """
    if "gloo/" not in str(error) and not (dist.is_available() and isinstance(error, dist.DistError)):
        return None
    why = reason(error).partition(" This is typically")[0][:300]
    return f"Another process of this training exited or does not answer: {why}"


def _root(error: BaseException) -> BaseException:
    while isinstance(error.__cause__, Exception) and not isinstance(error, GraphbenchError):
        error = error.__cause__
    return error


def _constructors(error: BaseException) -> Iterator[tuple[Any, bool]]:
    """Yield the objects under construction from the outside, and whether no method of another object was running."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for number, frame in enumerate(frames):
        built = frame.f_locals.get("self")
        building = frame.f_code.co_name in ("__init__", "checked")  # `checked` is shared by all architectures
        if building and isinstance(built, (Architecture, Benchmark, Encoding, PositionalEncoder)):
            yield built, all(inner.f_locals.get("self", built) is built for inner in frames[number:])


def _passed(error: BaseException, *packages: str) -> bool:
    """Return whether an error comes through one of these packages, but was not raised by graphbench itself."""
    modules = _modules(error)
    return any(name.startswith(packages) for name in modules) and not modules[-1].startswith("graphbench")


def _modules(error: BaseException) -> list[str]:
    return [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
