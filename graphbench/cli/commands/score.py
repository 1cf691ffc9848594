"""`graphbench test` and `graphbench validate`: score a run's best checkpoint on its splits, or on a labelled file."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from graphbench.cli.command_line import CommandLine
from graphbench.cli.console import count_parameters, scores_of, show_line, show_table
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request, own_parser, parse_request
from graphbench.cli.released import OFFICIAL, check_weights, load_released
from graphbench.cli.resume import altered_options
from graphbench.cli.same_data import SameData
from graphbench.cli.split_predictions import KeepPredictions, write_kept
from graphbench.cli.trained import (
    checkpoint_of,
    describe_model,
    may_keep,
    open_data,
    predictor_of,
    write_page,
    written_together,
)
from graphbench.cli.trainer_checks import is_whole, refuse_loggers, require_whole
from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, GraphbenchError, check_choice
from graphbench.inference.external import ExternalResult, ExternalScores
from graphbench.inference.output import counted, write_frames
from graphbench.inference.predictor import Predictor
from graphbench.registry.expected import Comparison, Expected, Obtained, compare, kind_of_data
from graphbench.runs import RunFolder
from graphbench.runs.tables import show_number
from graphbench.training.baselines import baselines_of, is_higher_better
from graphbench.training.targets import log_bounds

log = logging.getLogger(__name__)
#: Name -> split -> metric -> value; and `seconds` and `note`, see `baselines_of`.
Baselines = Mapping[str, Mapping[str, Any]]
#: Relative difference of scores that a different order of summation explains, and difference near zero.
_ROUNDING, _NEAR_ZERO = 1e-5, 1e-7
#: Number of altered options that a message names.
_MAX_ALTERED = 6
#: Options that skip a part of the validation split.
_VAL_LIMITS = ("limit_val_batches", "overfit_batches", "fast_dev_run")
#: Options of `graphbench test` about `--input`.
_INPUT_OPTIONS = ("smiles_column", "name", "if_exists", "on_error")


def validate(arguments: Sequence[str]) -> int:
    """Score the validation split of a run's best checkpoint."""
    return _score(arguments, "validate", ("val",))


def test(arguments: Sequence[str]) -> int:
    """Score the validation and test splits of a run's best checkpoint, or a labelled file, next to baselines."""
    return _score(arguments, "test", ("val", "test"))


def _score(arguments: Sequence[str], command: str, splits: Sequence[str]) -> int:
    request = parse_request(own_parser(command), arguments)
    check_weights(request)
    if command == "test":
        _check_input_options(request)
        if request.options.input is not None:
            return _end(request, *_score_input(request))
    path = None if request.options.weights else checkpoint_of(request)
    if request.run is not None and request.options.checkpoint is None:
        request.run.read_results()  # report a damaged file before computing anything
    if path is None and command == "test":
        splits = ("test",)  # authors may have trained on graphs that validate here
    with written_together(request) as (staged, folder):
        outcome = _score_splits(request, path, splits, folder, staged)
    return _end(request, *outcome)


def _end(request: Request, is_recorded: bool, unprinted: BaseException | None) -> int:
    """Write the report of recorded scores; then raise the error that kept the table from being printed."""
    if is_recorded and request.run is not None:
        write_page(request.run)
    if unprinted is not None:
        raise unprinted
    return 0


def _print(show: Callable[[], None]) -> BaseException | None:
    """Print a table; return the error of standard output, which must not keep scores from being stored."""
    try:
        show()
        sys.stdout.flush()
    except (OSError, SystemExit) as error:  # rich exits if the reader of a pipe has exited
        return error
    return None


def _score_splits(
    request: Request, checkpoint: Path | None, splits: Sequence[str], folder: Sequence[str], staged: RunFolder | None
) -> tuple[bool, BaseException | None]:
    """Score splits and show the table; return whether the scores were recorded in `staged`, and the result of `_print`.

    Without a checkpoint the weights are those that authors released. The options `folder` make the trainer write to
    `staged`, which is None without a run.
    """
    refuse_loggers(request)
    same, predictions = SameData(request.run, request.options.data_changed), KeepPredictions()
    cli = GraphbenchCLI([*request.arguments, *folder])
    if checkpoint is None:
        load_released(cli, request.options.weights)
    cli.callbacks.extend([same, predictions])
    cli.datamodule.prepare_data()
    cli.datamodule.setup()
    splits = _choose_splits(cli, request, splits)
    scores, undefined = _evaluate(cli, checkpoint, splits)
    tables = predictions.tables(cli.datamodule, splits, cli.trainer.world_size)
    if not cli.trainer.is_global_zero:
        return False, None
    log_bounds(cli.model, splits)
    baselines = baselines_of(cli.model, cli.datamodule, splits)
    stored = request.run.read_results() if request.run is not None and request.options.checkpoint is None else {}
    comparison = _compare_with_expected(cli, request, scores, stored)
    unprinted = _print(lambda: _show(cli, scores, baselines, comparison, stored.get("fit_seconds")))
    # Scores of a named checkpoint are not those of the run, which its results and report describe.
    if request.run is None or staged is None or request.options.checkpoint is not None:
        return False, unprinted
    if "val" in scores and stored.get("val") is not None:
        log.info("Validation scores %s those stored at the end of fit.", _agreement(stored["val"], scores["val"]))
    if "test" in scores:
        results = {name: value for name, value in stored.items() if name not in ("expected", "data_changed")}
        results |= {"test": dict(scores["test"]), "baselines": baselines}
        results |= {} if comparison is None else {"expected": comparison.as_dict()}
        results |= {"data_changed": "; ".join(same.differences)} if same.differences else {}
        staged.write_results(write_kept(tables, results | {"undefined": undefined}, request.run, staged))
    request.run.report.unlink(missing_ok=True)  # an old report must not survive a kill before the next one is written
    return True, unprinted


def _choose_splits(cli: GraphbenchCLI, request: Request, splits: Sequence[str]) -> list[str]:
    """Skip empty splits, and validation if the fit had none; refuse options that would score only part of a split."""
    # Before the first split is scored, which may take an hour.
    cli.datamodule.require_rows(splits[-1])
    splits = [name for name in splits if not cli.datamodule.is_empty(name)]
    limit = cli.trainer.limit_val_batches
    if splits == ["val"] and not limit:
        require_whole(cli.trainer, "val")
    typed = CommandLine.parse(request.typed)
    limits_val = any(typed.value(f"trainer.{name}") is not None for name in _VAL_LIMITS)
    for name in splits:
        if name != "val" or limits_val:  # else validate as the run's fit did
            require_whole(cli.trainer, name)
    if not limit:  # as in the fit
        return [name for name in splits if name != "val"]
    if "val" in splits and not is_whole(limit):
        log.warning("Validation scores are of a part of the split, as in the fit: trainer.limit_val_batches %s.", limit)
    return splits


def _evaluate(
    cli: GraphbenchCLI, checkpoint: Path | None, splits: Sequence[str]
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Return split -> metric -> score, and the reasons for undefined metrics."""
    scores: dict[str, dict[str, float]] = {}
    undefined: dict[str, str] = {}
    path = checkpoint and str(checkpoint)
    for name in splits:
        evaluate = cli.trainer.validate if name == "val" else cli.trainer.test
        logged = evaluate(cli.model, cli.datamodule, ckpt_path=path, verbose=False, weights_only=True)[0]
        scores[name] = scores_of(name, logged)
        undefined |= cli.model.scores.of(name).undefined
    return scores, undefined


def _compare_with_expected(
    cli: GraphbenchCLI, request: Request, scores: Mapping[str, Mapping[str, float]], stored: Mapping[str, Any]
) -> Comparison | None:
    """Compare the score with the one that the configuration expects; None if it expects none of them."""
    expected: Expected = cli.config_init["expected"]
    if request.options.weights == OFFICIAL:  # trained by its authors as the recipe says
        stored = {"epochs": expected.epochs, "steps": expected.steps}
    obtained = Obtained(
        scores={name: value for split in scores.values() for name, value in split.items()},
        parameters=count_parameters(cli.model),
        epochs=stored.get("epochs"),
        steps=stored.get("steps"),
        data=kind_of_data(cli.model.spec),
        higher_is_better=is_higher_better(cli.model, expected.chosen.metric or ""),
        ended_by_rate=bool(stored.get("ended_by_rate")),
    )
    expected = replace(expected, altered=[*expected.altered, *map(str, altered_options(request))])
    changes = [*expected.altered, *expected.resumed]
    if changes and expected.chosen.value is not None:
        more = f", and {len(changes) - _MAX_ALTERED} more" if len(changes) > _MAX_ALTERED else ""
        shown = "; ".join(changes[:_MAX_ALTERED])
        log.info("No score is expected of a run that alters its recipe: %s%s.", shown, more)
    return compare(expected, obtained)


def _agreement(stored: Mapping[str, Any], scores: Mapping[str, float]) -> str:
    """Compare scores of the same weights; another device or number of processes sums in another order.

    Stored values may be damaged: anything but a number differs.

    Examples:
        >>> _agreement({"val/MAE": 0.5}, {"val/MAE": 0.5000001})
        'equal, up to rounding,'
        >>> _agreement({"val/MAE": 2e-6, "val/loss": 1.0}, {"val/MAE": 9e-6, "val/loss": 1.0})
        'DIFFER (val/MAE 9e-06, was 2e-06) from'
        >>> _agreement({"val/MAE": [0.5]}, {"val/MAE": 0.5})
        'DIFFER (val/MAE 0.5, was [0.5]) from'
    """
    finite = {name: value for name, value in scores.items() if math.isfinite(value)}
    stored = {name: value for name, value in stored.items() if value is not None}  # NaN in a file
    if stored in (scores, finite):
        return "equal"
    differing = []
    for name in sorted(stored.keys() | finite.keys()):
        one, two = stored.get(name), finite.get(name)
        numbers = isinstance(one, int | float) and isinstance(two, int | float)
        if not (numbers and math.isclose(one, two, rel_tol=_ROUNDING, abs_tol=_NEAR_ZERO)):  # type: ignore[arg-type]
            differing.append(f"{name} {two}, was {one}")
    return f"DIFFER ({'; '.join(differing)}) from" if differing else "equal, up to rounding,"


def _show(
    cli: GraphbenchCLI,
    scores: Mapping[str, Mapping[str, float]],
    baselines: Baselines,
    comparison: Comparison | None,
    fit_seconds: object,
) -> None:
    """Print a table of this model, the expected score and the benchmark's baselines on the same splits.

    Seconds are those of the fit; for baselines they include features and predictions.
    """
    spec = cli.model.spec
    names = [key.partition("/")[2] for key in next(iter(scores.values()))]
    names = [spec.metric, *(name for name in names if name not in (spec.metric, "loss"))]
    header = ["model", *(f"{split} {name}" for split in scores for name in names), "seconds"]
    rows = [[type(cli.model.architecture).__name__, *_row(scores, scores, names), _seconds(fit_seconds)]]
    if comparison is not None:
        columns = [f"{split}/{name}" for split in scores for name in names]
        rows.append(["expected", *(comparison.expected if one == comparison.metric else "-" for one in columns), "-"])
    for baseline, values in baselines.items():
        rows.append([baseline, *_row(values, scores, names), _seconds(values.get("seconds"))])
    one_unit = len(set(spec.target_units)) == 1 and spec.target_units[0] and not spec.metric.startswith("scaled_")
    unit = f" [{spec.target_units[0]}]" if one_unit else ""
    arrow = "higher" if spec.higher_is_better else "lower"
    show_table(f"{spec.name}{unit}, {arrow} {spec.metric} is better", header, rows, corner="score")
    if units := cli.model.task.metric_units():
        show_line(units)
    for baseline, values in baselines.items():
        if values.get("note"):
            show_line(f"{baseline}: {values['note']}.")
    if comparison is not None:
        show_line(comparison)


def _row(scores: Mapping[str, Any], splits: Iterable[str], names: Sequence[str]) -> list[str]:
    return [
        show_number(value) if math.isfinite(value := scores[split].get(f"{split}/{name}", math.nan)) else "-"
        for split in splits
        for name in names
    ]


def _seconds(value: object) -> str:
    """Format the cost of a model; a dash if it is unknown."""
    return f"{value:,.1f}" if isinstance(value, int | float) else "-"


# -- labelled files ----------------------------------------------------------------------------------------------------


def _check_input_options(request: Request) -> None:
    """Refuse options about `--input` without it, and unknown values of them."""
    options = request.options
    typed = [f"--{name.replace('_', '-')}" for name in _INPUT_OPTIONS if getattr(options, name) is not None]
    if options.input is None and typed:
        raise BadInput(f"{typed[0]} belongs to --input FILE, which is missing.")
    check_choice("--if-exists", options.if_exists or "fail", ("fail", "replace"))
    check_choice("--on-error", options.on_error or "stop", ("stop", "skip"))
    if options.name is not None and not re.fullmatch(r"\w[\w.-]*", options.name):
        raise BadInput(f"--name {options.name}: expected letters, digits, dots, dashes and underscores.")


def _score_input(request: Request) -> tuple[bool, BaseException | None]:
    """Score the whole file of `--input`, show the table, and record it in the run's folder `external`.

    Return whether it was recorded, and the result of `_print`. It is not recorded with `--checkpoint FILE`, or without
    a run in a writable folder.
    """
    options, run = request.options, request.run
    file = Path(options.input)
    name = options.name or _name_of(options.input)
    source = {"input": options.input, "sha256": file_sha256(file) if file.is_file() else None}
    recorded = run is not None and options.checkpoint is None and may_keep(run)
    if run is not None and recorded and options.if_exists != "replace":
        _refuse_other(run, name, source)
    predictor = predictor_of(request)
    is_open = _open_own_data(request, predictor)
    scorer = ExternalScores(predictor, options.input, options.smiles_column, options.on_error == "skip", is_open)
    if run is None or not recorded:
        for _ in counted(scorer.frames(), "Scoring"):
            pass
        _show_external(predictor, options.input, scorer.finish())
        return False, None
    with written_together(request) as (staged, _):
        if staged is None:
            raise BadInput(f"{run.path}: a fit has started in it. Score the file again when that has finished.")
        table = staged.external / f"{name}.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        write_frames(counted(scorer.frames(), "Scoring"), table, lambda frame: None)
        result = scorer.finish()
        write_text(staged.external / f"{name}.json", _external_record(predictor, name, source, result))
        unprinted = _print(lambda: _show_external(predictor, options.input, result))
        run.report.unlink(missing_ok=True)
    log.info("Scores and predictions: %s, %s", run.external / f"{name}.json", f"{name}.csv")
    return True, unprinted


def _name_of(source: str) -> str:
    """Return a file name for the scores of an input."""
    stem = "standard-input" if source == "-" else Path(source).name.partition(".")[0] or source
    return re.sub(r"[^\w.-]+", "-", stem).lstrip(".-") or "input"


def _refuse_other(run: RunFolder, name: str, source: Mapping[str, Any]) -> None:
    """Refuse a name under which other content was scored."""
    path = run.external / f"{name}.json"
    if not path.is_file():
        return
    try:
        stored = dict(load_json(path))
    except (OSError, ValueError, TypeError):
        stored = {}
    key = "sha256" if source["sha256"] else "input"
    if stored.get(key) != source[key]:
        raise BadInput(
            f"{path} has scores of another file ({stored.get('input', 'unknown')}). Give --name OTHER, or "
            "--if-exists replace."
        )


def _open_own_data(request: Request, predictor: Predictor) -> bool:
    """Open the run's data for baselines and to find training graphs; log why if that fails."""
    try:
        open_data(predictor, SameData(request.run, request.options.data_changed))
    except (GraphbenchError, OSError) as error:
        log.warning(
            "No baselines and no check for training graphs in %s: the data of the fit cannot be read. %s",
            request.options.input, str(error).partition("\n")[0],
        )  # fmt: skip
        return False
    return True


def _external_record(predictor: Predictor, name: str, source: Mapping[str, Any], result: ExternalResult) -> str:
    facts = {"name": name, **source, **describe_model(predictor.module)}
    return json.dumps(facts | asdict(result), indent=2, allow_nan=False) + "\n"


def _show_external(predictor: Predictor, source: str, result: ExternalResult) -> None:
    """Print the table, and the number of rows behind it."""
    spec = predictor.data.spec
    names = [spec.metric, *(name for name in (*result.scores, *result.undefined) if name != spec.metric)]
    models = {type(predictor.module.architecture).__name__: result.scores} | result.baselines
    rows = [
        [label, *(show_number(scores[name]) if name in scores else "-" for name in names)]
        for label, scores in models.items()
    ]
    arrow = "higher" if spec.higher_is_better else "lower"
    show_table(f"{Path(source).name}, {arrow} {spec.metric} is better", ["model", *names], rows, corner="score")
    if units := predictor.module.task.metric_units():
        show_line(units)
    log.info("%s", _count_rows(asdict(result), predictor.level))
    for name, why in result.undefined.items():
        log.warning("%s is undefined: %s.", name, why)


def _count_rows(result: Mapping[str, Any], level: str = "graph") -> str:
    """Describe how many rows of a file were scored, and why the others were not.

    Examples:
        >>> _count_rows({"rows": 9, "scored": 6, "unlabelled": 2, "failed": 1, "in_training": 3})
        '9 rows, 6 scored, 2 without a label, 1 cannot be scored; 3 are in the training part'
    """
    unit = "" if level == "graph" else f"{level}s "
    parts = [f"{result['rows']:,} row{'s' * (result['rows'] != 1)}", f"{result['scored']:,} {unit}scored"]
    parts += [f"{result['unlabelled']:,} without a label"] if result["unlabelled"] else []
    parts += [f"{result['failed']:,} cannot be scored"] if result["failed"] else []
    repeated = result.get("in_training")
    return ", ".join(parts) + ("" if repeated is None else f"; {repeated:,} are in the training part")
