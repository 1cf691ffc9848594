"""`--model.optimizer.lr 3e-4` alone: options of an optimizer that nobody named are those of the default one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphbench.cli.names import configurations

_OPTION = "--model.optimizer"
#: What a module without an optimizer takes, as the class whose options can be given.
DEFAULT = "torch.optim.AdamW"
#: How configurations of runs name it, those of earlier versions too.
AS_FUNCTION = ("graphbench.training.module.adam_w", "graphbench.module.adam_w")


def with_optimizer(arguments: Sequence[str]) -> list[str]:
    """The command line, with the default optimizer named in front of the first of its options where nothing names one.

    A default in the parser would not do: it keeps the options of one class for the next that is named, such as the
    weight decay of AdamW for Adam.

    Args:
        arguments: the command line after the command.

    Examples:
        >>> with_optimizer(["--model.optimizer.lr", "3e-4"])
        ['--model.optimizer', 'torch.optim.AdamW', '--model.optimizer.lr', '3e-4']
        >>> with_optimizer(["--model.optimizer", "SGD", "--model.optimizer.lr", "3e-4"])[:2]
        ['--model.optimizer', 'SGD']
    """
    given = list(arguments)
    names = [argument.partition("=")[0] for argument in given]
    options = [number for number, name in enumerate(names) if name.startswith(f"{_OPTION}.")]
    told = {_OPTION, f"{_OPTION}.class_path", f"{_OPTION}.help"} & set(names)
    if not options or told or any(_names_one(content) for content in configurations(given)):
        return given
    return [*given[: options[0]], _OPTION, DEFAULT, *given[options[0] :]]


def _names_one(content: dict[str, Any]) -> bool:
    model = content.get("model")
    named = model.get("optimizer") if isinstance(model, dict) else None
    return named not in (None, *AS_FUNCTION)
