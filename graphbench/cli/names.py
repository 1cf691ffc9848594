"""What the names on a command line stand for: registered classes, imported before parsing, and the default optimizer.

jsonargparse finds a class by its short name, `GPS` instead of `graphbench_baselines.gps.GPS`, once its module is
imported. So the registered names that a command line or a configuration mentions are imported, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphbench import registry
from graphbench.cli.command_line import REQUIRED, CommandLine, classes_in, value_at
from graphbench.registry.expected import Expected

#: What a module without an optimizer takes, as the class whose options can be given.
DEFAULT_OPTIMIZER = "torch.optim.AdamW"
#: How configurations of runs name it, those of earlier versions too.
AS_FUNCTION = ("graphbench.training.module.adam_w", "graphbench.module.adam_w")


def import_named(arguments: Sequence[str]) -> None:
    """Import every registered class that the arguments or their configurations name.

    Args:
        arguments: the command line after the command, each configuration by the path of its file.

    Raises:
        UnknownName: `data` or `model.architecture` names something that nobody registers.
        BrokenPlugin: a named class cannot be imported.
        BadInput: a configuration cannot be read, or expects something under an unknown name.
    """
    line = CommandLine.parse(arguments)
    words = {word for one in line.options for word in (one.name, *one.values)}
    for place, content in line.contents:
        if place.startswith("--config "):
            Expected.parse(content.get("expected"), place)
        words.update(_strings(content))
        for slot, name in classes_in(content).items():
            if name.isidentifier():  # a dotted path is left to jsonargparse
                registry.load(REQUIRED[slot], name)
    for one in line.options:
        words.update(_strings(one.read()))
    for group in registry.GROUPS:
        for name in words & registry.records(group).keys():
            registry.load(group, name)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def with_optimizer(arguments: Sequence[str]) -> list[str]:
    """Name the default optimizer before the first of its options where nothing names one.

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
    line, option = CommandLine.parse(arguments), "--model.optimizer"
    first = next((place for place, one in enumerate(line.options) if one.name.startswith(f"{option}.")), None)
    named = (value_at(content, option[2:]) for _, content in line.contents)
    if (
        first is None
        or line.named(option, f"{option}.class_path", f"{option}.help")
        or any(name not in (None, *AS_FUNCTION) for name in named)
    ):
        return line.words
    before, behind = CommandLine(line.options[:first]), CommandLine(line.options[first:])
    return [*before.words, option, DEFAULT_OPTIMIZER, *behind.words]
