"""`graphbench study`: control, depth, budget and cost of a model, on one page."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from graphbench.cli.checks import check_fit_options
from graphbench.cli.command_line import CommandLine
from graphbench.cli.commands.sweep import RESERVED
from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.data.files.foreign import load_json
from graphbench.data.files.sharing import locked
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, check_range
from graphbench.experiments import CommandFailed, Training, graphbench
from graphbench.experiments.control import words_of
from graphbench.experiments.launchers import Cluster, Unit, add_options, launch
from graphbench.experiments.status import read_status, summarize, write_plan
from graphbench.experiments.study import DEPTHS, QUESTIONS, RIVALS, Planned, Row, Standing, Study, planned
from graphbench.experiments.sweeps import parse_numbers, run_all
from graphbench.experiments.sweeps.local import failures_of
from graphbench.experiments.trainings import write_settled
from graphbench.runs import RunFolder
from graphbench.runs.holding import InUse, claimed

log = logging.getLogger(__name__)

#: The trainings of all calls; each job of a cluster runs one of them.
_TRAININGS = "trainings.json"


def study(arguments: Sequence[str]) -> int:
    """Train and measure what the four questions still need, and write one page from all finished results.

    Return 1 if a training or a measurement failed, else 0.
    """
    parser = _parser()
    options, words = parser.parse_known_args(list(arguments))
    cluster, output = Cluster.of(options), folder_to_write("--output", options.output)
    if options.only is not None:
        return _run_one(output, options.only)
    if not options.model:
        raise BadInput("graphbench study needs --model NAME_OR_FILE: a recipe, followed by its overlays.")
    check_range("--jobs", options.jobs, at_least=1, whole=True)
    check_fit_options("study", [*words_of(options.model, ()), *words], parser.names, RESERVED)
    for folder in options.runs:
        if not Path(folder).is_dir():
            raise BadInput(
                f"--runs {folder}: there is no such folder. Name one that contains runs, such as that of a sweep."
            )
    rows = _study(options, words).rows()
    seeds = parse_numbers("--seeds", ",".join(options.seeds))
    plan = planned(rows, seeds, output, Standing(output, [Path(folder) for folder in options.runs]))
    _check_data(plan, output)
    measured = {row: output / "cost" / f"{row.name}.json" for row in rows if row.question == "cost" and not row.why}
    trainings = list({one.folder: one.training for one in plan if one.folder == one.training.folder(output)}.values())
    _show(plan, measured)
    write_plan(output, [(one.folder(output).name, [one.folder(output)]) for one in trainings])
    failed: list[str] = []
    if not options.no_train and cluster is not None:
        failed = _launch(trainings, measured, output, cluster, arguments)
    elif not options.no_train:
        run_all([one for one in trainings if not one.is_finished(output)], output, options.jobs)
        failed = _measure_costs(measured, output)
    reasons = write_settled(
        lambda: ([one.is_finished for one in plan], [path.is_file() for path in measured.values()]),
        lambda: _write(rows, plan, measured, trainings, output),
    )
    if options.no_train:
        return 0
    for name, reason in reasons.items():
        log.error("Failed: %s: %s", name, reason)
    return 1 if reasons or failed else 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "study",
        description="Answer the four questions of a graph transformer's reviewer on one page, DIR/study.html (tables "
        "in study.md): what each part contributes (control), how depth matters, whether the model is better than "
        "others of its size (budget), and what a step costs. Nothing is trained twice: runs are found by their "
        "configuration, in DIR and in --runs. The same command resumes where it stopped. All other options go to "
        "every `graphbench fit`, such as --trainer.max_epochs 100.",
    )
    parser.add_argument("--model", nargs="+", default=[], metavar="NAME", help="a recipe or a file, then its overlays")
    parser.add_argument(
        "--benchmarks",
        nargs="+",
        default=[],
        metavar="NAME",
        help="benchmarks instead of the model's: names, 'NAME OPTIONS' such as 'Graphs --data.source mine.pt', or "
        "configurations, whose data are used",
    )
    parser.add_argument(
        "--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS), metavar="NAME",
        help="some of control, depth, budget and cost (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--depths", nargs="+", default=[str(depth) for depth in DEPTHS], metavar="N",
        help=f"numbers of layers (default: {' '.join(map(str, DEPTHS))})",
    )  # fmt: skip
    parser.add_argument(
        "--rivals",
        nargs="+",
        metavar="NAME",
        help="architectures for budget and cost, with options: 'GT --model.architecture.full=true' (default: "
        f"{' '.join(RIVALS)}, as far as they are installed)",
    )
    parser.add_argument("--seeds", nargs="+", default=["0-2"], metavar="0-4", help="numbers and ranges (default: 0-2)")
    parser.add_argument(
        "--runs", nargs="+", default=[], metavar="FOLDER", help="finished runs elsewhere that need not be trained again"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder of the study; the same one resumes it")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trainings at a time (default: 1)")
    parser.add_argument(
        "--no-train", action="store_true", help="list what is still to run, write the page of what is done"
    )
    parser.add_argument("--only", type=int, metavar="NUMBER", help="train only this one; for jobs of a cluster")
    add_options(parser)
    return parser


def _study(options: argparse.Namespace, words: Sequence[str]) -> Study:
    from graphbench.cli.lightning import measure

    for name in ("lightning_fabric", "pytorch_lightning"):  # which log whenever a model is built
        logging.getLogger(name).setLevel(logging.WARNING)

    @cache
    def measured(line: tuple[str, ...]) -> tuple[Mapping[str, Any], int]:
        return measure("study", line)

    depths = parse_numbers("--depths", ",".join(options.depths))
    check_range("--depths", min(depths), at_least=1, whole=True)
    return Study(
        model=tuple(options.model),
        measure=lambda line: measured(tuple(line)),
        questions=[one for one in QUESTIONS if one in options.questions],
        benchmarks=options.benchmarks,
        depths=depths,
        rivals=options.rivals,
        options=words,
    )


def _check_data(plan: Sequence[Planned], output: Path) -> None:
    """Refuse runs whose data have changed since; a benchmark's data are the same for all of its rows."""
    from graphbench.cli.lightning import build
    from graphbench.cli.same_data import refuse_other_source

    for benchmark in dict.fromkeys(one.row.benchmark for one in plan):
        of_it = [one for one in plan if one.row.benchmark == benchmark]
        runs = [RunFolder(one.folder) for one in of_it if RunFolder(one.folder).data.is_file()]
        if runs:
            data = build("study", of_it[0].training.arguments(output)).datamodule
            refuse_other_source(runs, data, "Restore the data, or name another --output and leave out this run.")


def _show(plan: Sequence[Planned], measured: Mapping[Row, Path]) -> None:
    """List and count what is still to run, each run once with all rows that need it."""
    rows: dict[Path, list[str]] = {}
    for one in plan:
        if not one.is_finished:
            rows.setdefault(one.folder, []).append(f"{one.row.question}: {one.row.label}")
    for folder, labels in rows.items():
        log.info("to train  %s (%s)", folder.name, "; ".join(dict.fromkeys(labels)))
    costs = [row for row, path in measured.items() if not path.is_file()]
    for row in costs:
        log.info("to measure  %s, %s", row.benchmark, row.label)
    total = len({one.folder for one in plan})
    log.info(
        "%d of %d trainings and %d of %d measurements are still to run", len(rows), total, len(costs), len(measured)
    )


def _run_one(output: Path, number: int) -> int:
    """Run one of the stored trainings."""
    path = output / _TRAININGS
    if not path.is_file():
        raise BadInput(f"--only {number}: {output} has no {_TRAININGS}; it is for jobs of `--launcher submitit`.")
    trainings = load_json(path)
    check_range("--only", number, at_least=0, below=len(trainings), whole=True)
    return 1 if run_all([Training(**trainings[number])], output, logs=False) else 0


def _launch(
    trainings: Sequence[Training], measured: Mapping[Row, Path], output: Path, cluster: Cluster, given: Sequence[str]
) -> list[str]:
    """Run what is missing as jobs, the last of which writes the page; return the failed jobs other than trainings."""
    numbers, logs = _store(trainings, output / _TRAININGS), output / "logs"
    units = [
        Unit(
            name := one.folder(output).name,
            ("study", "--output", str(output), "--only", str(number)),
            logs / f"{name}.log",
        )
        for number, one in zip(numbers, trainings, strict=True)
        if not one.is_finished(output)
    ]
    costs = [
        Unit(f"cost-{row.name}", _profile(row, path), logs / f"cost-{row.name}.log")
        for row, path in measured.items()
        if not path.is_file()
    ]
    words = ("study", *CommandLine.parse(given).without("--launcher", "--jobs").words)
    last = Unit("page", (*words, "--no-train"), logs / "page.log")
    stages = [stage for stage in (units, costs) if stage]
    if not stages:
        return []
    failed = launch(stages, cluster, output, last, lambda: summarize(read_status(output)))
    for unit in (broken := [unit for unit in failed if unit in costs]):
        log.error("%s has failed: see %s.", unit.name, unit.log)
    return [unit.name for unit in broken]


def _store(trainings: Sequence[Training], path: Path) -> list[int]:
    """Add trainings to the file that jobs read them from; return their numbers, which no later call changes."""
    given = [{"name": one.name, "seed": one.seed, "configs": one.configs, "options": one.options} for one in trainings]
    given = json.loads(json.dumps(given))
    with locked(path.with_name(f".{path.name}.lock"), f"Another process is writing {path}."):
        stored = load_json(path) if path.is_file() else []
        stored += [one for one in given if one not in stored]
        write_text(path, json.dumps(stored, indent=1) + "\n")
    return [stored.index(one) for one in given]


def _profile(row: Row, path: Path) -> tuple[str, ...]:
    words = [word for word in row.options if not word.startswith("--trainer.callbacks")]
    return ("profile", *words_of(row.configs, words), "--output", str(path))


def _measure_costs(measured: Mapping[Row, Path], output: Path) -> list[str]:
    """Measure steps one after another, and return what failed or is left to another process."""
    failed = []
    for row, path in measured.items():
        if path.is_file():
            continue
        place = output / "logs" / f"cost-{row.name}.log"
        try:
            with claimed(path):
                if not path.is_file():
                    log.info("Measuring a step of %s on %s: see %s", row.label, row.benchmark, place)
                    graphbench(*_profile(row, path), log=place)
        except (CommandFailed, InUse) as error:
            log.error("%s on %s: %s", row.label, row.benchmark, error)
            failed.append(row.name)
    return failed


def _write(
    rows: Sequence[Row],
    plan: Sequence[Planned],
    measured: Mapping[Row, Path],
    trainings: Sequence[Training],
    output: Path,
) -> dict[str, str]:
    """Write the page; return the reasons why trainings have no score."""
    from graphbench.report.study import Answer, Line, write_study

    reasons = {failure.name: failure.reason for failure in failures_of(trainings, output)}
    lines: dict[tuple[str, str], list[Line]] = {}
    for row in rows:
        of_row = [one for one in plan if one.row is row]
        missing = [row.why] if row.why else []
        missing += [
            f"seed {one.training.seed}: {reasons.get(one.folder.name, 'not trained yet')}"
            for one in of_row
            if not one.is_finished or one.folder.name in reasons
        ]
        cost = load_json(measured[row]) if row in measured and measured[row].is_file() else None
        if row in measured and cost is None:
            missing.append("not measured yet")
        runs = tuple(RunFolder(one.folder) for one in of_row if one.is_finished)
        line = Line(row.label, row.parameters, runs, tuple(missing), row.is_model, row.depth, cost)
        lines.setdefault((row.question, row.benchmark), []).append(line)
    answers = [Answer(question, benchmark, tuple(each)) for (question, benchmark), each in lines.items()]
    answers.sort(key=lambda answer: QUESTIONS.index(answer.question))
    model = next((row.settings["model"]["architecture"]["class_path"] for row in rows if row.is_model), rows[0].label)
    for path in write_study(str(model).rpartition(".")[2], answers, output):
        log.info("Wrote %s", path)
    return reasons
