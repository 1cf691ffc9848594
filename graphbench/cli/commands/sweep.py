"""`graphbench sweep`: train several models, seeds and folds in one command, and write a report over all of them."""

from __future__ import annotations

import argparse
import inspect
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from graphbench.cli.checks import check_fit_options, check_set_once
from graphbench.cli.command_line import CommandLine
from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.data.files.foreign import load_yaml
from graphbench.data.progress import track
from graphbench.errors import BadInput, check_range
from graphbench.experiments import Training
from graphbench.experiments.control import control_rows
from graphbench.experiments.launchers import Cluster, Unit, add_options, launch
from graphbench.experiments.status import read_status, summarize, write_plan
from graphbench.experiments.sweeps import Sweep, Variant, parse_numbers, parse_variation, run_all
from graphbench.experiments.sweeps.local import failures_of
from graphbench.experiments.sweeps.plan import benchmark_options
from graphbench.experiments.trainings import write_settled
from graphbench.runs import RunFolder
from graphbench.runs.differences import differing

log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

RESPLITS = ("random", "stratified", "scaffold", "scaffold_balanced", "butina", "leader", "maxmin")
#: Options of `fit` that the sweep sets itself -> the reason.
RESERVED = {
    "--run": "its runs are in --output",
    "--resume": "the same command resumes where it was interrupted",
    "--if-exists": "existing runs are always continued",
    "--checkpoint": "every run resumes from its last checkpoint",
    "--seed_everything": "--seeds names the seeds",
    "--slurm": "--launcher submitit submits the jobs itself",
}
#: Number of variants, and of runs, that are checked without showing progress.
_FEW = 10
#: Options that may differ between runs of one variant.
_REPLICATES = ("seed_everything", "data.fold", "data.split_seed", "expected")


def sweep(arguments: Sequence[str]) -> int:
    """Train and test models x variations x seeds x folds, then write the report over all of them.

    Return 1 if a training failed, else 0.
    """
    parser = _parser()
    options, words = parser.parse_known_args(list(arguments))
    cluster = Cluster.of(options)
    plan, output = _plan(options, words), folder_to_write("--output", options.output)
    for config in options.config:
        for data, _ in benchmark_options(plan.benchmarks):
            check_fit_options("sweep", ["--config", config, *data, *words], parser.names, RESERVED)
    check_set_once(words, _setters(options, plan))
    if cluster is not None and options.jobs != 1:
        raise BadInput(f"--jobs {options.jobs} is for local trainings: with --launcher use --launcher.at_once.")
    if options.control:
        plan = _control(plan)
    trainings = plan.trainings()
    if options.only is not None:
        check_range("--only", options.only, at_least=0, below=len(trainings), whole=True)
        trainings = [trainings[options.only]]
    # Only now, since a benchmark's folds are known once it is built; with `--only`, build only that training's.
    plan = _with_folds(plan, options, {variant.name: variant for variant, _ in trainings}, output)
    names = {training.name for _, training in trainings}
    trainings = [
        (variant, training)
        for variant, training in plan.trainings()
        if options.only is None or (training.name in names and training.seed == trainings[0][1].seed)
    ]
    _check(plan, trainings, output, train=not options.no_train)
    chosen = [training for _, training in trainings]
    # Jobs with one training each would overwrite the plan of all.
    if options.only is None:
        write_plan(output, [(training.folder(output).name, [training.folder(output)]) for training in chosen])
    launched = cluster is not None and not all(training.is_finished(output) for training in chosen)
    unreported = cluster is not None and launched and not _launch(chosen, output, cluster, arguments)
    if launched or options.no_train:
        failures = failures_of(chosen, output)
    else:
        failures = run_all(chosen, output, options.jobs, logs=options.only is None)
    if options.only is None and not launched:
        write_settled(lambda: [one.is_finished(output) for one in chosen], lambda: _report(chosen, output))
    if options.only is not None:  # the training's line is the last one of the job's log
        return 1 if failures else 0
    if failures:
        again = "--no-train skips them" if options.no_train else "the same command tries them again"
        log.error("%d of %d trainings are not finished; %s:", len(failures), len(chosen), again)
    for failure in failures:
        log.error("  %s: %s", failure.name, failure.reason)
    return 1 if failures or unreported else 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "sweep",
        description="Train and test every model with every seed and fold, and compare them in DIR/report.html, "
        "table.md, table.csv and table.tex. Finished runs are skipped and interrupted ones resume; a failed one "
        "does not stop the others. All other options are passed to `graphbench fit`.",
    )
    parser.add_argument("--config", action="append", default=[], metavar="NAME", help="a model; give one or several")
    parser.add_argument(
        "--benchmark",
        action="append",
        default=[],
        metavar="'NAME OPTIONS'",
        help="every model on each of these, not on those of the configurations: 'Graphs --data.source mine.pt'",
    )
    parser.add_argument("--seeds", default="0", metavar="0-4", help="seeds: numbers and ranges (default: 0)")
    parser.add_argument("--folds", type=int, metavar="K", help="K splits of your own data, each tested once; CSL has 5")
    parser.add_argument("--split-seeds", metavar="0-4", help="repeat the split of your own data with these seeds")
    parser.add_argument("--resplit", choices=RESPLITS, help="ignore the split in the file, and split this way")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="OPTION=A,B", help="every model with each of these values"
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="each model in four rows of equal size: only message passing, with encodings, with attention, and fused",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder of the sweep; the same one resumes it")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trainings at a time (default: 1)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="train only this one, from 0; for jobs of a cluster")
    parser.add_argument("--no-train", action="store_true", help="write the report from finished runs")
    add_options(parser)
    return parser


def _plan(options: argparse.Namespace, words: Sequence[str]) -> Sweep:
    """Return the trainings that a command line requests."""
    if not options.config:
        raise BadInput("graphbench sweep needs --config NAME_OR_FILE, once for every model.")
    check_range("--jobs", options.jobs, at_least=1, whole=True)
    if options.folds is not None:
        check_range("--folds", options.folds, at_least=3, whole=True)
    variations: dict[str, list[str]] = {}
    for text in options.vary:
        option, values = parse_variation(text)
        if option.replace(".init_args", "") in (other.replace(".init_args", "") for other in variations):
            raise BadInput(f"--vary {text}: {option} is varied twice; give all its values at once.")
        variations[option] = values
    return Sweep(
        configs=options.config,
        seeds=parse_numbers("--seeds", options.seeds),
        variations=variations,
        folds=options.folds,
        split_seeds=parse_numbers("--split-seeds", options.split_seeds) if options.split_seeds is not None else (),
        options=[*words, *_resplit(options)],
        benchmarks=options.benchmark,
    )


def _setters(options: argparse.Namespace, plan: Sweep) -> dict[str, str]:
    """Return option of a fit -> the option of the sweep that sets it."""
    setters = dict.fromkeys(plan.variations, "--vary")
    if options.benchmark:
        setters["data"] = "--benchmark"
    if options.resplit is not None:
        setters |= {"data.split": "--resplit", "data.split_column": "--resplit"}
    if options.split_seeds is not None:
        setters["data.split_seed"] = "--split-seeds"
    return setters if options.folds is None else setters | {"data.fold": "--folds"}


def _control(plan: Sweep) -> Sweep:
    """Replace each model by the four rows of its control."""
    from graphbench.cli.lightning import measure

    if plan.variations:
        raise BadInput("--control and --vary exclude each other: the sizes of a control are those of one model.")
    (data, _), *_ = benchmark_options(plan.benchmarks)
    sized: dict[str, Sequence[str]] = {}
    for config in plan.configs:
        for row in control_rows([config], [*data, *plan.options], lambda words: measure("sweep", words)):
            log.info("%s, %s", config, row)
            sized[" + ".join(row.recipe)] = row.options
    return replace(plan, configs=list(sized), sized=sized)


def _resplit(options: argparse.Namespace) -> list[str]:
    if options.resplit is None:
        return []
    return [f"--data.init_args.split={options.resplit}", "--data.init_args.split_column=null"]


def _with_folds(plan: Sweep, options: argparse.Namespace, variants: Mapping[str, Variant], output: Path) -> Sweep:
    """Add the options that select the folds of each model's benchmark."""
    if options.folds is None and options.resplit is None and not plan.split_seeds:
        return plan
    from graphbench.cli.lightning import build

    # Without --resplit first: data with a fixed split would report its options as unknown.
    bare = replace(plan, options=plan.options[: len(plan.options) - len(_resplit(options))])
    folds = {}
    for name, variant in _shown(variants.items(), "Reading folds", "models"):
        data = build("sweep", bare.training(variant, plan.seeds[0]).arguments(output)).datamodule
        _check_split(data, options)
        if options.resplit is not None:
            data = build("sweep", plan.training(variant, plan.seeds[0]).arguments(output)).datamodule
        if plan.split_seeds:
            data.check_split_seed()
        if options.folds is not None:
            folds[name] = data.fold_options(options.folds)
    return replace(plan, fold_options=folds)


def _check(plan: Sweep, trainings: Sequence[tuple[Variant, Training]], output: Path, train: bool) -> None:
    """Build every model once, and compare its options and data with its runs, and before training with each other."""
    from graphbench.cli.lightning import build
    from graphbench.cli.same_data import refuse_other_source

    missing = {variant.name for variant, training in trainings if train and not training.is_finished(output)}
    resolved: dict[str, dict[str, Any]] = {}
    variants = {variant.name: variant for variant, _ in trainings}.values()
    for variant in _shown(variants, "Checking models", "models"):
        suffix, replicate = plan.replicates(variant.name)[0]
        words = plan.training(variant, plan.seeds[0], suffix, replicate).arguments(output)
        cli = build("sweep", words)
        if variant.name in missing:
            cli.datamodule.check_source()  # else every training would report a misspelt column
        resolved[variant.name] = cli.settings()
        runs = [RunFolder(training.folder(output)) for other, training in trainings if other.name == variant.name]
        refuse_other_source(runs, cli.datamodule, "Restore the data, or name another --output.")
    for variant, training in _shown(trainings, "Comparing options", "runs"):
        _check_unchanged(RunFolder(training.folder(output)), resolved[variant.name])


def _shown(items: Collection[_Item], description: str, unit: str) -> Iterable[_Item]:
    """Show progress over many items, which take up to a third of a second each.

    A mistake among few should be the only line.
    """
    return track(items, description, unit=unit) if len(items) > _FEW else items


def _check_split(data: Any, options: argparse.Namespace) -> None:
    """Refuse to change the split of data with a fixed one."""
    needed = {"--split-seeds": (options.split_seeds, "split_seed"), "--resplit": (options.resplit, "split")}
    parameters = inspect.signature(type(data).__init__).parameters
    for option, (value, parameter) in needed.items():
        if value is not None and parameter not in parameters:
            raise BadInput(
                f"{option} {value}: {data.spec.name} has a fixed split, on which its scores are compared. Molecules "
                "and graphs of your own (--data Molecules, --data Graphs) can be split in other ways."
            )


def _check_unchanged(run: RunFolder, resolved: Mapping[str, Any]) -> None:
    """Refuse a run that was trained with other options."""
    if not run.config.is_file() or not run.is_begun:
        return
    try:
        stored = load_yaml(run.config.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"{run.config} cannot be read: {error}. Remove {run.path} to train it again.") from error
    changes = [one for one in differing(stored, resolved) if not one.option.startswith(_REPLICATES)]
    if changes:
        raise BadInput(
            f"{run.path} was trained with other options: {'; '.join(map(str, changes[:3]))}. Name another --output, or "
            "remove this run."
        )


def _launch(trainings: Sequence[Training], output: Path, cluster: Cluster, arguments: Sequence[str]) -> bool:
    """Run the missing trainings as jobs, the last of which writes the report; return whether it was written."""
    words = ("sweep", *CommandLine.parse(arguments).without("--launcher", "--jobs").words)
    logs = output / "logs"
    units = [
        Unit(name := training.folder(output).name, (*words, "--only", str(number)), logs / f"{name}.log")
        for number, training in enumerate(trainings)
        if not training.is_finished(output)
    ]
    last = Unit("report", (*words, "--no-train"), logs / "report.log")
    return last not in launch([units], cluster, output, last, lambda: summarize(read_status(output)))


def _report(trainings: Sequence[Training], output: Path) -> None:
    """Write the report over all finished runs."""
    runs = [RunFolder(training.folder(output)) for training in trainings if training.is_finished(output)]
    if not runs:
        return
    from graphbench.report import write_comparison

    for path in write_comparison(runs, output):
        log.info("Wrote %s", path)
