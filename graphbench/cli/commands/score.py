"""`graphbench test` and `graphbench validate`: score a run's best checkpoint."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphbench.cli.changes import altered_options
from graphbench.cli.console import show_table
from graphbench.cli.external import check_input_options, score_input
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.measures import count_parameters, scores_of
from graphbench.cli.options import OWN, Request, own_parser, split
from graphbench.cli.same_data import SameData
from graphbench.cli.trained import checkpoint_of, written_together
from graphbench.registry.expected import Comparison, Expected, Obtained, compare, kind_of_data
from graphbench.runs import RunFolder
from graphbench.runs.tables import show_number
from graphbench.training.baselines import baselines_of

log = logging.getLogger(__name__)
Baselines = Mapping[str, Mapping[str, Mapping[str, float]]]
#: Relative difference of scores that another order of additions explains.
_ROUNDING = 1e-5
#: Options of a recipe that a line names as altered.
_MOST_ALTERED = 6


def validate(arguments: Sequence[str]) -> int:
    """Score the validation split of a run's best checkpoint."""
    return _score(arguments, "validate", ("val",))


def test(arguments: Sequence[str]) -> int:
    """Score validation and test split of a run's best checkpoint, or a labelled file, beside baselines."""
    return _score(arguments, "test", ("val", "test"))


def _score(arguments: Sequence[str], command: str, splits: Sequence[str]) -> int:
    request = split(own_parser(command, **OWN[command]), arguments)
    if command == "test":
        check_input_options(request)
        if request.own.input is not None:
            if score_input(request):
                _write_page(request.run)
            return 0
    path = checkpoint_of(request)
    if request.run is not None and request.own.checkpoint is None:
        request.run.read_results()  # a torn file must be named before anything is computed
    with written_together(request) as (staged, folder):
        is_recorded = _score_splits(request, path, splits, folder, staged)
    if is_recorded:
        _write_page(request.run)
    return 0


def _write_page(run: RunFolder | None) -> None:
    """Write the report of a run anew."""
    from graphbench.report import write_report  # draws, which takes its time to import

    assert run is not None
    write_report([run], run.report)
    log.info("Report: %s", run.report)


def _score_splits(
    request: Request, checkpoint: Path, splits: Sequence[str], folder: Sequence[str], staged: RunFolder | None
) -> bool:
    """Score and show; whether the scores are recorded in `staged`."""
    same = SameData(request.run, request.own.data_changed)
    cli = GraphbenchCLI([*request.arguments, *folder])
    cli.trainer.callbacks.append(same)  # type: ignore[attr-defined]
    cli.datamodule.prepare_data()
    cli.datamodule.setup()
    cli.datamodule.require_rows(splits[-1])
    splits = [name for name in splits if not cli.datamodule.is_empty(name)]
    scores: dict[str, Mapping[str, float]] = {}
    undefined: dict[str, str] = {}
    for name in splits:
        evaluate = cli.trainer.validate if name == "val" else cli.trainer.test
        logged = evaluate(cli.model, cli.datamodule, ckpt_path=str(checkpoint), verbose=False, weights_only=True)[0]
        scores[name] = scores_of(name, logged)
        undefined |= cli.model.scores.of(name).undefined
    if not cli.trainer.is_global_zero:
        return False
    others = baselines_of(cli.model, cli.datamodule, splits)
    comparison = _beside_expected(cli, request, scores)
    _show(cli, scores, others, comparison)
    if request.run is None or staged is None or request.own.checkpoint is not None:
        return False
    _record(request.run, staged, scores, others, comparison, "; ".join(same.differences), undefined)
    request.run.report.unlink(missing_ok=True)  # a kill before the next one is written must not leave it beside these
    return True


def _beside_expected(
    cli: GraphbenchCLI, request: Request, scores: Mapping[str, Mapping[str, float]]
) -> Comparison | None:
    """The score beside the one that the configuration expects; None where it expects none of these."""
    stored = request.run.read_results() if request.run is not None and request.own.checkpoint is None else {}
    obtained = Obtained(
        scores={name: value for split in scores.values() for name, value in split.items()},
        parameters=count_parameters(cli.model),
        epochs=stored.get("epochs"),
        steps=stored.get("steps"),
        data=kind_of_data(cli.model.spec),
        higher_is_better=cli.model.spec.higher_is_better,
        ended_by_rate=bool(stored.get("ended_by_rate")),
    )
    expected: Expected = cli.config_init["expected"]
    here = [str(one) for one in altered_options(request)]
    expected = dataclasses.replace(expected, altered=[*expected.altered, *here])
    others = [*expected.altered, *expected.resumed]
    if others and expected.chosen.value is not None:
        more = f", and {len(others) - _MOST_ALTERED} more" if len(others) > _MOST_ALTERED else ""
        log.info("No score is expected of a run that alters its recipe: %s%s.", "; ".join(others[:_MOST_ALTERED]), more)
    return compare(expected, obtained)


def _record(
    run: RunFolder,
    staged: RunFolder,
    scores: Mapping[str, Mapping[str, float]],
    others: Baselines,
    comparison: Comparison | None,
    data_changed: str,
    undefined: Mapping[str, str],
) -> None:
    """Hold the validation scores against those at the end of fit, then stage what is new; on other data, say so."""
    stored = run.read_results().get("val")
    if stored is not None and "val" in scores:
        log.info("Validation scores %s those stored at the end of fit.", _agreement(stored, scores["val"]))
    if "test" in scores:
        kept = {name: value for name, value in run.read_results().items() if name not in ("expected", "data_changed")}
        noted: dict[str, Any] = {} if comparison is None else {"expected": comparison.as_dict()}
        noted |= {"data_changed": data_changed} if data_changed else {}
        noted["undefined"] = dict(undefined)
        staged.write_results(kept | {"test": dict(scores["test"]), "baselines": others} | noted)


def _agreement(stored: Mapping[str, Any], found: Mapping[str, float]) -> str:
    """How scores of the same weights compare; another device or number of processes adds up in another order.

    What is stored may be damaged: anything but a number differs.

    Examples:
        >>> _agreement({"val/MAE": 0.5}, {"val/MAE": 0.5000001})
        'equal, up to rounding,'
        >>> _agreement({"val/MAE": 0.5, "val/loss": 1.0}, {"val/MAE": 0.6, "val/loss": 1.0})
        'DIFFER (val/MAE 0.6, was 0.5) from'
        >>> _agreement({"val/MAE": [0.5]}, {"val/MAE": 0.5})
        'DIFFER (val/MAE 0.5, was [0.5]) from'
    """
    if stored == found:
        return "equal"
    known = {name: value for name, value in found.items() if math.isfinite(value)}
    stored = {name: value for name, value in stored.items() if value is not None}  # which is how a file has NaN
    if stored == known:
        return "equal"
    told = []
    for name in sorted(stored.keys() | known.keys()):
        one, two = stored.get(name), known.get(name)
        numbers = isinstance(one, int | float) and isinstance(two, int | float)
        if not (numbers and math.isclose(one, two, rel_tol=_ROUNDING, abs_tol=_ROUNDING)):  # type: ignore[arg-type]
            told.append(f"{name} {two}, was {one}")
    return f"DIFFER ({'; '.join(told)}) from" if told else "equal, up to rounding,"


def _show(
    cli: GraphbenchCLI,
    scores: Mapping[str, Mapping[str, float]],
    others: Baselines,
    comparison: Comparison | None,
) -> None:
    """The table: this model, what its configuration expects, then the baselines of the benchmark on the same splits.

    A row each, or a column each where the scores of a row would not fit beside each other.
    """
    spec = cli.model.spec
    names = [key.partition("/")[2] for key in next(iter(scores.values()))]
    names = [spec.metric, *(name for name in names if name not in (spec.metric, "loss"))]
    header = ["model", *(f"{split} {name}" for split in scores for name in names)]
    rows = [[type(cli.model.architecture).__name__, *_row(scores, names)]]
    if comparison is not None:
        rows.append(["expected", *_expected_row(comparison, scores, names)])
    for baseline, values in others.items():
        rows.append([baseline, *_row(values, names)])
    one_unit = len(set(spec.target_units)) == 1 and spec.target_units[0] and not spec.metric.startswith("scaled_")
    unit = f" [{spec.target_units[0]}]" if one_unit else ""
    arrow = "higher" if spec.higher_is_better else "lower"
    show_table(f"{spec.name}{unit}, {arrow} {spec.metric} is better", header, rows, corner="score")
    if comparison is not None:
        print(comparison)


def _expected_row(comparison: Comparison, scores: Iterable[str], names: Sequence[str]) -> list[str]:
    """The expected score in its column."""
    columns = [f"{split}/{name}" for split in scores for name in names]
    return [comparison.expected if column == comparison.metric else "-" for column in columns]


def _row(scores: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> list[str]:
    return [
        show_number(value) if math.isfinite(value := scores[split].get(f"{split}/{name}", math.nan)) else "-"
        for split in scores
        for name in names
    ]
