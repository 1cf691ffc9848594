"""Check a command line before torch is imported: unknown options, names and files, and misplaced values.

Importing torch and Lightning takes seconds, which is too long to report a typo. What cannot be read from sources is
left to the parser that LightningCLI builds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphbench import registry
from graphbench.cli.command_line import (
    HOLDERS,
    OPTION_TOPS,
    REQUIRED,
    SETTINGS,
    SLOTS,
    CommandLine,
    classes_in,
    holds_settings,
    options_in,
    value_at,
)
from graphbench.cli.options import FLAGS, OWN, SEVERAL, check_needed, last, own_parser
from graphbench.cli.parsers import ALL_OPTIONS, near_options, unknown_option
from graphbench.data.files.nested import flatten
from graphbench.errors import BadInput
from graphbench.registry.configurations import configurations
from graphbench.registry.describe import options_of
from graphbench.runs import RunFolder

#: Options without a prefix that are not the command's own.
_COMMON = (
    "config", "help", "print_config", "seed_everything", "expected", "trust", "json", "run-folder", "data", "model",
    "trainer",
)  # fmt: skip
#: Top-level keys of a configuration.
_TOP_KEYS = ("data", "model", "trainer", "seed_everything", "expected")
#: Options that only contain others -> what to write instead.
_NAMELESS = {
    "model": "an architecture is named by --model.architecture NAME",
    "model.schedule": "a schedule is named by --model.schedule.name, one of graphbench's own, and torch's classes are "
    "not among them",
    "trainer": "its options have names of their own, such as --trainer.max_epochs 10",
}
#: Suffixes of data files, which no module has.
_DATA_FILES = re.compile(
    r"\.(csv|tsv|txt|smi|smiles|sdf|mol2?|parquet|feather|xlsx|jsonl|pt|pkl|npz|graphml|gz|zip|ckpt)$"
)
#: Name of an option in other programs -> its name here.
_ELSEWHERE = {
    "lr": "model.optimizer.lr",
    "learning-rate": "model.optimizer.lr",
    "weight-decay": "model.optimizer.weight_decay",
    "epochs": "trainer.max_epochs",
    "num-epochs": "trainer.max_epochs",
    "seed": "seed_everything",
    "gpus": "trainer.devices",
    "device": "trainer.accelerator",
    "dataset": "data",
    "benchmark": "data",
    "architecture": "model.architecture",
}


def check_command(command: str, words: Sequence[str]) -> None:
    """Check the command line of a command that builds a model: values, names, files, folders and options."""
    line = CommandLine.parse(words, SEVERAL.get(command, ()), FLAGS)
    _check_values(line, command)
    options, rest = own_parser(command).parse_known_args(list(words))
    others = CommandLine.parse(rest, flags=FLAGS).located()
    # In the order of a user's mistakes: a wrong class would make all of its options look unknown.
    check_names(others)
    folder = last(getattr(options, "resume" if command == "fit" else "run", None))
    if command == "predict":
        for value in (value for one in line.named(*SEVERAL["predict"]) for value in one.values):
            if Path(value).is_file():
                raise BadInput(f"--run {value}: this is a file, not the folder of a run. Did you mean --input {value}?")
    run = CommandLine.parse(["--config", str(RunFolder.existing(folder).config)] if folder else [])
    for slot, name in (run.classes | others.classes).items():
        if name.isidentifier():
            registry.find(REQUIRED[slot], name)
    _check_options(others, OWN[command], run)
    check_needed(command, options)


def check_fit_options(command: str, words: Sequence[str], own: Iterable[str], reserved: Mapping[str, str]) -> None:
    """Check the words that a command passes on to `graphbench fit`, without the command's own options.

    The names of its own options serve as suggestions; `reserved`: options of `fit` that it sets itself -> why.
    """
    line = CommandLine.parse(words, flags=FLAGS)
    for one in line.options:
        if one.name in reserved:
            raise BadInput(f"graphbench {command} does not accept {one.name}: {reserved[one.name]}.")
    _check_values(line, "fit")
    line = line.located()
    check_names(line)
    _check_options(line, own, CommandLine(()))


def check_set_once(words: Sequence[str], setters: Mapping[str, str]) -> None:
    """Refuse an option of a fit that a command sets for each of its trainings, and would override.

    `setters` maps the dotted name of an option, in any spelling, to what sets it.
    """
    by_path = {CommandLine.parse([f"--{option}"]).options[0].path: setter for option, setter in setters.items()}
    for one in CommandLine.parse(words, flags=FLAGS).options:
        if one.path in by_path:
            raise BadInput(
                f"{one.name} {one.value}: {by_path[one.path]} sets it for each training. Leave one of them out."
            )


# -- values and names --------------------------------------------------------------------------------------------------


def _check_values(line: CommandLine, command: str) -> None:
    """Refuse a value without an option, and `+=` for an option that is not a list."""
    for one in line.options:
        if not one.name:
            option = _option_for(one.value, command)
            hint = f"Did you mean {option} {one.value}?" if option else ALL_OPTIONS
            raise BadInput(f"Unexpected argument {one.value!r}. {hint}")
        name = one.name.lstrip("-").replace("-", "_")
        if one.appends and (one.path in (*REQUIRED, *HOLDERS, "seed_everything") or name in OWN.get(command, ())):
            raise BadInput(f"{one.words[0]}: {one.name} is not a list to add to. Leave out the +.")


def _option_for(word: str, command: str) -> str | None:
    """Guess the option to which a value belongs."""
    path = Path(word)
    if (path / "config.yaml").is_file():
        return "--resume" if command == "fit" else "--run"
    if path.is_file():
        reads_input = command in ("predict", "embed", "explain") and not word.endswith(SETTINGS)
        return "--input" if reads_input else "--config" if word.endswith(SETTINGS) else None
    for slot, group in REQUIRED.items():
        if word in registry.records(group):
            return f"--{slot}"
    return "--config" if word in configurations() else None


def check_names(line: CommandLine) -> None:
    """Refuse a file or folder in place of a class, and a name where none belongs."""
    for one in line.options:
        slot = one.name.removeprefix("--").removesuffix(".class_path")
        if slot in SLOTS and one.values == ("",):
            raise BadInput(f"{one.name} is ''; expected the name of a class, {_with_article(SLOTS[slot].kind)}.")
        if not one.value or one.value.startswith("{") or holds_settings(one.value):
            continue
        if slot in _NAMELESS:
            hint = f" Did you mean --model.architecture {one.value}?" if one.value in registry.architectures() else ""
            raise BadInput(f"{one.name} {one.value}: {_NAMELESS[slot]}.{hint}")
        if slot in REQUIRED:
            _check_name(one.name, slot, one.value)


def _check_name(option: str, slot: str, value: str) -> None:
    """Refuse a file, or its name, in place of a class; `option` is its place, for the message."""
    dotted = all(part.isidentifier() for part in value.split("."))
    if dotted and not _DATA_FILES.search(value) and ("." not in value or not Path(value).exists()):
        return
    text = (
        f"{option} {value}: this option takes the name of {_with_article(SLOTS[slot].kind)} "
        f"(`graphbench list {REQUIRED[slot]}`)."
    )
    if slot == "data":
        text += (
            f" Your own data have separate options: --data Molecules --data.file {value}, or for other graphs "
            f"--data Graphs --data.source {value}."
        )
    raise BadInput(text)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


# -- options -----------------------------------------------------------------------------------------------------------


def _check_options(line: CommandLine, own: Iterable[str], run: CommandLine) -> None:
    """Refuse unknown options in words and files, without the command's `own`, which are suggestions.

    The configuration of a `run` is not checked: it was trained.
    """
    _check_contents(line, run)
    names = {name.replace("_", "-") for name in own} | set(_COMMON)
    classes = run.classes | line.classes
    for one in line.options:
        if one.name.startswith("--"):
            _check_option(one.name[2:], names, classes)
        elif one.name:
            raise BadInput(f"Unknown option {one.name}. {ALL_OPTIONS}")


def _check_contents(line: CommandLine, run: CommandLine) -> None:
    """Refuse unknown options in files and mappings.

    An option whose class is not named with it is checked if its slot has only one class; among several, the last one
    decides and ignores what it does not know.
    """
    _check_order(line.contents)
    named: dict[str, set[str]] = {slot: set() for slot in REQUIRED}
    for _, content in (*run.contents, *line.contents):
        for slot, name in classes_in(content).items():
            named[slot].add(name)
    for place, content in line.contents:
        here = classes_in(content)
        for slot, name in here.items():
            _check_name(slot if place.endswith(slot) else f"{place}: {slot}", slot, name)
        if place == "--model" and "model.architecture" not in here and value_at(content, "model.architecture"):
            raise BadInput(f"{place}: architecture needs a class_path. Options without one go to --model.architecture.")
        try:
            for option, is_beside_class in options_in(content):
                slot = next((slot for slot in REQUIRED if option.startswith(f"{slot}.")), "")
                if slot and not is_beside_class and len(named[slot]) > 1:
                    continue
                classes = (
                    here if is_beside_class else {slot: next(iter(names)) for slot, names in named.items() if names}
                )
                if place.startswith("--config ") and "." not in option:
                    _check_top_key(option, classes)
                else:
                    _check_option(option, _COMMON, classes)
        except BadInput as error:
            raise BadInput(f"{place}: {error}") from error


def _check_order(contents: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse a file that a later one overrides completely: an overlay that precedes the configuration it should change.

    Files with lists are not checked, since the callbacks of several files add up.
    """
    files = [(place, _leaves(content)) for place, content in contents if place.startswith("--config ")]
    for number, (place, options) in enumerate(files):
        for later, others in files[number + 1 :]:
            if not options or any(isinstance(value, list) for value in options.values()):
                continue
            if options.keys() <= others.keys() and any(others[name] != value for name, value in options.items()):
                raise BadInput(
                    f"{place} has no effect: {later} overrides every option in it. Name an overlay after the "
                    "configuration that it changes."
                )


def _leaves(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return values other than mappings by their keys without `init_args`, except those below `expected`."""
    return {
        ".".join(part for part in name.split(".") if part != "init_args"): value
        for name, value in flatten(content)
        if not isinstance(value, Mapping) and not name.startswith("expected.")
    }


def _check_top_key(key: str, classes: Mapping[str, str]) -> None:
    """Refuse an unknown top-level key of a file, which is a mistake or was meant for an anchor."""
    try:
        _check_option(key, _COMMON, classes)
    except BadInput as error:
        name = meant(key, classes)
        near = near_options(key, [*_TOP_KEYS, *_dotted()]) if name is None else f"Did you mean --{name}? "
        anchor = " An anchor (&NAME) needs no key of its own: it goes before the first value that it names."
        raise BadInput(
            f"Unknown option --{key}. {near}A key at the top of a file must be one of {', '.join(_TOP_KEYS)}."
            f"{'' if near else anchor}"
        ) from error


def _check_option(option: str, names: Collection[str], classes: Mapping[str, str]) -> None:
    """Refuse an unknown option, and an option of a class that is not among `classes` (slot -> named class).

    `names` are the options without a prefix.
    """
    first, *rest = option.split(".")
    if first == "expected":
        return
    if first not in OPTION_TOPS or not rest:
        if option.replace("_", "-") not in {name.replace("_", "-") for name in names}:
            raise _unknown(option, [*names, *_dotted()], classes)
        return
    rest = [part for part in rest if part != "init_args"]
    if not rest or rest[0] in ("class_path", "help", "config"):
        return
    holder = f"{first}.{rest[0]}"
    if len(rest) > 1 and (holder in REQUIRED or holder in HOLDERS):
        first, rest = holder, rest[1:]
    if first in REQUIRED and first not in classes and rest[-1] not in ("class_path", "help"):
        raise BadInput(
            f"--{option}: this is an option of {SLOTS[first].kind}s, but none is named. Name one with --{first} NAME "
            "or in a --config."
        )
    taken = taken_by(first, classes)
    if taken is None or rest[0] in taken or rest[0] in ("class_path", "dict_kwargs", "help"):
        return
    if owner := classes.get(first):
        near = near_options(rest[0], taken, f"{first}.")
        raise BadInput(f"--{option}: {owner} has no option {rest[0]!r}. {near}It has: {', '.join(taken)}.")
    raise _unknown(option, [f"{first}.{name}" for name in taken], classes)


def _unknown(option: str, names: Iterable[str], classes: Mapping[str, str]) -> BadInput:
    if (name := meant(option, classes)) is None:
        return unknown_option(option, names)
    return BadInput(f"Unknown option --{option}. Did you mean --{name}? {ALL_OPTIONS}")


def meant(option: str, classes: Mapping[str, str]) -> str | None:
    """Return the option meant by a name without its prefix, or by its name in other programs; None if unknown.

    Examples:
        >>> meant("lr", {})
        'model.optimizer.lr'
        >>> meant("batch_size", {"data": "CSL"})
        'data.batch_size'
    """
    last = option.removeprefix("model.")
    if (name := _ELSEWHERE.get(last.replace("_", "-"))) is not None:
        return name
    return next((f"{slot}.{last}" for slot in classes if last in (taken_by(slot, classes) or ())), None)


def taken_by(holder: str, classes: Mapping[str, str]) -> list[str] | None:
    """Return the options below `data`, `model.architecture` or one of `HOLDERS`; None if sources do not show them.

    Examples:
        >>> taken_by("data", {"data": "CSL"})[:2]
        ['fold', 'graph_seed']
    """
    target: str | None = HOLDERS.get(holder)
    if holder in REQUIRED:
        package, _, last = classes.get(holder, "").rpartition(".")
        record = registry.records(REQUIRED[holder]).get(last)
        if record is None or package.partition(".")[0] not in ("", record.target.partition(".")[0]):
            return None
        target = record.target
    options = options_of(target) if target else None
    return None if options is None else [name for name in options if name != "spec"]


def _dotted() -> list[str]:
    """Return the options of trainer and module, with their prefix."""
    return [f"{top}.{name}" for top in ("trainer", "model") for name in taken_by(top, {}) or ()]
