"""Define the commands' own options, in addition to LightningCLI's, parse a command line into a request, and show help.

jsonargparse finds a class by its short name, `GPS` for `graphbench_baselines.gps.GPS`, once its module is imported. So
only the registered classes that a command line or its configurations name are imported.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.cli.command_line import HOLDERS, REQUIRED, CommandLine, classes_in, value_at
from graphbench.cli.parsers import CommandParser, whole_number
from graphbench.data.files.foreign import load_json, load_yaml
from graphbench.data.files.nested import texts_in
from graphbench.data.parts.shares import PART_ROWS, Share
from graphbench.errors import BadInput, check_choice
from graphbench.experiments.launchers.cluster import OPTIONS as LAUNCHER_OPTIONS
from graphbench.registry.describe import options_of
from graphbench.registry.expected import Expected
from graphbench.runs import RunFolder, trust

_DATA_CHANGED = "what to do if the data differ from those of the fit: refuse (default) or accept"
_SCORE = {
    "run": "folder of a finished fit",
    "checkpoint": "checkpoint to score instead of the best",
    "weights": "with --config NAME: weights that its authors released, official or a file (`graphbench list weights`)",
}
_PREDICT = {
    "run": "folder of a finished fit",
    "checkpoint": "checkpoint to use instead of the best",
    "split": "train, val or test (default)",
    "input": "file (or folder) to predict instead of a split; - for SMILES or texts on standard input",
    "smiles_column": "column of --input with the SMILES or texts; by default that of the fit",
    "data_changed": _DATA_CHANGED,
}
_RUN = {"run": "folder of a run"}
#: Command that builds a model -> its own options -> their help. Nothing here needs torch.
OWN: dict[str, dict[str, str]] = {
    "fit": {
        "run": "folder of the new run",
        "resume": "folder of a run to continue",
        "checkpoint": "checkpoint to continue from instead of the last one, with --resume",
        "data_changed": _DATA_CHANGED,
        "if_exists": "what to do if --run contains a run: fail (default) or resume, for jobs that are queued again",
    },
    "params": _RUN | {"json": "print the counts as JSON"},
    "prepare": _RUN
    | {
        "part": "share of the work to do, as 3/8; auto: that of a SLURM array, torchrun or srun",
        **LAUNCHER_OPTIONS,
    },
    "profile": _RUN
    | {
        "steps": "training steps to time, the first 5 for warming up (default 50)",
        "depth": "levels of modules in the table of operations (default 3)",
        "output": "file for the numbers as JSON, with the time of a step over that of its matrix products alone",
        "card_memory": "train nothing; show the memory of a step on a card of this size, such as 80GB, without a card",
    },
    "validate": {**_SCORE, "data_changed": _DATA_CHANGED},
    "test": {
        **_SCORE,
        "data_changed": _DATA_CHANGED,
        "input": "labelled file (or folder) to score in full instead of the test split; scores go to RUN/external",
        "smiles_column": "column of --input with the SMILES or texts; by default that of the fit",
        "name": "name for the scores of --input; by default the name of the file",
        "if_exists": "what to do if RUN/external has scores of another file under that name: fail (default) or replace",
        "on_error": "what to do with rows of --input that cannot be scored: stop (default) or skip",
    },
    "predict": {
        **_PREDICT,
        "run": "folder of a finished fit; several make an ensemble: --run R1 R2 R3",
        "interval": "coverage, such as 0.9, of intervals (or sets of classes) from the validation split",
        "interval_by": "what intervals depend on: distance (to training), spread (of runs), distance,spread or class",
        "calibrate": "scale probabilities by a temperature fitted on the validation split",
        "output": "file to write: .csv or .parquet; with --input also - for CSV on standard output, or DIR/ for a "
        "folder of Parquet parts",
        "part": "share of the parts of --output DIR/ to write, as 3/8; auto: that of a SLURM array, torchrun or srun",
        "part_rows": f"rows of --input in each part of --output DIR/ (default {PART_ROWS:,})",
        "if_exists": "what to do if --output DIR/ contains parts of this share: fail (default) or resume",
        **LAUNCHER_OPTIONS,
    },
    "embed": {
        **_PREDICT,
        "level": "graph (default): what the head sees of each graph; node: of each node",
        "output": "file to write: .parquet or .csv",
    },
    "explain": {
        **_PREDICT,
        "rows": "rows to explain, from 0: --rows 0 5 7",
        "target": "target or class to explain; for classes, by default the most probable one of each row",
        "node": "in a task on nodes, the node of each row to explain, from 0",
        "method": "integrated_gradients (default), masking, or myerson (Shapley values of connected parts)",
        "steps": "nodes of the quadrature of integrated gradients (default: 64)",
        "samples": "random orders for Myerson values of graphs that are too large for exact ones (default: 200)",
        "output": "folder to write: nodes.csv, edges.csv, rows.csv and row-NUMBER.png",
    },
}
#: Option -> aliases: torchrun reads `--run` after its script as its own, and inputs may be texts other than SMILES.
_ALIASES = {"run": ("--run-folder",), "smiles_column": ("--input-column",)} | {
    name: (f"--{name}",) for name in LAUNCHER_OPTIONS if "_" in name
}
#: Own options that accept several words.
SEVERAL = {"predict": ("--run", "--run-folder"), "explain": ("--rows",)}
#: Options without a value.
FLAGS = ("--calibrate", "--help", "--json", "--trust", "-h")
#: The default optimizer of a module, as the class whose options can be set.
DEFAULT_OPTIMIZER = "torch.optim.AdamW"
#: Its names in the configurations of runs; the second is from earlier versions.
AS_FUNCTION = ("graphbench.training.module.adam_w", "graphbench.module.adam_w")
#: Options of data that name files or folders, in every benchmark and in only one.
_PATHS = ("root", "store", "file", "test_file", "val_file", "split_dir")
_PATHS_OF = {"Graphs": ("source", "test_source", "val_source")}
#: Path or paths of an option.
Paths = str | list[str]


@dataclass(frozen=True)
class Request:
    """A parsed command line: the command's own options, and words for LightningCLI.

    Args:
        options: the command's own options.
        typed: all other words, with the paths of configurations.
        run: the existing run that the command names, if any.
        stored: words for the run's own configuration.
        moved: relative paths of its data that are resolved elsewhere, see `_moved_paths`.
    """

    options: argparse.Namespace
    typed: list[str]
    run: RunFolder | None = None
    stored: list[str] = field(default_factory=list)
    moved: dict[str, tuple[Paths, Paths]] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        """Words for LightningCLI, with the run's configuration in front."""
        return [*self.stored, *self.typed]


def own_parser(command: str) -> CommandParser:
    """Return the parser of a command's own options and of `--trust`."""
    parser = CommandParser(command, add_help=False)
    for name, text in OWN.get(command, {}).items():
        names = ("--" + name.replace("_", "-"), *_ALIASES.get(name, ()))
        if names[0] in FLAGS:
            parser.add_argument(*names, help=text, action="store_true")
        else:
            several: dict[str, Any] = {"nargs": "+", "action": "extend"} if names[0] in SEVERAL.get(command, ()) else {}
            parser.add_argument(*names, dest=name, help=text, **several)
    parser.add_argument("--trust", action="store_true", help="import any code that a run's configuration names")
    return parser


def parse_request(parser: CommandParser, words: Sequence[str], run_option: str | None = "run") -> Request:
    """Parse a command line, and import the classes that it names.

    Read the configuration of an existing run, which `run_option` names, first. Refuse a run that may not import what
    its configuration names.
    """
    options, unparsed = parser.parse_known_args(list(words))
    typed = CommandLine.parse(unparsed, flags=FLAGS).located().words
    if any(word in ("-h", "--help") for word in typed):
        parser.print_help()
    folder = last(getattr(options, run_option)) if run_option else None
    if not folder:
        if not typed:
            raise BadInput(
                f"{parser.prog} needs a configuration: --config NAME_OR_FILE, or --data NAME --model.architecture NAME"
                + (f", or --{run_option} FOLDER of an earlier run." if run_option else ".")
            )
        import_named(typed)
        return Request(options, typed)
    run = RunFolder.existing(folder)
    names = trust.named_in([*typed, getattr(options, "input", None) or ""])
    # Before any class is imported: a run that someone sent may name one whose module runs code.
    trust.restrict_to(trust.Policy.of(run.config, options.trust, names))
    moved = _moved_paths(run)
    stored = ["--config", str(run.config)]
    for name, (_, path) in moved.items():
        stored += [f"--data.{name}", path if isinstance(path, str) else json.dumps(path)]
    request = Request(options, typed, run, stored, moved)
    import_named(request.arguments)
    return request


def last(value: Any) -> Any:
    """Return the last of several values of an option, or its only one."""
    return value[-1] if isinstance(value, list) else value


def _moved_paths(run: RunFolder) -> dict[str, tuple[Paths, Paths]]:
    """Resolve the data's relative paths for a command that runs in another folder than its fit.

    They are relative to the folder in which the fit was started, and are looked up there first, or in the command's
    folder if that one is gone, as on another machine. All paths in a list must exist. Return option -> the path in the
    configuration, and the absolute one to use instead.
    """
    moved: dict[str, tuple[Paths, Paths]] = {}
    try:
        started = Path(load_json(run.environment)["folder"])
        data = load_yaml(run.config.read_text(encoding="utf-8"))["data"]
        names = (*_PATHS, *_PATHS_OF.get(data["class_path"].rpartition(".")[2], ()))
        for name in names if started != Path.cwd() else ():
            given = data["init_args"].get(name)
            files = given if isinstance(given, list) else [given]
            if all(isinstance(file, str) for file in files) and not all(Path(file).is_absolute() for file in files):
                resolved = [str(started / file) for file in files]
                if all(Path(file).exists() for file in resolved):
                    moved[name] = (given, resolved if isinstance(given, list) else resolved[0])
        return moved
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):  # an older run, or a damaged one
        return {}


def import_named(words: Sequence[str]) -> None:
    """Import every registered class that a command line, with the paths of its configurations, names."""
    line = CommandLine.parse(words)
    texts = {word for option in line.options for word in (option.name, *option.values)}
    for place, content in line.contents:
        if place.startswith("--config "):
            Expected.parse(content.get("expected"), place)
        texts.update(texts_in(content))
        for slot, name in classes_in(content).items():
            if name.isidentifier():  # dotted paths are left to jsonargparse
                registry.load(REQUIRED[slot], name)
    for option in line.options:
        texts.update(texts_in(option.read()))
    for group in registry.GROUPS:
        for name in texts & registry.records(group).keys():
            registry.load(group, name)


def with_optimizer(words: Sequence[str]) -> list[str]:
    """Put classes before their options, and the default optimizer before its own if none is named.

    A default in the parser would keep the options of one class for the next one named, such as AdamW's weight decay for
    Adam.

    Examples:
        >>> with_optimizer(["--model.optimizer.lr", "3e-4"])
        ['--model.optimizer', 'torch.optim.AdamW', '--model.optimizer.lr', '3e-4']
        >>> with_optimizer(["--model.optimizer", "SGD", "--model.optimizer.lr", "3e-4"])[:2]
        ['--model.optimizer', 'SGD']
    """
    line, option = CommandLine.parse(words).classes_first(), "--model.optimizer"
    places = (place for place, each in enumerate(line.options) if each.name.startswith(f"{option}."))
    first = next(places, None)
    names = (value_at(content, option[2:]) for _, content in line.contents)
    if (
        first is None
        or line.named(option, f"{option}.class_path", f"{option}.help")
        or any(name not in (None, *AS_FUNCTION) for name in names)
    ):
        return line.words
    before, behind = CommandLine(line.options[:first]), CommandLine(line.options[first:])
    return [*before.words, option, DEFAULT_OPTIMIZER, *behind.words]


# -- checks ------------------------------------------------------------------------------------------------------------


def check_needed(command: str, options: argparse.Namespace) -> None:
    """Refuse options of a command if a required one is missing, or if they do not match its output."""
    if command == "explain" and not options.rows:
        raise BadInput("--rows is missing: name the rows to explain, as in --rows 0 5 7.")
    if command == "explain" and not options.output:
        raise BadInput("--output is missing: name the folder to write.")
    if command == "predict":
        _check_prediction(options)
    elif command == "embed":
        from graphbench.inference.output import check_output

        check_output(options.output)


def _check_prediction(options: argparse.Namespace) -> None:
    """Refuse options of `predict` that do not match its input and output."""
    from graphbench.inference.output import check_output, names_parts

    in_parts = names_parts(options.output)
    if in_parts and options.input is not None:
        share_of(options)
        if options.input == "-":
            raise BadInput(
                "--output DIR/ resumes after a kill by reading the input again, and standard input can be read only "
                "once: write it to a file, and name that with --input."
            )
        return
    if options.input is not None:
        check_output(options.output, streams=True)
    for name in ("part", "part_rows", "if_exists", *LAUNCHER_OPTIONS):
        if getattr(options, name) is not None:
            raise BadInput(
                f"--{name.replace('_', '-')} is about a folder of parts: name one with --output DIR/ and an --input "
                "FILE, or leave it out."
            )
    if in_parts:
        raise BadInput(f"--output {options.output}: a folder of parts is written for --input FILE, not for a split.")


def share_of(options: argparse.Namespace) -> tuple[Share, int, bool]:
    """Return the share of a folder of parts, the rows of a part, and whether to resume."""
    check_choice("--if-exists", options.if_exists or "fail", ("fail", "resume"))
    rows = PART_ROWS if options.part_rows is None else whole_number("--part-rows", options.part_rows, at_least=1)
    share = Share() if options.part is None else Share.parse(options.part)
    return share, rows, options.if_exists == "resume"


# -- help --------------------------------------------------------------------------------------------------------------


def show_help(command: str) -> None:
    """Print the help of one of the commands in `OWN`."""
    if command == "fit":
        print(help_page())
        return
    own_parser(command).print_help()
    print(
        "\nOptions of data, model and trainer replace those of the run: `graphbench fit --help` lists them. Without\n"
        "--run FOLDER name --config FILE."
    )


def help_page() -> str:
    """Return the help of `fit`: its own options, followed by those of model, data and trainer."""
    module, trainer = options_of(HOLDERS["model"]) or {}, options_of(HOLDERS["trainer"]) or {}
    shared = options_of("graphbench.benchmarks.base:GraphBenchmark") or {}
    lines = [
        own_parser("fit").format_help().rstrip(),
        "  --config NAME         an installed configuration (`graphbench list configs`), or a file",
        "  --seed_everything N   seed of weights, dropout and the order of the data",
        "",
        "model:",
        "  --model.architecture NAME  one of: " + _wrap(registry.architectures(), 29),
        *_describe("model.", {name: text for name, text in module.items() if name not in ("spec", "architecture")}),
        "",
        "data:",
        "  --data NAME           one of: " + _wrap(registry.benchmarks(), 24),
        *_describe("data.", shared),
        "",
        "trainer (pytorch_lightning.Trainer), `--trainer.NAME VALUE`:",
        "  " + _wrap(trainer, 2),
        "",
        "Options of a class: `--data.help NAME`, `--model.architecture.help NAME`; all of them: `--help all`.",
    ]
    return "\n".join(lines)


def _describe(prefix: str, options: Mapping[str, str]) -> list[str]:
    lines = []
    for name, text in options.items():
        head = f"  --{prefix}{name}"
        body = textwrap.wrap(text.partition(";")[0].rstrip("."), 96 - 26)
        lines.append(f"{head:<26}{body[0] if len(head) < 25 and body else ''}".rstrip())
        lines += [" " * 26 + line for line in (body[1:] if len(head) < 25 else body)]
    return lines


def _wrap(names: Iterable[str], indent: int) -> str:
    return f"\n{' ' * indent}".join(textwrap.wrap(", ".join(names), 88 - indent))
