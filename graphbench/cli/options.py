"""The few options that a command takes beside LightningCLI's own, what a command line asks for by them, and help."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.cli.command_line import HOLDERS, REQUIRED, CommandLine, classes_in, value_at
from graphbench.cli.parsers import CommandParser
from graphbench.data.files.foreign import load_json
from graphbench.errors import BadInput
from graphbench.registry.describe import options_of
from graphbench.registry.expected import Expected
from graphbench.runs import RunFolder, trust

#: Help of an option that several commands have.
DATA_CHANGED = "what to do where the data are not those of the fit: refuse (default) or accept"
_SCORE = {"run": "folder of a finished fit", "checkpoint": "checkpoint to score instead of the best"}
_PREDICT = {
    "run": "folder of a finished fit",
    "checkpoint": "checkpoint to use instead of the best",
    "split": "train, val or test (default)",
    "input": "file (or folder) to answer instead of a split; - for SMILES or texts on standard input",
    "smiles_column": "column of --input with the SMILES or texts; by default that of the fit",
    "data_changed": DATA_CHANGED,
}
_RUN = {"run": "folder of a run"}
#: Own options of the commands that build a model: command -> option -> what it does. Nothing here needs torch.
OWN: dict[str, dict[str, str]] = {
    "fit": {
        "run": "folder of the new run",
        "resume": "folder of a run to continue",
        "checkpoint": "checkpoint to continue from instead of the last one, with --resume",
        "data_changed": DATA_CHANGED,
        "if_exists": "what to do where --run holds a run: fail (default) or resume, for jobs that are queued again",
    },
    "params": _RUN | {"json": "print the counts as JSON"},
    "prepare": _RUN,
    "profile": _RUN
    | {
        "steps": "training steps to time, the first 5 for warming up (default 50)",
        "depth": "levels of modules in the table of operations (default 3)",
    },
    "validate": {**_SCORE, "data_changed": DATA_CHANGED},
    "test": {
        **_SCORE,
        "data_changed": DATA_CHANGED,
        "input": "labelled file (or folder) to score in place of the test split, whole; its scores go to RUN/external",
        "smiles_column": "column of --input with the SMILES or texts; by default that of the fit",
        "name": "what to call the scores of --input; by default the name of the file",
        "if_exists": "what to do where RUN/external has scores of another file by that name: fail (default) or replace",
        "on_error": "what to do with rows of --input that cannot be scored: stop (default) or skip",
    },
    "predict": {
        **_PREDICT,
        "run": "folder of a finished fit; several make an ensemble: --run R1 R2 R3",
        "interval": "coverage, such as 0.9, of intervals from the errors on the validation split",
        "calibrate": "scale probabilities by a temperature fitted on the validation split",
        "output": "file to write: .csv or .parquet; - writes CSV to standard output, beside --input",
    },
    "embed": {
        **_PREDICT,
        "level": "graph (default): what the head sees of each graph; node: of each node",
        "output": "file to write: .parquet or .csv",
    },
    "explain": {
        **_PREDICT,
        "rows": "rows to explain, from 0: --rows 0 5 7",
        "target": "target or class to explain; of classes the most probable one of each row by default",
        "node": "of a task on nodes: the node of each row to explain, from 0",
        "method": "integrated_gradients (default), masking, or myerson (Shapley values of connected parts)",
        "steps": "nodes of the quadrature of integrated gradients (default: 64)",
        "samples": "random orders for Myerson values of graphs that are too large for exact ones (default: 200)",
        "output": "folder to write: nodes.csv, edges.csv, rows.csv and row-NUMBER.png",
    },
}
#: Second names of options.
_SECOND_NAMES = {"run": ("--run-folder",), "smiles_column": ("--input-column",)}
#: Own options that take all words up to the next option.
SEVERAL = {"predict": ("--run", "--run-folder"), "explain": ("--rows",)}
#: Options without a value.
FLAGS = ("--calibrate", "--help", "--json", "--trust", "-h")


@dataclass(frozen=True)
class Request:
    """A command line, split.

    Args:
        own: the command's own options.
        arguments: what LightningCLI parses, with the run's configuration in front where a run is named.
        run: the existing run that was named, if any.
        changed: options were given beside the run's own configuration.
        moved: options of its data that lead elsewhere than they say, see `_moved_paths`.
        stored: the part of `arguments` that the run's own configuration is, without what was given beside it.
    """

    own: argparse.Namespace
    arguments: list[str]
    run: RunFolder | None
    changed: bool = False
    moved: dict[str, tuple[str, str]] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)


def own_parser(command: str, **help_texts: str) -> CommandParser:
    """A parser for the command's own options, each taking one value, and for `--trust`.

    `--run` has a second name, since torchrun takes `--run` behind its script for an option of its own; so has
    `--smiles-column`, since there may be other texts in it.
    """
    parser = CommandParser(command, add_help=False)
    for name, text in help_texts.items():
        names = ("--" + name.replace("_", "-"), *_SECOND_NAMES.get(name, ()))
        parser.add_argument(*names, dest=name, help=text, action="store_true" if names[0] in FLAGS else "store")
    parser.add_argument("--trust", action="store_true", help="import whatever the configuration of a run names")
    return parser


def check_needed(command: str, own: argparse.Namespace) -> None:
    """Look for what a command cannot do without.

    Args:
        command: one of `OWN`.
        own: its own options.

    Raises:
        BadInput: an option is missing, or the name of the file to write is of another type.
    """
    if command == "explain" and not own.rows:
        raise BadInput("--rows is missing: name the rows to explain, as in --rows 0 5 7.")
    if command == "explain" and not own.output:
        raise BadInput("--output is missing: name the folder to write.")
    if command == "embed" or (command == "predict" and own.input is not None):
        from graphbench.inference.output import check_output

        check_output(own.output, streams=command == "predict")


def split(parser: CommandParser, arguments: Sequence[str], run_option: str | None = "run") -> Request:
    """Take the command's own options out and import the classes that the rest names.

    Args:
        parser: knows the own options.
        arguments: the command line after the command.
        run_option: own option that names an existing run, whose configuration is read first.

    Raises:
        BadInput: the named folder holds no run or one that may not import what it names, or there is no such
            configuration.
        UnknownName: a benchmark or architecture is not registered.
    """
    own, given = parser.parse_known_args(list(arguments))
    rest = CommandLine.parse(given, flags=FLAGS).located().words
    if any(argument in ("-h", "--help") for argument in rest):
        parser.print_help()
    folder = getattr(own, run_option) if run_option else None
    run = RunFolder.existing(folder) if folder else None
    changed = bool(rest)
    moved = _moved_paths(run) if run is not None else {}
    stored: list[str] = []
    if run is not None:
        trust.require(
            trust.Policy.of(run.config, own.trust, trust.named_in([*rest, getattr(own, "input", None) or ""]))
        )
        there = [word for name, (_, path) in moved.items() for word in (f"--data.{name}", path)]
        stored = ["--config", str(run.config), *there]
        rest = [*stored, *rest]
    if not rest:
        raise BadInput(
            f"{parser.prog} needs a configuration: --config NAME_OR_FILE, or --data NAME --model.architecture NAME"
            + (f", or --{run_option} FOLDER of an earlier run." if run_option else ".")
        )
    import_named(rest)
    return Request(own, rest, run, changed, moved, stored)


#: Options of data that name files or folders.
_PATHS = ("root", "store", "file", "test_file", "val_file", "split_dir")
#: Option of one benchmark that may name a file, and is a word of other meaning elsewhere.
_PATHS_OF = {"Graphs": ("source", "test_source", "val_source")}


def _moved_paths(run: RunFolder) -> dict[str, tuple[str, str]]:
    """Where the data of a run are, for a command that is given in another folder than its fit was.

    A path in a configuration is relative to the folder in which the fit was started. It is looked for there first, and
    in the folder of the command where that has gone, as on another machine.

    Returns:
        Option of the data -> the path in the configuration and the absolute one to take instead.
    """
    try:
        started = Path(load_json(run.environment)["folder"])
        data = yaml.safe_load(run.config.read_text(encoding="utf-8"))["data"]
        options, benchmark = data["init_args"], data["class_path"].rpartition(".")[2]
        names = (*_PATHS, *_PATHS_OF.get(benchmark, ()))
        given = {name: options[name] for name in names if isinstance(options.get(name), str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):  # an older run, or a damaged one
        return {}
    relative = {name: value for name, value in given.items() if not Path(value).is_absolute()}
    if started == Path.cwd():
        return {}
    return {name: (value, str(started / value)) for name, value in relative.items() if (started / value).exists()}


# -- help --------------------------------------------------------------------------------------------------------------


def show_help(command: str) -> None:
    """Print the help of one of the commands in `OWN`."""
    if command == "fit":
        print(help_page(command))
        return
    own_parser(command, **OWN[command]).print_help()
    print(
        "\nOptions of data, model and trainer replace those of the run: `graphbench fit --help` lists them. Without\n"
        "--run FOLDER name --config FILE."
    )


def help_page(command: str) -> str:
    """The options of a command that trains or scores: its own first, then those of model, data and trainer."""
    module, trainer = options_of(HOLDERS["model"]) or {}, options_of(HOLDERS["trainer"]) or {}
    shared = options_of("graphbench.benchmarks.base:GraphBenchmark") or {}
    lines = [
        own_parser(command, **OWN[command]).format_help().rstrip(),
        "  --config NAME         an installed configuration (`graphbench list configs`), or a file",
        "  --seed_everything N   seed of weights, dropout and the order of the data",
        "",
        "model:",
        "  --model.architecture NAME  one of: " + _wrapped(registry.architectures(), 29),
        *_described("model.", {name: text for name, text in module.items() if name not in ("spec", "architecture")}),
        "",
        "data:",
        "  --data NAME           one of: " + _wrapped(registry.benchmarks(), 24),
        *_described("data.", shared),
        "",
        "trainer (pytorch_lightning.Trainer), `--trainer.NAME VALUE`:",
        "  " + _wrapped(trainer, 2),
        "",
        "Options of a class: `--data.help NAME`, `--model.architecture.help NAME`; all of them: `--help all`.",
    ]
    return "\n".join(lines)


def _described(prefix: str, options: Mapping[str, str]) -> list[str]:
    lines = []
    for name, text in options.items():
        head = f"  --{prefix}{name}"
        body = textwrap.wrap(text.partition(";")[0].rstrip("."), 96 - 26)
        lines.append(f"{head:<26}{body[0] if len(head) < 25 and body else ''}".rstrip())
        lines += [" " * 26 + line for line in (body[1:] if len(head) < 25 else body)]
    return lines


def _wrapped(names: Iterable[str], indent: int) -> str:
    return f"\n{' ' * indent}".join(textwrap.wrap(", ".join(names), 88 - indent))


#: What a module without an optimizer takes, as the class whose options can be given.
DEFAULT_OPTIMIZER = "torch.optim.AdamW"
#: How configurations of runs name it, those of earlier versions too.
AS_FUNCTION = ("graphbench.training.module.adam_w", "graphbench.module.adam_w")


def import_named(arguments: Sequence[str]) -> None:
    """Import every registered class that the arguments or their configurations name.

    Args:
        arguments: the command line after the command, each configuration by the path of its file.

    Raises:
        UnknownName: `data` or `model.architecture` names something that nobody registers.
        BrokenPlugin: a named class cannot be imported.
        BadInput: a configuration cannot be read, or expects something under an unknown name.
    """
    line = CommandLine.parse(arguments)
    words = {word for one in line.options for word in (one.name, *one.values)}
    for place, content in line.contents:
        if place.startswith("--config "):
            Expected.parse(content.get("expected"), place)
        words.update(_strings(content))
        for slot, name in classes_in(content).items():
            if name.isidentifier():  # a dotted path is left to jsonargparse
                registry.load(REQUIRED[slot], name)
    for one in line.options:
        words.update(_strings(one.read()))
    for group in registry.GROUPS:
        for name in words & registry.records(group).keys():
            registry.load(group, name)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def with_optimizer(arguments: Sequence[str]) -> list[str]:
    """Name the default optimizer before the first of its options where nothing names one.

    A default in the parser would not do: it keeps the options of one class for the next that is named, such as the
    weight decay of AdamW for Adam.

    Args:
        arguments: the command line after the command.

    Examples:
        >>> with_optimizer(["--model.optimizer.lr", "3e-4"])
        ['--model.optimizer', 'torch.optim.AdamW', '--model.optimizer.lr', '3e-4']
        >>> with_optimizer(["--model.optimizer", "SGD", "--model.optimizer.lr", "3e-4"])[:2]
        ['--model.optimizer', 'SGD']
    """
    line, option = CommandLine.parse(arguments), "--model.optimizer"
    first = next((place for place, one in enumerate(line.options) if one.name.startswith(f"{option}.")), None)
    named = (value_at(content, option[2:]) for _, content in line.contents)
    if (
        first is None
        or line.named(option, f"{option}.class_path", f"{option}.help")
        or any(name not in (None, *AS_FUNCTION) for name in named)
    ):
        return line.words
    before, behind = CommandLine(line.options[:first]), CommandLine(line.options[first:])
    return [*before.words, option, DEFAULT_OPTIMIZER, *behind.words]
