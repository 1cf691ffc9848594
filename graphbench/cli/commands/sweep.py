"""`graphbench sweep`: several models, seeds and folds in one command, and the report over all of them."""

from __future__ import annotations

import argparse
import inspect
import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from graphbench.cli.checks import refuse_unknown
from graphbench.cli.command_line import CommandLine
from graphbench.cli.parsers import CommandParser, file_to_write, folder_to_write
from graphbench.cli.preflight import built, changes, refuse_options, settings
from graphbench.data.files.foreign import load_yaml
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, check_range
from graphbench.experiments import Training
from graphbench.experiments.sweeps import Failure, Sweep, Variant, array_script, parse_numbers, parse_variation, run_all
from graphbench.runs import RunFolder

log = logging.getLogger(__name__)

RESPLITS = ("random", "stratified", "scaffold", "scaffold_balanced")
#: Options of `fit` that the sweep gives itself.
_OURS = {
    "--run": "its runs lie in --output",
    "--resume": "the same command goes on where it was cut off",
    "--if-exists": "what is there is always gone on with",
    "--checkpoint": "every run goes on from its last checkpoint",
    "--seed_everything": "--seeds names the seeds",
}
#: What tells the runs of one variant apart, and what changes no run.
_REPLICATES = ("seed_everything", "data.init_args.fold", "data.init_args.split_seed", "expected")


def sweep(arguments: Sequence[str]) -> int:
    """Train and test models x variations x seeds x folds, then write the report over all of them.

    Returns:
        0 when all trainings are finished, 1 where some failed.

    Raises:
        BadInput: an option is wrong; nothing has run then.
    """
    parser = _parser()
    own, options = parser.parse_known_args(list(arguments))
    plan, output = _plan(own, options), folder_to_write("--output", own.output)
    for config in own.config:
        refuse_unknown(["--config", config, *options], parser.names)
    trainings = plan.trainings()
    if own.only is not None:
        check_range("--only", own.only, at_least=0, below=len(trainings), whole=True)
        trainings = [trainings[own.only]]
    plan = _with_folds(plan, own, {variant.name: variant for variant, _ in trainings}, output)
    names = {training.name for _, training in trainings}
    trainings = [
        (variant, training)
        for variant, training in plan.trainings()
        if own.only is None or (training.name in names and training.seed == trainings[0][1].seed)
    ]
    if own.slurm is not None:
        file_to_write("--slurm", own.slurm)
    _check(plan, trainings, output)
    if own.slurm is not None:
        return _write_array(arguments, own, len(trainings), output)
    chosen = [training for _, training in trainings]
    failures = run_all(chosen, output, own.jobs, logs=own.only is None)
    if own.only is None:
        _report(chosen, output)
    return _conclude(failures, len(chosen))


def _parser() -> CommandParser:
    parser = CommandParser(
        "sweep",
        description="Train and test every model with every seed and fold, and compare them in DIR/report.html, "
        "table.md, table.csv and table.tex. What is finished is skipped and what was cut off goes on; one that fails "
        "does not stop the others. All other options go to `graphbench fit`.",
    )
    parser.add_argument("--config", action="append", default=[], metavar="NAME", help="a model; give one or several")
    parser.add_argument(
        "--benchmark",
        action="append",
        default=[],
        metavar="'NAME OPTIONS'",
        help="every model on each of these, instead of those of the configurations: 'Graphs --data.source mine.pt'",
    )
    parser.add_argument("--seeds", default="0", metavar="0-4", help="seeds: numbers and ranges (default: 0)")
    parser.add_argument(
        "--folds", type=int, metavar="K", help="K splits of data of your own, each tested once; CSL has 5"
    )
    parser.add_argument("--split-seeds", metavar="0-4", help="repeat the split of data of your own with these seeds")
    parser.add_argument("--resplit", choices=RESPLITS, help="leave the split that the file has, and split this way")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="OPTION=A,B", help="every model with each of these values"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder of the sweep; the same one goes on")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trainings at a time (default: 1)")
    parser.add_argument("--slurm", metavar="FILE", help="train nothing and write a script for sbatch, an array job")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="train this one alone, from 0; for array jobs")
    return parser


def _plan(own: argparse.Namespace, options: Sequence[str]) -> Sweep:
    """What is to be run; nothing but the command line has been looked at."""
    refuse_options("sweep", options, _OURS)
    if not own.config:
        raise BadInput("graphbench sweep needs --config NAME_OR_FILE, once for every model.")
    check_range("--jobs", own.jobs, at_least=1, whole=True)
    if own.folds is not None:
        check_range("--folds", own.folds, at_least=3, whole=True)
    variations: dict[str, list[str]] = {}
    for text in own.vary:
        option, values = parse_variation(text)
        if option in variations:
            raise BadInput(f"--vary {text}: {option} is varied twice; give all its values at once.")
        variations[option] = values
    return Sweep(
        configs=own.config,
        seeds=parse_numbers("--seeds", own.seeds),
        variations=variations,
        folds=own.folds,
        split_seeds=parse_numbers("--split-seeds", own.split_seeds) if own.split_seeds is not None else (),
        options=[*options, *_resplit(own)],
        benchmarks=own.benchmark,
    )


def _resplit(own: argparse.Namespace) -> list[str]:
    """Options of another split."""
    if own.resplit is None:
        return []
    return [f"--data.init_args.split={own.resplit}", "--data.init_args.split_column=null"]


def _with_folds(plan: Sweep, own: argparse.Namespace, variants: Mapping[str, Variant], output: Path) -> Sweep:
    """The plan with the options by which each model's benchmark takes its folds.

    Raises:
        BadInput: the split that is asked for cannot be.
    """
    if own.folds is None and own.resplit is None and not plan.split_seeds:
        return plan
    bare = replace(plan, options=plan.options[: len(plan.options) - len(_resplit(own))])
    found = {}
    for name, variant in variants.items():
        data = built("sweep", bare.training(variant, plan.seeds[0]).arguments(output)).datamodule
        _check_split(data, own)
        if own.resplit is not None:
            data = built("sweep", plan.training(variant, plan.seeds[0]).arguments(output)).datamodule
        if plan.split_seeds:
            data.check_split_seed()
        if own.folds is not None:
            found[name] = data.fold_options(own.folds)
    return replace(plan, fold_options=found)


def _check(plan: Sweep, trainings: Sequence[tuple[Variant, Training]], output: Path) -> None:
    """Build every model once, and hold what earlier calls have left against it.

    Raises:
        BadInput: a model cannot be; or runs in the folder are of other options.
    """
    resolved: dict[str, dict[str, Any]] = {}
    for variant in {variant.name: variant for variant, _ in trainings}.values():
        suffix, replicate = plan.replicates(variant.name)[0]
        words = plan.training(variant, plan.seeds[0], suffix, replicate).arguments(output)
        resolved[variant.name] = settings(built("sweep", words))
    for variant, training in trainings:
        _check_unchanged(RunFolder(training.folder(output)), resolved[variant.name])


def _check_split(data: Any, own: argparse.Namespace) -> None:
    """Refuse other splits of data that have one split.

    Raises:
        BadInput: names option, value and what would be right.
    """
    asked = {"--split-seeds": (own.split_seeds, "split_seed"), "--resplit": (own.resplit, "split")}
    known = inspect.signature(type(data).__init__).parameters
    for option, (value, needed) in asked.items():
        if value is not None and needed not in known:
            raise BadInput(
                f"{option} {value}: {data.spec.name} has a fixed split, on which its scores are compared. Molecules "
                "and graphs of your own (--data Molecules, --data Graphs) can be split in other ways."
            )


def _check_unchanged(run: RunFolder, resolved: Mapping[str, Any]) -> None:
    """Refuse to count a run that was trained with other options.

    Raises:
        BadInput: names what differs.
    """
    if not run.config.is_file() or not run.is_begun:
        return
    try:
        before = load_yaml(run.config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"{run.config} cannot be read: {error}. Remove {run.path} to train it anew.") from error
    differing = changes(before, dict(resolved), _REPLICATES)
    if differing:
        raise BadInput(
            f"{run.path} was trained with other options: {'; '.join(differing[:3])}. Name another --output, or remove "
            "this run."
        )


def _write_array(arguments: Sequence[str], own: argparse.Namespace, count: int, output: Path) -> int:
    """Write the script, and the folder that SLURM's logs need."""
    words = [word for one in CommandLine.parse(arguments).options if one.name != "--slurm" for word in one.words]
    (output / "logs").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "graphbench", "sweep", *words]
    file = Path(own.slurm)
    text = array_script(
        command,
        "--only",
        range(count),
        output / "logs",
        Path.cwd(),
        name=f"sweep-{output.name}",
        notes=(
            "Submit with: sbatch [--partition ... --gres gpu:1 --cpus-per-task ... --time ...] "
            + shlex.quote(str(file)),
            "When the array has ended, the sweep's command without --slurm runs what failed, and writes the report.",
        ),
        at_once=own.jobs if own.jobs > 1 else None,
    )
    write_text(file, text)
    log.info("%s has %d tasks. Submit it with: sbatch %s", file, count, file)
    return 0


def _report(trainings: Sequence[Training], output: Path) -> None:
    """The report over all that is finished."""
    runs = [RunFolder(training.folder(output)) for training in trainings if training.is_finished(output)]
    if not runs:
        return
    from graphbench.report import write_comparison

    for path in write_comparison(runs, output):
        log.info("Wrote %s", path)


def _conclude(failures: Sequence[Failure], count: int) -> int:
    """Name what failed; returns the exit code."""
    if not failures:
        return 0
    log.error("%d of %d trainings failed; the same command tries them again:", len(failures), count)
    for failure in failures:
        log.error("  %s: %s", failure.name, failure.reason)
    return 1
