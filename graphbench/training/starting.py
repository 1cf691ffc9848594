"""Take weights to start from by the names of targets, as shapes alone would mistake one for another."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from graphbench.nn.heads import EdgeHead, GraphHead, NodeHead
from graphbench.runs.checkpoints import load_matching
from graphbench.training.parts import check_loaded

if TYPE_CHECKING:
    from graphbench.training.module import BenchmarkModule

log = logging.getLogger(__name__)

#: Buffers of a regression with a number for each target.
_OF_TARGETS = ("task.offset", "task.scale", "task.deviation")
#: Where an output of this model is in the file: its number there, and its sign; None where it is not.
_Place = tuple[int, int] | None


def start_from(module: BenchmarkModule, source: str) -> None:
    """Take the weights of `BenchmarkModule(init_from=source)`.

    Raises:
        BadInput: there is no such source, nothing in it fits, or frozen parts would stay random.
    """
    outcome = load_matching(module, source, partial(arrange_outputs, module))
    check_loaded(module.frozen, outcome, source)


def arrange_outputs(module: BenchmarkModule, tensors: dict[str, Tensor], stored: Mapping[str, Any]) -> list[str]:
    """Reorder the head's last layer to the module's targets (or classes), by their names.

    Rows of targets that the file's model did not have stay as they are. Nothing changes if one side does not name its
    targets. A warning lists features whose names differ from the file's; their weights are taken by place.

    Args:
        module: the model that will take the weights.
        tensors: those of the file by name, changed in place.
        stored: specification of the file's model, as plain values; empty where the file does not say.

    Returns:
        Tensors of the file that belong to other targets altogether, or would freeze rows that are random.
    """
    spec = dataclasses.asdict(module.spec)
    _warn_of_features(spec, stored)
    here, there = _output_names(spec), _output_names(stored)
    if not here or not there or here == there:
        return []
    head = getattr(module.task, "head", None)
    if not isinstance(head, (GraphHead, NodeHead, EdgeHead)):
        log.warning(
            "init_from: the file's model predicts %s, this one %s; outputs are taken by place.",
            _listed(there),
            _listed(here),
        )
        return []
    places = _places(here, there, _is_binary(spec), _is_binary(stored))
    last = f"task.head.mlp.layers.{len(head.mlp.layers) - 1}."
    own = module.state_dict()
    other = []
    for name in [f"{last}weight", f"{last}bias", *_OF_TARGETS]:
        if name not in tensors or name not in own:
            continue
        count = 1 if _is_binary(stored) else len(there)  # two classes have one output
        rows = _arranged(own[name], tensors[name], places, count)
        if rows is None or not any(places) or (None in places and name in module.frozen):
            other.append(name)
        else:
            tensors[name] = rows
    _log_outputs(here, there, places, taken=f"{last}weight" not in other)
    return other


def _output_names(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of a model's outputs: its classes or its targets; none if not all are named."""
    names, count = spec.get("target_names"), spec.get("num_classes") or spec.get("num_targets")
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return []
    return list(names) if len(names) == len(set(names)) == count else []


def _is_binary(spec: Mapping[str, Any]) -> bool:
    return spec.get("num_classes") == 2


def _places(here: list[str], there: list[str], is_binary: bool, was_binary: bool) -> list[_Place]:
    """Return where each output is in the file; the one logit of two classes changes its sign with their order.

    Examples:
        >>> _places(["b", "c", "a"], ["a", "b"], False, False)
        [(1, 1), None, (0, 1)]
        >>> _places(["no", "yes"], ["yes", "no"], True, True)
        [(0, -1)]
    """
    if is_binary:
        return [(0, -1) if was_binary and here == there[::-1] else None]
    if was_binary:
        return [None] * len(here)
    return [(there.index(name), 1) if name in there else None for name in here]


def _arranged(own: Tensor, given: Tensor, places: list[_Place], count: int) -> Tensor | None:
    """Rows of `given` at `places` (of `count`), and of `own` elsewhere; None where a target has other numbers of rows.

    Losses with a spread have k rows for each target: first a prediction of each, then k - 1 for one target after the
    other.
    """
    per_target, rest = divmod(len(own), len(places))
    if rest or len(given) != per_target * count or own.shape[1:] != given.shape[1:]:
        return None
    result = own.clone()
    for target, place in enumerate(places):
        if place is None:
            continue
        row, sign = place
        result[target] = sign * given[row]
        further = per_target - 1
        start, stored = len(places) + target * further, count + row * further
        result[start : start + further] = given[stored : stored + further]
    return result


def _log_outputs(here: list[str], there: list[str], places: list[_Place], taken: bool) -> None:
    """Log which outputs come from the file and which start anew."""
    if not taken:
        log.warning(
            "init_from: the head's last layer starts from random weights: this model predicts %s, the file's %s.",
            _listed(here), _listed(there),
        )  # fmt: skip
    elif None in places:
        anew = [name for name, place in zip(here, places, strict=True) if place is None]
        same = [name for name in here if name not in anew]
        log.warning(
            "init_from: the head's last layer is loaded for %s; %s start from random weights.",
            _listed(same),
            _listed(anew),
        )
    else:
        log.info(
            "init_from: the rows of the head's last layer are reordered to %s; the file has %s.",
            *map(_listed, (here, there)),
        )


def _warn_of_features(spec: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Name features that stand where the file's model read others, so that they get the weights of those."""
    for level in ("node", "edge"):
        here, there = spec[level], stored.get(level)
        if not isinstance(there, Mapping):
            continue
        names, others = list(here["names"]), there.get("names")
        sizes = list(here["vocabularies"]), here["dense"]
        if not (names and others and isinstance(others, (list, tuple)) and list(others) != names):
            continue
        if sizes == (list(there.get("vocabularies", ())), there.get("dense")):
            log.warning(
                "init_from: features of each %s are %s here and were %s in the file's model; weights are taken by "
                "place, not by name.",
                level, _listed(names), _listed(list(map(str, others))),
            )  # fmt: skip


def _listed(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
