"""Choices that replace or extend a benchmark's: the loss, further metrics, and the metric that selects an epoch."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.errors import BadInput, UnknownName
from graphbench.registry.importing import import_object
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.scores import gives_each

#: A value of `--model.metrics`.
Choice = str | Metric | Mapping[str, Any]


def with_loss(spec: BenchmarkSpec, task: type[Task], loss: str | None) -> BenchmarkSpec:
    """Return the specification with a loss of the task, whose name may be in upper or lower case.

    A dotted path is a custom loss, see `import_loss`; the head is then that of the task's first loss. With losses of
    single targets (`logS=Huber,pKa=L1`) the other targets keep the specification's loss, see `target_losses`.

    Examples:
        >>> from graphbench.training.tasks import GraphRegression
        >>> from graphbench.testing import tiny_spec
        >>> with_loss(tiny_spec(), GraphRegression, "huber").loss
        'Huber'
    """
    if loss is None:
        return spec
    if "=" in loss:
        if task.kind != "regression":
            raise BadInput(f"--model.loss {loss}: losses of single targets are for regressions, not for {spec.task}.")
        return spec
    if "." in loss:
        if not task.comparable:
            raise BadInput(f"--model.loss: {spec.task} supports only {', '.join(task.losses)}, not {loss!r}.")
        return dataclasses.replace(spec, loss=task.losses[0])
    names = {name.casefold(): name for name in task.losses}
    if loss.casefold() not in names:
        raise UnknownName(f"loss of {spec.task}", loss, task.losses, "Choose one with --model.loss.")
    return dataclasses.replace(spec, loss=names[loss.casefold()])


def target_losses(text: str) -> dict[str, str]:
    """Parse losses of single targets.

    Examples:
        >>> target_losses("logS=Huber, pKa=L1")
        {'logS': 'Huber', 'pKa': 'L1'}
    """
    losses: dict[str, str] = {}
    for item in text.split(","):
        name, equals, loss = (part.strip() for part in item.rpartition("="))
        if not (equals and name and loss) or name in losses:
            raise BadInput(f"--model.loss: expected TARGET=LOSS per target, as in 'logS=Huber,pKa=L1', not {text!r}.")
        losses[name] = loss
    return losses


def import_loss(path: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Import a loss by its dotted path: `torch.nn.SmoothL1Loss`, `my_package.losses.LogCosh`, or a function.

    A class is created without options except `reduction="none"`, if it accepts that, so that rows may have weights. The
    loss gets `(prediction, target)` of the rows whose targets are known: standardised numbers `[rows]`, logits `[rows]`
    of labels, or logits `[rows, C]` with classes `[rows]`; it returns one value per row, or their mean.

    Examples:
        >>> import torch
        >>> import_loss("torch.nn.SmoothL1Loss")(torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.0]))
        tensor([0.1250, 1.5000])
    """
    loss = _import("--model.loss", path)
    if inspect.isclass(loss):
        # If a class can return one value per row, rows may have weights.
        options = {"reduction": "none"} if "reduction" in inspect.signature(loss).parameters else {}
        try:
            loss = loss(**options)
        except TypeError as error:
            raise BadInput(f"--model.loss: {path} needs options ({error}); name one that needs none.") from error
    if not callable(loss):
        raise BadInput(f"--model.loss: {path} is {type(loss).__name__}, not a loss: loss(prediction, target).")
    try:
        signature = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    except ValueError:  # torch functions written in C++ have no signature
        return loss
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise BadInput(f"--model.loss: {path} is not a loss(prediction, target): {error}.") from error
    return loss


def further_metrics(task: Task, chosen: Iterable[Choice]) -> dict[str, Metric]:
    """Return metrics, by logged name, in addition to those that the task always scores.

    Choices are the task's names in upper or lower case; dotted paths of torchmetrics or another package, plain or as
    `class_path` with `init_args`; or metric objects. Names of metrics that the task always scores add nothing.

    Examples:
        >>> from graphbench.nn.heads import HeadConfig
        >>> from graphbench.training.tasks import GraphRegression
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphRegression(tiny_spec(), dim=8, head=HeadConfig())
        >>> list(further_metrics(task, ["spearman", "torchmetrics.regression.ExplainedVariance"]))
        ['Spearman', 'ExplainedVariance']
    """
    metrics_by_name: dict[str, Metric] = {}
    scored = {name.casefold() for name in task.build_metrics()}
    for choice in chosen:
        if isinstance(choice, str) and choice.casefold() in scored:
            continue
        name, metric = _one(task, choice)
        if name in metrics_by_name or name.casefold() in scored:
            raise BadInput(f"metrics: {name} is scored already; leave it out.")
        metrics_by_name[name] = metric
    if metrics_by_name and not task.comparable:
        raise BadInput(
            f"metrics: {task.spec.task} has its own metrics ({', '.join(task.build_metrics())}) and accepts no others."
        )
    return metrics_by_name


def _one(task: Task, choice: Choice) -> tuple[str, Metric]:
    if isinstance(choice, Metric):
        return type(choice).__name__, choice
    if isinstance(choice, Mapping):
        return _made(str(choice.get("class_path", "")), dict(choice.get("init_args") or {}))
    if "." in choice:
        return _made(choice, {})
    named = task.named_metrics()
    names = {name.casefold(): name for name in named}
    if choice.casefold() in names:
        name = names[choice.casefold()]
        return name, named[name]
    every = [*named, *task.build_metrics()]
    raise UnknownName(
        f"metric of {task.spec.task}", choice, every, "All of torchmetrics by path: torchmetrics.regression.R2Score."
    )


def _made(path: str, options: dict[str, Any]) -> tuple[str, Metric]:
    """Create the metric of a dotted path."""
    make = _import("metrics", path)
    try:
        made = make(**options)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"metrics: {path} needs other options ({error}). Write it as class_path: {path} with init_args."
        ) from error
    if not isinstance(made, Metric):
        raise BadInput(f"metrics: {path} is not a torchmetrics metric.")
    return path.rpartition(".")[2], made


def _import(option: str, path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return import_object(module, name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{option}: {path!r} cannot be imported: {error}.") from error


def selecting(spec: BenchmarkSpec, task: Task, name: str | None) -> BenchmarkSpec:
    """Return the specification with the named metric of the task, in upper or lower case, to select the best epoch."""
    if name is None:
        return spec
    metrics = task.all_metrics()
    names = {metric.casefold(): metric for metric in metrics}
    if name.casefold() not in names:
        raise UnknownName("metric that is scored", name, metrics, "Add others with --model.metrics.")
    chosen = names[name.casefold()]
    better = metrics[chosen].higher_is_better
    if chosen == spec.metric:
        return spec
    if gives_each(metrics[chosen]):
        raise BadInput(f"select_by: {chosen} gives a number for each class, but selecting an epoch needs one number.")
    if better is None:
        raise BadInput(f"select_by: {chosen} does not say whether higher is better, so it cannot select an epoch.")
    return dataclasses.replace(spec, metric=chosen, higher_is_better=better)
