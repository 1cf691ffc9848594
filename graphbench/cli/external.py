"""`graphbench test --input FILE`: scores of a run on a labelled file, beside its results and never over them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphbench.cli.console import show_table
from graphbench.cli.options import Request
from graphbench.cli.same_data import SameData
from graphbench.cli.trained import predictor_of, written_together
from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, GraphbenchError, check_choice
from graphbench.inference.external import ExternalResult, ExternalScores
from graphbench.inference.output import write_frames
from graphbench.inference.predictor import Predictor
from graphbench.runs import RunFolder
from graphbench.runs.tables import show_number

log = logging.getLogger(__name__)
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
        _show(predictor, own.input, scorer.finish())
        return False
    with written_together(request) as (staged, _):
        assert staged is not None
        table = staged.external / f"{name}.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        write_frames(scorer.frames(), table, lambda frame: None)
        result = scorer.finish()
        write_text(staged.external / f"{name}.json", _record(predictor, name, source, result))
        _show(predictor, own.input, result)
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


def _record(predictor: Predictor, name: str, source: Mapping[str, Any], result: ExternalResult) -> str:
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


def _show(predictor: Predictor, source: str, result: ExternalResult) -> None:
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
