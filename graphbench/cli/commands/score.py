"""`graphbench test` and `graphbench validate`: score a run's best checkpoint."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphbench.cli.console import count_parameters, scores_of, show_table
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import OWN, Request, own_parser, split
from graphbench.cli.resume import altered_options
from graphbench.cli.same_data import SameData
from graphbench.cli.trained import checkpoint_of, predictor_of, written_together
from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, GraphbenchError, check_choice
from graphbench.inference.external import ExternalResult, ExternalScores
from graphbench.inference.output import write_frames
from graphbench.inference.predictor import Predictor
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


#: Options of `graphbench test` that are about `--input`.
OPTIONS = ("smiles_column", "name", "if_exists", "on_error")


def check_input_options(request: Request) -> None:
    """Refuse options about `--input` without it, and values that they do not take.

    Raises:
        BadInput: names the option.
    """
    own = request.own
    given = [f"--{name.replace('_', '-')}" for name in OPTIONS if getattr(own, name) is not None]
    if own.input is None and given:
        raise BadInput(f"{given[0]} belongs to --input FILE, which is missing.")
    check_choice("--if-exists", own.if_exists or "fail", ("fail", "replace"))
    check_choice("--on-error", own.on_error or "stop", ("stop", "skip"))
    if own.name is not None and not re.fullmatch(r"\w[\w.-]*", own.name):
        raise BadInput(f"--name {own.name}: expected letters, digits, dots, dashes and underscores.")


def score_input(request: Request) -> bool:
    """Score the file of `--input` whole, show the table, and record it in the run's folder `external`.

    Returns:
        Whether it was recorded: that of `--checkpoint FILE`, or without a run, is only shown.

    Raises:
        BadInput: scores of another file have this name; or see `ExternalScores.frames`.
    """
    own = request.own
    name = own.name or _name_of(own.input)
    source = {"input": own.input, "sha256": file_sha256(Path(own.input)) if Path(own.input).is_file() else None}
    recorded = request.run is not None and own.checkpoint is None
    if recorded and request.run is not None:
        _refuse_other(request.run, name, source, own.if_exists == "replace")
    predictor = predictor_of(request)
    opened = _open(request, predictor)
    scorer = ExternalScores(predictor, own.input, own.smiles_column, own.on_error == "skip", opened)
    if not recorded or request.run is None:
        for _ in scorer.frames():
            pass
        _show_external(predictor, own.input, scorer.finish())
        return False
    with written_together(request) as (staged, _):
        assert staged is not None
        table = staged.external / f"{name}.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        write_frames(scorer.frames(), table, lambda frame: None)
        result = scorer.finish()
        write_text(staged.external / f"{name}.json", _external_record(predictor, name, source, result))
        _show_external(predictor, own.input, result)
        request.run.report.unlink(missing_ok=True)
    log.info("Scores and predictions: %s, %s", request.run.external / f"{name}.json", f"{name}.csv")
    return True


def _name_of(source: str) -> str:
    """A file name for the scores of an input."""
    stem = "standard-input" if source == "-" else Path(source).name.partition(".")[0] or source
    return re.sub(r"[^\w.-]+", "-", stem).lstrip(".-") or "input"


def _refuse_other(run: RunFolder, name: str, source: Mapping[str, Any], replace: bool) -> None:
    """Refuse a name that scores of another content have; the same content may be scored again."""
    path = run.external / f"{name}.json"
    if replace or not path.is_file():
        return
    try:
        stored = dict(load_json(path))
    except (OSError, ValueError, TypeError):
        stored = {}
    key = "sha256" if source["sha256"] else "input"
    if stored.get(key) != source[key]:
        raise BadInput(
            f"{path} holds scores of another file ({stored.get('input', 'unknown')}). Give --name OTHER, or "
            "--if-exists replace."
        )


def _open(request: Request, predictor: Predictor) -> bool:
    """Open the run's own data for baselines and repeats of training graphs; say why where that cannot be."""
    data = predictor.data
    try:
        data.prepare_data()
        data.setup("predict")
        SameData(request.run, request.own.data_changed).compare(data.fingerprint())
    except (GraphbenchError, OSError) as error:
        log.warning(
            "No baselines, and no look for training graphs in %s: the data of the fit cannot be read. %s",
            request.own.input, str(error).partition("\n")[0],
        )  # fmt: skip
        return False
    return True


def _external_record(predictor: Predictor, name: str, source: Mapping[str, Any], result: ExternalResult) -> str:
    spec = predictor.data.spec
    facts = {
        "name": name,
        **source,
        "benchmark": spec.name,
        "architecture": type(predictor.module.architecture).__name__,
        "metric": spec.metric,
        "higher_is_better": spec.higher_is_better,
        "unit": spec.target_units[0] if len(set(spec.target_units)) == 1 else "",
    }
    return json.dumps(facts | asdict(result), indent=2, allow_nan=False) + "\n"


def _show_external(predictor: Predictor, source: str, result: ExternalResult) -> None:
    """Print the table, then how many rows stand behind it."""
    spec = predictor.data.spec
    names = [spec.metric, *(name for name in (*result.scores, *result.undefined) if name != spec.metric)]
    rows = [[type(predictor.module.architecture).__name__, *(_number(result.scores, name) for name in names)]]
    rows += [[label, *(_number(scores, name) for name in names)] for label, scores in result.baselines.items()]
    arrow = "higher" if spec.higher_is_better else "lower"
    show_table(f"{Path(source).name}, {arrow} {spec.metric} is better", ["model", *names], rows, corner="score")
    log.info("%s", sentence(asdict(result), predictor.level))
    for name, why in result.undefined.items():
        log.warning("%s is undefined: %s.", name, why)


def _number(scores: Mapping[str, float], name: str) -> str:
    return show_number(scores[name]) if name in scores else "-"


def sentence(result: Mapping[str, Any], level: str = "graph") -> str:
    """Say how many rows of a file were scored, and what became of the others.

    Examples:
        >>> sentence({"rows": 9, "scored": 6, "unlabelled": 2, "failed": 1, "in_training": 3})
        '9 rows, 6 scored, 2 without a label, 1 cannot be scored; 3 are in the training part'
    """
    unit = "" if level == "graph" else f"{level}s"
    told = [f"{result['rows']:,} rows", f"{result['scored']:,} {unit} scored".replace("  ", " ")]
    told += [f"{result['unlabelled']:,} without a label"] if result["unlabelled"] else []
    told += [f"{result['failed']:,} cannot be scored"] if result["failed"] else []
    seen = result.get("in_training")
    return ", ".join(told) + ("" if seen is None else f"; {seen:,} are in the training part")
