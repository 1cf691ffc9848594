"""Start from weights of another model, matched by name and shape, and outputs matched by the names of targets."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from graphbench.errors import BadInput, listed
from graphbench.nn.heads import EdgeHead, GraphHead, NodeHead
from graphbench.runs import weights
from graphbench.runs.checkpoints import load_checkpoint, weights_file
from graphbench.runs.differences import differing_options
from graphbench.training.parts import check_loaded

if TYPE_CHECKING:
    from graphbench.training.module import BenchmarkModule

log = logging.getLogger(__name__)

#: Changes the tensors of a file in place, given the hyper-parameters of its model; returns names not to load.
Arrange = Callable[[dict[str, Tensor], Mapping[str, Any]], Collection[str]]
#: Kind of weights that were not loaded -> the reason.
_NOT_LOADED = {
    "missing": "the file lacks them, so they keep their initial values",
    "unused": "this model has none of these names",
    "other_shape": "the file has them in another shape, so they keep their initial values",
    "other_targets": "they belong to other targets in the file, so they keep their initial values",
}
#: Buffers of a regression with one number per target.
_OF_TARGETS = ("task.offset", "task.scale", "task.deviation")
#: Place of an output of this model in the file: its row and its sign; None if it is not there.
_Place = tuple[int, int] | None


def start_from(module: BenchmarkModule, source: str) -> None:
    """Load the weights of `BenchmarkModule(init_from=source)`."""
    outcome = load_matching(module, source, partial(arrange_outputs, module))
    check_loaded(module.frozen, outcome, source)


def load_matching(module: nn.Module, path: str | Path, arrange: Arrange | None = None) -> dict[str, list[str]]:
    """Copy the weights of a checkpoint into `module` if name and shape match, and log the others.

    PyTorch's extra state of modules, such as options, is not copied: it belongs to the trained model.

    Returns:
        Names by outcome: `loaded`; `missing` (the file lacks them), `other_shape` and `other_targets` (returned by
        `arrange`), which keep their initial values; and `unused` (the module lacks them).
    """
    file = weights_file(path)
    content = load_checkpoint(file)
    source, target = _tensors(content.get("state_dict", content)), _tensors(module.state_dict())
    others = set(arrange(source, _hyper_parameters(file, content))) if arrange else set()
    shared = [name for name in target if name in source and name not in others]
    outcome = {
        "loaded": [name for name in shared if source[name].shape == target[name].shape],
        "missing": [name for name in target if name not in source],
        "unused": [name for name in source if name not in target],
        "other_shape": [name for name in shared if source[name].shape != target[name].shape],
        "other_targets": [name for name in target if name in others],
    }
    if not outcome["loaded"]:
        raise BadInput(f"init_from: no weight of {path} fits this model by name and shape.")
    module.load_state_dict({name: source[name] for name in outcome["loaded"]}, strict=False)
    loaded = ", ".join(folded(outcome["loaded"], target))
    counts = len(outcome["loaded"]), len(target)
    log.info("init_from %s: %d of the model's %d tensors loaded from %s: %s", path, *counts, file, loaded)
    for kind, reason in _NOT_LOADED.items():
        if outcome[kind]:
            names = ", ".join(folded(outcome[kind], source if kind == "unused" else target))
            log.warning("init_from %s: not loaded, since %s: %s", path, reason, names)
    return outcome


def _hyper_parameters(file: Path, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the hyper-parameters stored with a file's model, as plain values; exports have only `spec`."""
    if file.suffix == weights.SUFFIX:
        return {"spec": weights.read_specification(file)}
    stored = content.get("hyper_parameters")
    return stored if isinstance(stored, Mapping) else {}


def folded(names: Collection[str], every: Iterable[str], above: str = "") -> list[str]:
    """Shorten dotted names: if all n > 1 tensors of a part are named, they become `part.* (n)`.

    `every` has all names of the model, or of its part `above`, in order.
    """
    parts: dict[str, list[str]] = {}
    for name in every:
        parts.setdefault(above + name.removeprefix(above).partition(".")[0], []).append(name)
    short: list[str] = []
    for part, inside in parts.items():
        named = [name for name in inside if name in names]
        if len(named) == len(inside) > 1:
            short.append(f"{part}.* ({len(inside)})")
        elif len(inside) > 1 and named:
            short += folded(named, inside, f"{part}.")
        else:
            short += named
    return short


def _tensors(state: dict[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def arrange_outputs(module: BenchmarkModule, tensors: dict[str, Tensor], made: Mapping[str, Any]) -> list[str]:
    """Reorder the head's last layer to match the module's targets (or classes) by name.

    Rows of targets that the file's model did not have are not changed. Nothing changes if one side does not name its
    targets. Warnings list features and options that differ from the file's; their weights are matched by position.

    The file's `tensors` are changed in place; `made` has its model's hyper-parameters (`spec`, `architecture`, ...), as
    plain values. The result lists tensors that belong to entirely different targets, or would freeze random rows.
    """
    spec, stored = dataclasses.asdict(module.spec), made.get("spec")
    stored = stored if isinstance(stored, Mapping) else {}
    _warn_of_features(spec, stored)
    # Weights may match in shape but have another meaning in another encoder, head or norm.
    if different := differing_options(module.hparams, made, ("architecture", "positional_encoding", "head")):
        log.warning(
            "init_from: options differ from the file's model: %s; weights whose names and shapes match are loaded.",
            listed(different),
        )
    names, stored_names = _output_names(spec), _output_names(stored)
    if not names or not stored_names or names == stored_names:
        return []
    head = getattr(module.task, "head", None)
    if not isinstance(head, (GraphHead, NodeHead, EdgeHead)):
        log.warning(
            "init_from: the file's model predicts %s, this one %s; outputs are matched by position.",
            listed(stored_names),
            listed(names),
        )
        return []
    places = _places(names, stored_names, _is_binary(spec), _is_binary(stored))
    last = f"task.head.mlp.layers.{len(head.mlp.layers) - 1}."
    state = module.state_dict()
    other = []
    for name in [f"{last}weight", f"{last}bias", *_OF_TARGETS]:
        if name not in tensors or name not in state:
            continue
        count = 1 if _is_binary(stored) else len(stored_names)  # two classes have one output
        rows = _rows_at(places, state[name], tensors[name], count)
        if rows is None or not any(places) or (None in places and name in module.frozen):
            other.append(name)
        else:
            tensors[name] = rows
    _log_outputs(names, stored_names, places, taken=f"{last}weight" not in other)
    return other


def _output_names(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of a model's outputs, its classes or its targets; empty unless all are named."""
    names, count = spec.get("target_names"), spec.get("num_classes") or spec.get("num_targets")
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return []
    return list(names) if len(names) == len(set(names)) == count else []


def _is_binary(spec: Mapping[str, Any]) -> bool:
    return spec.get("num_classes") == 2


def _places(names: list[str], stored_names: list[str], is_binary: bool, was_binary: bool) -> list[_Place]:
    """Return the place of each output in the file; the logit of two classes changes its sign with their order.

    Examples:
        >>> _places(["b", "c", "a"], ["a", "b"], False, False)
        [(1, 1), None, (0, 1)]
        >>> _places(["no", "yes"], ["yes", "no"], True, True)
        [(0, -1)]
    """
    if is_binary:
        return [(0, -1) if was_binary and names == stored_names[::-1] else None]
    if was_binary:
        return [None] * len(names)
    return [(stored_names.index(name), 1) if name in stored_names else None for name in names]


def _rows_at(places: list[_Place], random: Tensor, given: Tensor, count: int) -> Tensor | None:
    """Return rows of `given` at `places` (of `count`), and of `random` elsewhere; None if their rows per target differ.

    Losses with a spread have k rows per target: first one prediction for each target, then k - 1 rows target by target.
    """
    per_target, rest = divmod(len(random), len(places))
    if rest or len(given) != per_target * count or random.shape[1:] != given.shape[1:]:
        return None
    rows, further = random.clone(), per_target - 1
    for target, place in enumerate(places):
        if place is None:
            continue
        row, sign = place
        rows[target] = sign * given[row]
        start, stored = len(places) + target * further, count + row * further
        rows[start : start + further] = given[stored : stored + further]
    return rows


def _log_outputs(names: list[str], stored_names: list[str], places: list[_Place], taken: bool) -> None:
    """Log which outputs are loaded from the file and which start from random weights."""
    if not taken:
        log.warning(
            "init_from: the head's last layer starts from random weights: this model predicts %s, the file's %s.",
            listed(names), listed(stored_names),
        )  # fmt: skip
    elif None in places:
        random = [name for name, place in zip(names, places, strict=True) if place is None]
        loaded = [name for name in names if name not in random]
        log.warning(
            "init_from: the head's last layer is loaded for %s; %s start from random weights.",
            listed(loaded),
            listed(random),
        )
    else:
        log.info(
            "init_from: the rows of the head's last layer are reordered to %s; the file has %s.",
            *map(listed, (names, stored_names)),
        )


def _warn_of_features(spec: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Warn about columns that differ from those of the file's model, whose weights they get if the shapes match."""
    for level in ("node", "edge", "graph"):
        features, read = spec[level], stored.get(level)
        if not isinstance(read, Mapping) or not (features["names"] and read.get("names")):
            continue
        with_words = "words" in read  # earlier versions stored none
        now, then = _columns(features, with_words), _columns(read, with_words)
        if now != then:
            if len(now) == len(then):  # only those that differ
                now, then = map(
                    list, zip(*(pair for pair in zip(now, then, strict=True) if pair[0] != pair[1]), strict=True)
                )
            log.warning(
                "init_from: features of each %s are %s here and were %s in the file's model; weights whose shapes "
                "match are loaded by position, not by name.",
                level, listed(now), listed(then),
            )  # fmt: skip


def _columns(features: Mapping[str, Any], with_words: bool) -> list[str]:
    """Describe each column by its name and, if it is categorical, its categories or their number.

    Examples:
        >>> features = {"names": ["colour", "order", "mass"], "vocabularies": [2, 3], "words": [["red", "blue"], []]}
        >>> _columns(features, with_words=True)
        ['colour (red, blue)', 'order (3)', 'mass']
    """
    names, sizes = list(map(str, features["names"])), list(features.get("vocabularies") or ())
    words = list(features.get("words") or ()) if with_words else []
    words += [()] * (len(names) - len(words))
    inside = [listed(list(words[n])) or str(size) for n, size in enumerate(sizes[: len(names)])]
    return [f"{name} ({text})" for name, text in zip(names, inside, strict=False)] + names[len(inside) :]
