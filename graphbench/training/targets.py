"""Inspect the training targets before the first step: their statistics, and the scores that they define."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torchmetrics import Metric

from graphbench.contracts.benchmark import Benchmark
from graphbench.contracts.spec import SPLITS, BenchmarkSpec
from graphbench.contracts.table import BOUNDS, GRAPH_DENSE, WEIGHT, GraphBatch
from graphbench.errors import BadInput, listed
from graphbench.training.lightning_internals import attached_trainer
from graphbench.training.tasks.base import target_labels
from graphbench.training.tasks.classification import Classification
from graphbench.training.tasks.defined import TargetRange
from graphbench.training.tasks.multilabel import Multilabel
from graphbench.training.tasks.regression import Regression
from graphbench.training.tasks.scores import SplitScores

if TYPE_CHECKING:
    from graphbench.training.module import BenchmarkModule

log = logging.getLogger(__name__)
#: Share of one class in the training rows above which accuracy is a poor criterion for selecting an epoch.
_MOSTLY = 0.9
#: Number of rows on which the user's metrics are tried before training.
_TRIED = 1000
#: Maximum number of targets or scores that a message names.
_NAMED = 8


def check_data(module: BenchmarkModule) -> None:
    """Refuse a benchmark for which a module was not built, or which does not prepare what its model reads."""
    data: Any = getattr(attached_trainer(module), "datamodule", None)
    if not isinstance(data, Benchmark):
        return
    made_for, has = _shapes(module.spec), _shapes(data.spec)
    other = next((what for what in has if has[what] != made_for[what]), None)
    if other is not None:
        raise BadInput(
            f"The module was made for {module.spec.name} ({other}: {made_for[other]}), but the data are "
            f"{data.spec.name} ({other}: {has[other]}). Build a module for them: graphbench.build(architecture, data)."
        )
    prepared = {encoding.name: encoding.parameters() for encoding in data.encodings}
    lacking = [one for one in module.required_encodings() if prepared.get(one.name) != one.parameters()]
    if lacking:
        raise BadInput(
            f"The model reads {', '.join(map(str, lacking))}, which {data.spec.name} does not prepare: call "
            "data.require(module.required_encodings()) first, as graphbench.build does."
        )


def _shapes(spec: BenchmarkSpec) -> dict[str, object]:
    """Return the facts that determine the shapes of a model."""
    return {
        "task": f"{spec.level} {spec.kind}",
        "classes": spec.num_classes,
        "targets": spec.num_targets,
        "categories of nodes": spec.node.vocabularies,
        "numbers of nodes": spec.node.dense,
        "categories of edges": spec.edge.vocabularies,
        "numbers of edges": spec.edge.dense,
        "coordinates": spec.coordinates,
        "numbers of graphs": spec.graph.dense,
    }


def learn(module: BenchmarkModule) -> None:
    """Compute mean and deviation of the training targets and of graphs' numbers, or the weights of classes."""
    columns = _columns(module, "train")
    if columns is None:
        for option, is_set in (
            ("standardize_targets", module.standardize_targets and module._standardizes_by_option),
            ("class_weights", module.class_weights is not None),
        ):
            if is_set:
                raise BadInput(f"{option} needs a graphbench benchmark as the trainer's data module.")
        if module.standardize_targets and attached_trainer(module) is not None:
            log.warning("Targets are not standardised: the trainer has no graphbench benchmark as its data module.")
        return
    # Not for the test split, which is not used before the end.
    log_bounds(module, ("train", "val"))
    numbers = getattr(getattr(module.task, "head", None), "numbers", None)
    if numbers is not None:
        numbers.measure(columns[GRAPH_DENSE])
    if isinstance(module.task, Regression):
        for column in module.task.measure(columns["y"]):
            name = target_labels(module.spec)[column]
            is_known = not bool(columns["y"].reshape(len(columns["y"]), -1)[:, column].isnan().all())
            has = "one value in all training rows" if is_known else "an exact value in no training row"
            log.warning("%s: the target %s has %s.", module.spec.name, name, has)
        _warn_of_labels(module, columns["y"])
        if module.standardize_targets:
            module.task.standardize(columns["y"])
    elif isinstance(module.task, Classification | Multilabel):
        module.task.set_class_weights(columns["y"], columns.get(WEIGHT))
    if isinstance(module.task, Classification):
        _check_classes(module, columns["y"])


def add_deviations(module: BenchmarkModule, state: dict[str, Any]) -> None:
    """Add the deviations of the training targets, by which scaled errors are divided, to weights of earlier versions.

    Weights trained on standardised targets have them as `scale`; others have none, and errors would not be scaled.
    """
    columns, scale = _columns(module, "train"), state.get("task.scale")
    task = module.task
    if columns is None or "task.deviation" in state or scale is None or bool((scale != 1).any()):
        return
    if isinstance(task, Regression) and "deviation" in task.state_dict():
        task.measure(columns["y"])
        state["task.deviation"] = task.deviation.detach().clone()


def log_bounds(module: BenchmarkModule, splits: Iterable[str]) -> None:
    """Log how many targets of each split are bounds, for which losses are one-sided and which scores omit."""
    for split in splits:
        columns = _columns(module, split) or {}
        bounded = [~columns[name].isnan() for name in BOUNDS if name in columns]
        if not bounded or not module.trainer.is_global_zero:
            continue
        counts = torch.stack(bounded).any(0).sum(0).tolist()
        exact = (~columns["y"].isnan()).sum(0).tolist()  # a bounded cell is NaN in `y`
        names = target_labels(module.spec)
        shares = [f"{n} of {k + n} of {name}" for name, n, k in zip(names, counts, exact, strict=True) if n]
        if shares:
            log.info(
                "%s: bounds (such as >10) in %s: %s; their loss is one-sided, and no score counts them.",
                module.spec.name, split, ", ".join(shares),
            )  # fmt: skip


def _columns(module: BenchmarkModule, split: str) -> Mapping[str, torch.Tensor] | None:
    """Return the columns of a split; None without a benchmark."""
    tables: Any = getattr(getattr(attached_trainer(module), "datamodule", None), "tables", None)
    return tables[split].columns if tables and split in tables and "y" in tables[split].columns else None


def _check_classes(module: BenchmarkModule, y: torch.Tensor) -> None:
    """Warn about classes without a training row; raise `BadInput` if all rows are of one class."""
    labels = y.reshape(-1).long()
    counts = torch.bincount(labels[labels >= 0], minlength=module.task.spec.num_classes or 0)
    absent = torch.nonzero(counts == 0).flatten().tolist()
    name = module.spec.name
    if len(counts) - len(absent) == 1:
        single = int(counts.argmax())
        raise BadInput(
            f"{name}: all {int(counts.sum())} training rows are of class {single}, so there is nothing to learn; a "
            "classification needs rows of two classes in the training split."
        )
    if absent:
        log.warning("%s: no training row is of class %s, which the model cannot learn.", name, listed(absent, 10))
    most, rows = int(counts.max()), int(counts.sum())
    if module.spec.metric == "accuracy" and most > _MOSTLY * rows:
        others = (name for name in ("AUROC", "class_accuracy") if name in module.task.all_metrics())
        log.warning(
            "%s: %s of %s training rows are of one class, so accuracy, which selects the best epoch, hardly depends on "
            "the others. --model.select_by %s does; --model.class_weights balanced gives rare rows more weight.",
            name, f"{most:,}", f"{rows:,}", " or ".join(others),
        )  # fmt: skip


def _warn_of_labels(module: BenchmarkModule, y: torch.Tensor) -> None:
    """Warn about regression targets that are 0 or 1 in every training row, which are probably labels."""
    values = y.reshape(len(y), -1)
    is_zero, is_one = values == 0, values == 1
    labels = (is_zero | is_one | values.isnan()).all(0) & is_zero.any(0) & is_one.any(0)
    if bool(labels.any()) and module.trainer.is_global_zero:
        names = [name for name, is_label in zip(target_labels(module.spec), labels.tolist(), strict=True) if is_label]
        log.warning(
            "%s: every training row has 0 or 1 for %s, treated as a number. For labels, with probabilities and "
            "AUROC, use --data.task multilabel (for Graphs graph-multilabel or node-multilabel).",
            module.spec.name, listed(names, _NAMED),
        )  # fmt: skip


def undefined(module: BenchmarkModule, split: str) -> dict[str, str]:
    """Return metrics that the targets of a split do not define, with the reason; none without access to the targets."""
    columns = _columns(module, split)
    targets = None if columns is None else module.task.known_targets(columns["y"])
    if targets is None:
        return {}
    return module.task.undefined(TargetRange.of(targets, module.task.discrete))


def check_metrics(module: BenchmarkModule) -> None:
    """Try the user's metrics on some validation targets; raise `BadInput` if one gives no number or does not fit."""
    columns, task = _columns(module, "val"), module.task
    if columns is None or not task.further or not len(columns["y"]):
        return
    targets = predictions = columns["y"][:_TRIED]
    if not targets.is_floating_point():  # stored in fewer bits
        targets = predictions = targets.long()
    if type(task).predict in (Classification.predict, Multilabel.predict):
        predictions, targets = task.predict(torch.zeros(len(targets), task.spec.output_dim), GraphBatch(y=targets))
    elif not isinstance(task, Regression):  # others may read more of a batch than its targets
        return
    scores = SplitScores(task, "val")
    for metric in scores.modules():
        if isinstance(metric, Metric):  # each process tries its own: these tensors are not on its GPU
            metric.distributed_available_fn = lambda: False
    scores.add(task, predictions, targets)
    scores.finish()


def check_selection(module: BenchmarkModule) -> None:
    """Check that the validation targets define the scores that select an epoch."""
    trainer = attached_trainer(module)
    if trainer is None or trainer.limit_val_batches == 0:
        return
    data: Any = getattr(trainer, "datamodule", None)
    if isinstance(data, Benchmark) and data.is_empty("val"):  # no epoch is selected
        return
    # Now, not after an epoch: a metric that is always NaN selects nothing, which would show only hours later.
    reasons = undefined(module, "val")
    watched = {module.spec.metric: "selects the best epoch"}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        split, _, name = str(getattr(callback, "monitor", None) or "").partition("/")
        if split == "val":
            watched.setdefault(name, f"is what {type(callback).__name__} watches")
    defined = " or ".join(name for name in module.task.all_metrics() if name not in reasons)
    advice = f", or select by another metric (--model.select_by {defined})" if defined else ""
    for name, role in watched.items():
        if name in reasons:
            sizes = [len(trainer.datamodule.tables[split]) for split in SPLITS]  # type: ignore[attr-defined]
            raise BadInput(
                f"{module.spec.name}: val/{name} {role}, but is undefined on the validation split: {reasons[name]} "
                f"(graphs in train, val, test: {', '.join(map(str, sizes))}). Give a split whose validation part "
                f"defines it{advice}."
            )
    warn_of_undefined({f"val/{name}": reason for name, reason in reasons.items()}, module)


def finish(module: BenchmarkModule, split: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return scores of a split by logged name, and those of each target; log undefined scores once."""
    scores = module.scores.of(split)
    values = scores.finish()
    if not module.trainer.sanity_checking:  # which sees only a few batches
        warn_of_undefined(scores.undefined, module)
    of_targets = {name: value for name, value in values.items() if name.count("/") > 1}
    return {name: value for name, value in values.items() if name not in of_targets}, of_targets


def warn_of_undefined(reasons: Mapping[str, str], module: BenchmarkModule) -> None:
    """Log scores without a number, by logged name, and the reason; each once per module."""
    fresh: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if (name, reason) not in module.logged_undefined:
            module.logged_undefined.add((name, reason))
            fresh.setdefault(reason, []).append(name)
    for reason, names in fresh.items():
        if module.trainer.is_global_zero:
            log.warning("%s: no number for %s: %s.", module.spec.name, listed(names, _NAMED), reason)
