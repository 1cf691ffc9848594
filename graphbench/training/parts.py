"""Select parts of a model by the names of their parameters: to freeze them, or train them at a separate rate."""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from graphbench.errors import BadInput, check_range

logger = logging.getLogger(__name__)
#: Prefix that names may omit: `head` is `task.head`.
_SILENT = "task."


def parse_patterns(freeze: str | Sequence[str] | None) -> tuple[str, ...]:
    """Parse patterns, given as a list or as a string separated by commas.

    Examples:
        >>> parse_patterns("architecture.node_encoder, architecture.layers.0*")
        ('architecture.node_encoder', 'architecture.layers.0*')
    """
    if freeze is None:
        return ()
    given = freeze.split(",") if isinstance(freeze, str) else list(freeze)
    return tuple(pattern.strip() for pattern in given if pattern.strip())


def parse_rates(rates: Mapping[str, float] | str | None) -> dict[str, float]:
    """Parse learning rates by pattern, given as a mapping or as a string `pattern=rate` separated by commas.

    Examples:
        >>> parse_rates("head=1e-3, architecture.layers.*=1e-4")
        {'head': 0.001, 'architecture.layers.*': 0.0001}
    """
    given: dict[str, Any] = {}
    if isinstance(rates, str):
        for item in parse_patterns(rates):
            pattern, text = (part.strip() for part in item.rpartition("=")[::2])
            if not pattern or pattern in given:
                raise BadInput(
                    f"learning_rates: expected one PATTERN=RATE per pattern, as in 'head=1e-3,architecture.*=1e-4', "
                    f"not {rates!r}."
                )
            given[pattern] = text
    factors: dict[str, float] = {}
    for pattern, rate in (given if isinstance(rates, str) else rates or {}).items():
        try:
            factors[pattern] = float(rate)
        except (TypeError, ValueError):
            raise BadInput(f"learning_rates: the rate of {pattern!r} must be a number, but got {rate!r}.") from None
        check_range(f"learning_rates: the rate of {pattern!r}", factors[pattern], above=0, below=float("inf"))
    return factors


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern selects: those that it matches, and everything within a part that it matches.

    `*` matches any text, including dots, `?` one character and `[...]` one of several, as in file names; the prefix
    `task.` of the head may be omitted.

    Examples:
        >>> names = ["architecture.layers.0.weight", "architecture.layers.10.weight", "task.head.mlp.weight"]
        >>> matching("architecture.layers.1*", names)
        ['architecture.layers.10.weight']
        >>> matching("head", names)
        ['task.head.mlp.weight']
    """
    return [name for name in names if any(fnmatchcase(alias, pattern) for alias in _aliases(name))]


def _aliases(name: str) -> Iterator[str]:
    """List the names that select a parameter: its own name and those of the parts that contain it."""
    for full in (name, name.removeprefix(_SILENT)) if name.startswith(_SILENT) else (name,):
        words = full.split(".")
        yield from (".".join(words[:length]) for length in range(1, len(words) + 1))


def chosen(option: str, pattern: str, names: Collection[str]) -> list[str]:
    """Like `matching`, but raise `BadInput` if the pattern matches nothing."""
    matched = matching(pattern, names)
    if not matched:
        parts = list(dict.fromkeys(alias for name in names for alias in _aliases(name)))
        near = difflib.get_close_matches(pattern.rstrip("*."), parts, n=3, cutoff=0.5)
        tops = list(dict.fromkeys(name.partition(".")[0] for name in names))
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Names start with {', '.join(tops)}."
        raise BadInput(f"{option}: no parameter's name matches {pattern!r}. {hint}")
    return matched


def freeze_parts(module: nn.Module, patterns: Iterable[str], epochs: int | None = None) -> frozenset[str]:
    """Freeze the parameters that patterns select, and return their names: no optimizer updates or decays them.

    With `epochs`, after which they are trained like all others, they keep their gradients, see `drop_gradients`.
    """
    parameters = dict(module.named_parameters())
    frozen = frozenset(name for pattern in patterns for name in chosen("freeze", pattern, parameters))
    if epochs is not None:
        check_range("freeze_epochs", epochs, at_least=1, whole=True)
        if not frozen:
            raise BadInput(f"freeze_epochs={epochs}: name the parts to freeze, as in --model.freeze architecture.")
    if frozen and not any(p.requires_grad for name, p in parameters.items() if name not in frozen):
        raise BadInput("freeze: no parameter is left to train. Leave out at least one part, such as the head.")
    # If frozen for some epochs they keep `requires_grad`, which DDP and optimizers read only once, at the start.
    if epochs is None:
        for name in frozen:
            parameters[name].requires_grad_(False)
    return frozen


def without_gradient(module: nn.Module) -> list[str]:
    """List the direct parts of a module that have trainable parameters, none of which has a gradient.

    Examples:
        >>> import torch
        >>> layers = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(2, 1)})
        >>> layers["used"](torch.ones(1, 2)).sum().backward()
        >>> without_gradient(layers)
        ['idle']
    """
    reached: dict[str, bool] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            part = name.partition(".")[0]
            reached[part] = reached.get(part, False) or parameter.grad is not None
    return [part for part, has in reached.items() if not has]


def rest_frozen_norms(module: nn.Module, frozen: Collection[str]) -> None:
    """Set batch norms of frozen parts to evaluation mode, so that their running statistics do not change either.

    A part is frozen if it has parameters and all of them are frozen; batch norms without parameters belong to the
    part that contains them.
    """
    # By identity, since a parameter shared by several parts has only one name.
    _rest(module, {id(parameter) for name, parameter in module.named_parameters() if name in frozen}, within=False)


def _rest(module: nn.Module, frozen: Collection[int], within: bool) -> None:
    parameters = list(module.parameters())
    rests = all(id(parameter) in frozen for parameter in parameters) if parameters else within
    if rests and isinstance(module, _BatchNorm):
        module.eval()
    for child in module.children():
        _rest(child, frozen, rests)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode within the block, and then restore the mode of each of its parts.

    Each part has its own mode, since frozen parts stay in evaluation mode while the others train.

    Examples:
        >>> layers = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
        >>> with evaluating(layers):
        ...     layers[0].training
        False
        >>> [layer.training for layer in layers]
        [True, False]
    """
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def drop_gradients(module: nn.Module, frozen: Collection[str]) -> None:
    """Remove the gradients of parameters, so that the next optimizer step skips them.

    Optimizers neither update nor decay a parameter without a gradient. This is for parts that are frozen for some
    epochs: they are in the optimizer from the start, and DistributedDataParallel, which determines only once which
    parameters have gradients, averages theirs from the epoch in which they are first trained.
    """
    for name, parameter in module.named_parameters():
        if name in frozen:
            parameter.grad = None


def check_loaded(frozen: Collection[str], outcome: Mapping[str, Collection[str]], source: str) -> None:
    """Refuse to freeze weights that were not loaded and so are random."""
    for kind, words in (
        ("missing", "does not have it"),
        ("other_shape", "has it in another shape"),
        ("other_targets", "has it for other targets"),
    ):
        random = [name for name in outcome.get(kind, ()) if name in frozen]
        if random:
            more = f" and {len(random) - 1} more" if len(random) > 1 else ""
            raise BadInput(
                f"freeze: {random[0]}{more} would stay random, since {source} {words}. Remove it from --model.freeze, "
                "or train everything from random weights: --model.init_from null --model.freeze null "
                "--model.freeze_epochs null."
            )


def with_learning_rates(
    groups: Sequence[Mapping[str, Any]], module: nn.Module, rates: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Split optimizer groups so that parameters matched by a pattern of `rates` get its rate; all else is unchanged.

    If several patterns match a parameter, the longest wins. Schedules multiply these rates like all others. A pattern
    that matches only frozen parameters, such as one from a configuration used with `freeze`, has no effect (it warns).
    """
    names = dict(module.named_parameters())
    rate_of: dict[int, tuple[str, float]] = {}
    # Longer patterns come later and override shorter ones.
    for pattern in sorted(rates, key=len):
        matched = chosen("learning_rates", pattern, names)
        if not any(names[name].requires_grad for name in matched):
            logger.warning("learning_rates: %s is frozen, so its rate has no effect.", pattern)
        for name in matched:
            rate_of[id(names[name])] = (pattern, rates[pattern])
    result: list[dict[str, Any]] = []
    for group in groups:
        parts: dict[str | None, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            parts.setdefault(rate_of.get(id(parameter), (None, 0.0))[0], []).append(parameter)
        for options, parameters in parts.items():
            changed: dict[str, Any] = {"params": parameters}
            if options is not None:
                changed |= {"lr": rates[options], "name": f"{group.get('name', 'group')}/{options}"}
            result.append(dict(group) | changed)
    return result
