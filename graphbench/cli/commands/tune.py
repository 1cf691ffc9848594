"""`graphbench tune`: search for options by validation scores."""

from __future__ import annotations

import gc
import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from graphbench.cli.checks import check_fit_options, check_set_once
from graphbench.cli.command_line import CommandLine
from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.cli.process import Stopped
from graphbench.data.files.foreign import load_yaml
from graphbench.data.files.nested import flatten
from graphbench.data.files.writing import no_room, write_text, writing_together
from graphbench.errors import BadInput, GraphbenchError, check_range
from graphbench.experiments import write_csv
from graphbench.experiments.launchers import Cluster, Unit, add_options, launch
from graphbench.experiments.status import read_status, summarize, write_trials
from graphbench.experiments.trainings import write_settled
from graphbench.experiments.tuning.space import Space, probes, read_space
from graphbench.experiments.tuning.space import arguments as written
from graphbench.experiments.tuning.study import Begun, Study, require_optuna
from graphbench.runs import RunFolder
from graphbench.runs.tables import show_number

log = logging.getLogger(__name__)

#: Options of data that decide which rows exist, and which of them are for validation.
_OF_ROWS = (
    "challenge", "file", "fold", "folds", "fractions", "num_folds", "source", "split", "split_column", "split_seed",
    "target", "test_file", "test_source", "val_source",
)  # fmt: skip
#: Options of `fit` that the study sets itself -> the reason.
_RESERVED = {
    "--resume": "the same command resumes where it was interrupted",
    "--if-exists": "existing runs are always continued",
    "--checkpoint": "every trial resumes from its last checkpoint",
}


def tune(arguments: Sequence[str]) -> int:
    """Run trials until the study has `--trials`, and write the best as `best.yaml`.

    Return 1 if no trial has finished, else 0.
    """
    parser = _parser()
    options, words = parser.parse_known_args(list(arguments))
    check_fit_options("tune", words, parser.names, _RESERVED)
    check_range("--trials", options.trials, at_least=1, whole=True)
    folder = folder_to_write("--run", options.run)
    cluster = Cluster.of(options)
    workers = 0 if cluster is None else cluster.number("workers of the study")
    require_optuna()
    space = read_space(Path(options.space))
    check_set_once(words, dict.fromkeys(space, f"--space {options.space}"))
    from graphbench.cli.lightning import build
    from graphbench.cli.same_data import source_of

    cli = build("tune", words)
    if not any(folder.glob("trials/*")):
        cli.datamodule.check_source()  # else every trial of a new study would report a misspelt column
    base = cli.settings()
    _check_devices(base["trainer"])
    _check_space(options.space, space, words)
    facts = {name: value for name, value in flatten(base) if not name.startswith("expected")}
    study = Study(
        folder,
        space,
        facts,
        metric=cli.model.monitor,
        maximize=cli.model.monitor_mode == "max",
        seed=int(base["seed_everything"]),
        prune=options.pruning == "median",
        storage=options.storage,
        data=source_of(cli.datamodule),
    )
    del cli  # its model would stay in memory during all trials
    write_trials(folder, options.trials)
    if cluster is not None:
        study.close()  # this process only watches
        return _launch(folder, cluster, workers, arguments)
    try:
        while (begun := study.next(options.trials)) is not None:
            _run(study, begun, words)
            gc.collect()  # a trainer and its model refer to each other
        return write_settled(study.ended, lambda: _write(study, base))
    finally:
        study.close()


def _launch(folder: Path, cluster: Cluster, workers: int, arguments: Sequence[str]) -> int:
    """Run workers of the study as jobs; the last one to finish writes the best configuration.

    Return 1 if a worker has failed or there is no best configuration, else 0.
    """
    words = ("tune", *CommandLine.parse(arguments).without("--launcher").words)
    names = [f"worker-{number}" for number in range(1, workers + 1)]
    units = [Unit(name, words, folder / "logs" / f"{name}.log") for name in names]
    failed = launch([units], cluster, folder, describe=lambda: summarize(read_status(folder)))
    for unit in failed:  # its trial is lost, and an earlier best.yaml may exist
        log.error("%s has failed: see %s. The same command resumes.", unit.name, unit.log)
    if (folder / "best.yaml").is_file():
        log.info("Best configuration: %s", folder / "best.yaml")
    else:
        log.error("%s has no best configuration: see %s.", folder, folder / "logs")
        return 1
    return 1 if failed else 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "tune",
        description="Try options of a fit and keep the best by validation score. DIR gets study.journal, a folder for "
        "each trial, best.yaml for `graphbench fit --config`, trials.csv and report.html. The same command resumes "
        "where it stopped, and may run several times at once, also on other machines that see DIR. All other "
        "options, --config first, go to `graphbench fit`.",
    )
    parser.add_argument("--space", required=True, metavar="FILE", help="YAML: OPTION: {values: [...]} or {low:, high:}")
    parser.add_argument("--trials", type=int, default=50, metavar="N", help="trials of the study (default: 50)")
    parser.add_argument("--run", required=True, metavar="DIR", help="folder of the study")
    parser.add_argument(
        "--storage", metavar="URL", help="database of the study instead of DIR: postgresql://user:password@host/name"
    )
    parser.add_argument(
        "--pruning", choices=("median", "none"), default="median",
        help="stop trials whose validation score is below the median of others in the same epoch (default), or none",
    )  # fmt: skip
    add_options(parser)
    return parser


def _check_devices(trainer: dict[str, Any]) -> None:
    """Refuse several devices per trial: each of their processes would start a study."""
    for name, alone in (("devices", ("auto", 1, "1", [0])), ("num_nodes", (1,))):
        if trainer[name] not in alone:
            raise BadInput(
                f"--trainer.{name} is {trainer[name]}: a trial runs on one device. Start the command once for every "
                "device, with CUDA_VISIBLE_DEVICES; all of them work on one study."
            )


def _check_space(file: str, space: Space, words: Sequence[str]) -> None:
    """Let the parser judge every option of the space, with its values or both ends."""
    from graphbench.cli.lightning import build

    if chosen := [option for option in space if option.startswith("data.") and option.rpartition(".")[2] in _OF_ROWS]:
        raise BadInput(
            f"--space {file}: {chosen[0]} decides which rows are scored, so the best trial would be the one with the "
            "easiest rows. Set it once for the study; `graphbench sweep --split-seeds` or `--folds` repeats the best "
            "options."
        )
    by_option: dict[str, list[str]] = {}
    for option, value in probes(space):
        by_option.setdefault(option, []).append(value)
    for values in itertools.zip_longest(*by_option.values()):
        options = [f"--{option}={value}" for option, value in zip(by_option, values, strict=True) if value is not None]
        try:
            build("tune", [*words, *options], parse_alone=True)
        except GraphbenchError as error:
            raise BadInput(f"--space {file}: {error}") from error


def _run(study: Study, begun: Begun, words: Sequence[str]) -> None:
    """Run one trial; its errors are recorded and do not stop other trials."""
    from graphbench.cli.commands.fit import fit
    from graphbench.experiments.tuning.pruning import PruneTrial

    run = begun.run
    # Only those of the space: a study that someone sent may have others, and a command line may name any code.
    chosen = written({option: begun.trial.params[option] for option in study.space})
    shown = ", ".join(word.removeprefix("--") for word in chosen)
    log.info("Trial %d: %s", begun.number, shown)
    problem, code = "", 0
    if not begun.pruned and "val" not in run.read_results():  # else it was killed before the study recorded its result
        if run.resumable is not None:
            options = ["--resume", str(run.path)]
        else:
            options = [*words, "--trainer.devices=1", *chosen, "--run", str(run.path)]
        try:
            code = fit(options, callbacks=[PruneTrial(begun.trial, study.metric)])
        except Exception as error:  # out of memory, a layer that does not take a size, ...
            if no_room(error):  # regardless of the options: the trial resumes once there is room
                log.warning("Trial %d waits: run the same command again once there is room.", begun.number)
                raise
            log.debug("trial %d", begun.number, exc_info=True)
            is_said = isinstance(error, GraphbenchError)
            problem = str(error) if is_said else f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if code > 128:
        log.warning("Trial %d waits: run the same command again to continue.", begun.number)
        raise Stopped(code - 128)
    score = None if problem else run.read_results().get("val", {}).get(study.metric)
    study.finish(begun, score, problem)
    log.info("Trial %d: %s", begun.number, _outcome(study, begun, score, problem))


def _outcome(study: Study, begun: Begun, score: float | None, problem: str) -> str:
    """Describe the result of a trial, and the best one so far."""
    if begun.pruned:
        return f"pruned after epoch {begun.trial.user_attrs['pruned_in_epoch'] + 1}"
    if problem or score is None:
        return f"failed: {problem or study.metric + ' is not a number'}"
    best = study.best()
    assert best is not None
    assert best.value is not None
    return f"{study.metric} {show_number(score)}; best so far: trial {best.number}, {show_number(best.value)}"


def _write(study: Study, base: dict[str, Any]) -> int:
    """Write the best configuration, the table of trials and the report; return the exit code."""
    from graphbench.report import write_tuning
    from graphbench.report.tuning import Attempt, Tuning

    states = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
    attempts = [
        Attempt(
            number=trial.number,
            state=states.get(trial.state.name, "running"),  # type: ignore[arg-type]
            score=trial.value,
            options=dict(word.removeprefix("--").split("=", 1) for word in written(trial.params)),  # type: ignore[misc]
            problem=trial.user_attrs.get("problem", ""),
        )
        for trial in study.trials()
    ]
    rows = [
        {"trial": one.number, "state": one.state, study.metric: "" if one.score is None else one.score}
        | {option: one.options.get(option, "") for option in study.space}
        | {"problem": one.problem}
        for one in attempts
    ]
    best = study.best()
    if best is None:
        write_csv(study.folder / "trials.csv", rows)
        reasons = dict.fromkeys(one.problem for one in attempts if one.problem)
        log.error("No trial has finished: %s", "; ".join(reasons) or "all were pruned")
        return 1
    run = RunFolder(study.folder / "trials" / str(best.number))
    content = load_yaml(run.config.read_text(encoding="utf-8"))
    content.pop("expected", None)  # of the recipe, which the options alter
    # A trial ran on one device; the best one may be trained on several.
    content["trainer"]["devices"] = base["trainer"]["devices"]
    head = f"# Trial {best.number} of {len(attempts)}: {study.metric} {best.value}\n"
    tuning = Tuning(study.metric, study.maximize, attempts, best.number, study.importances())
    with writing_together(study.folder) as staged:
        write_csv(staged / "trials.csv", rows)
        write_text(staged / "best.yaml", head + yaml.safe_dump(content, sort_keys=False))
        write_tuning(tuning, run, staged / "report.html")
    for name in ("best.yaml", "trials.csv", "report.html"):
        log.info("Wrote %s", study.folder / name)
    return 0
