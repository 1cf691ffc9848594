"""What can be said of a command line before torch is imported: unknown options, names and files, and misplaced values.

Importing torch and Lightning takes seconds, and a typo should be told at once. What the sources do not tell is left to
the parser that LightningCLI builds.
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
from graphbench.cli.options import FLAGS, OWN, SEVERAL, check_needed, own_parser
from graphbench.cli.parsers import ALL_OPTIONS, near_options, unknown_option
from graphbench.errors import BadInput
from graphbench.registry.configurations import configurations
from graphbench.registry.describe import options_of
from graphbench.runs import RunFolder

#: Options beside those of the command, the trainer, the model and the data.
_OTHERS = ("config", "help", "print_config", "seed_everything", "expected", "trust", "json", "run-folder")
#: Keys at the top of a configuration, as messages list them.
_OF_FILES = ("data", "model", "trainer", "seed_everything", "expected")
#: Options that hold others and name nothing themselves -> what to write instead.
_NAMELESS = {
    "model": "an architecture is named by --model.architecture NAME",
    "trainer": "its options have names of their own, such as --trainer.max_epochs 10",
}
#: Endings of files of data, which no module has.
_DATA_FILES = re.compile(
    r"\.(csv|tsv|txt|smi|smiles|sdf|mol2?|parquet|feather|xlsx|jsonl|pt|pkl|npz|graphml|gz|zip|ckpt)$"
)
#: What other programs call an option -> what it is called here.
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


def look(command: str, arguments: Sequence[str]) -> None:
    """Find what is wrong at first sight.

    Raises:
        BadInput: an option is unknown, a configuration is missing or is no mapping, or a folder holds no run.
        UnknownName: a benchmark or architecture is not registered, or a configuration not installed.
    """
    line = CommandLine.parse(arguments, SEVERAL.get(command, ()), FLAGS)
    check_loose(line, command)
    own, rest = own_parser(command, **OWN[command]).parse_known_args(list(arguments))
    beside = CommandLine.parse(rest, flags=FLAGS).located()
    check_names(beside)
    folder = getattr(own, "resume" if command == "fit" else "run", None)
    if command == "predict":
        _check_runs(line)
    run = CommandLine.parse(["--config", str(RunFolder.existing(folder).config)] if folder else [])
    for slot, name in (run.classes | beside.classes).items():
        if name.isidentifier():
            registry.find(REQUIRED[slot], name)
    _check_known(beside, OWN[command], run)
    check_needed(command, own)


def refuse_unknown(words: Sequence[str], own: Iterable[str]) -> None:
    """Look at the options of a command that hands most of them to `graphbench fit`.

    Args:
        words: the command line without the command's own options.
        own: names of these, which may be meant.

    Raises:
        BadInput: an option is unknown, or a configuration is missing or is no mapping.
    """
    line = CommandLine.parse(words, flags=FLAGS)
    check_loose(line, "fit")
    line = line.located()
    check_names(line)
    _check_known(line, own, CommandLine(()))


# -- values and their places -------------------------------------------------------------------------------------------


def check_loose(line: CommandLine, command: str) -> None:
    """Refuse a word that is the value of no option, and an option of the command that is written as a list.

    Raises:
        BadInput: names the word, and the option that it may be meant for.
    """
    for one in line.options:
        if not one.name:
            option = _option_for(one.value, command)
            hint = f"Did you mean {option} {one.value}?" if option else ALL_OPTIONS
            raise BadInput(f"{one.value!r} is the value of no option. {hint}")
        name = one.name.lstrip("-").replace("-", "_")
        if one.appends and (one.path in (*REQUIRED, *HOLDERS, "seed_everything") or name in OWN.get(command, ())):
            raise BadInput(f"{one.words[0]}: {one.name} takes no list to add to. Leave the + out.")


def _option_for(word: str, command: str) -> str | None:
    """The option whose value a word looks like."""
    path = Path(word)
    if (path / "config.yaml").is_file():
        return "--resume" if command == "fit" else "--run"
    if path.is_file():
        reads = command in ("predict", "embed", "explain") and not word.endswith(SETTINGS)
        return "--input" if reads else "--config" if word.endswith(SETTINGS) else None
    for slot, group in REQUIRED.items():
        if word in registry.records(group):
            return f"--{slot}"
    return "--config" if word in configurations() else None


def _check_runs(line: CommandLine) -> None:
    """Look at the runs of an ensemble, among which the file to answer may stand."""
    for value in (value for one in line.named(*SEVERAL["predict"]) for value in one.values):
        if Path(value).is_file():
            raise BadInput(f"--run {value}: this is a file, and no folder of a run. Did you mean --input {value}?")


def check_names(line: CommandLine) -> None:
    """Look at what stands where a benchmark or an architecture is named.

    Raises:
        BadInput: a file, a folder, or a name where none belongs.
    """
    for one in line.options:
        slot = one.name.removeprefix("--").removesuffix(".class_path")
        if slot in SLOTS and one.values == ("",):
            raise BadInput(f"{one.name} is ''; expected the name of a class, {_article(SLOTS[slot].kind)}.")
        if not one.value or one.value.startswith("{") or holds_settings(one.value):
            continue
        if slot in _NAMELESS:
            meant = f"--model.architecture {one.value}" if one.value in registry.architectures() else ""
            raise BadInput(f"{one.name} {one.value}: {_NAMELESS[slot]}.{f' Did you mean {meant}?' if meant else ''}")
        if slot in REQUIRED:
            _check_name(one.name, slot, one.value)


def _check_name(option: str, slot: str, value: str) -> None:
    """Refuse what is no name of a class: neither a word, nor words with points between them that are no file.

    Args:
        option: where it stands.
        slot: `data` or `model.architecture`.
        value: what stands there.

    Raises:
        BadInput: it is a file, or reads like one.
    """
    dotted = all(part.isidentifier() for part in value.split("."))
    if dotted and not _DATA_FILES.search(value) and ("." not in value or not Path(value).exists()):
        return
    text = (
        f"{option} {value}: this option takes the name of {_article(SLOTS[slot].kind)} "
        f"(`graphbench list {REQUIRED[slot]}`)."
    )
    if slot == "data":
        text += (
            f" Data of your own are named beside it: --data Molecules --data.file {value}, or for other graphs "
            f"--data Graphs --data.source {value}."
        )
    raise BadInput(text)


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


# -- options that nobody takes -----------------------------------------------------------------------------------------


def _check_known(line: CommandLine, own: Iterable[str], run: CommandLine) -> None:
    """Refuse options that nobody takes.

    Args:
        line: without the command's own options.
        own: names of these, which may be meant.
        run: names the configuration of a run, which is not looked at: it was trained.
    """
    _check_contents(line, run)
    known = {name.replace("_", "-") for name in own} | {*_OTHERS, "data", "model", "trainer"}
    classes = run.classes | line.classes
    for one in line.options:
        if one.name.startswith("--"):
            check_option(one.name[2:], known, classes)
        elif one.name:
            raise BadInput(f"Unknown option {one.name}. {ALL_OPTIONS}")


def _check_contents(line: CommandLine, run: CommandLine) -> None:
    """Refuse what files and mappings say and nobody takes.

    An option whose class is not named beside it is held against the only class that is named at all; where there are
    several, whoever comes last decides, and takes what it knows.
    """
    check_order(line.contents)
    every: dict[str, set[str]] = {slot: set() for slot in REQUIRED}
    for _, content in (*run.contents, *line.contents):
        for slot, name in classes_in(content).items():
            every[slot].add(name)
    for place, content in line.contents:
        own = classes_in(content)
        for slot, name in own.items():
            _check_name(slot if place.endswith(slot) else f"{place}: {slot}", slot, name)
        if place == "--model" and "model.architecture" not in own and value_at(content, "model.architecture"):
            raise BadInput(f"{place}: architecture needs a class_path in it. Options alone go to --model.architecture.")
        try:
            options = list(options_in(content))
        except BadInput as error:
            raise BadInput(f"{place}: {error}") from error
        for option, named_here in options:
            slot = next((slot for slot in REQUIRED if option.startswith(f"{slot}.")), "")
            if slot and not named_here and len(every[slot]) > 1:
                continue
            classes = own if named_here else {name: next(iter(found)) for name, found in every.items() if found}
            try:
                check_option(option, {*_OTHERS, "data", "model", "trainer"}, classes)
            except BadInput as error:
                if place.startswith("--config ") and "." not in option:
                    raise _unknown_key(place, option, classes) from error
                raise BadInput(f"{place}: {error}") from error


def check_order(contents: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse a file of which nothing remains: an overlay that stands before what it was to lie over.

    Lists are left alone, since the callbacks of several files add up.

    Args:
        contents: of a command line.

    Raises:
        BadInput: names the file, and the one behind it that sets its options again.

    Examples:
        >>> base, over = {"trainer": {"devices": 1, "max_epochs": 9}}, {"trainer": {"devices": 2}}
        >>> check_order([("--config base", base), ("--config over", over)])
    """
    files = [(place, dict(_leaves(content))) for place, content in contents if place.startswith("--config ")]
    for number, (place, own) in enumerate(files):
        for later, others in files[number + 1 :]:
            if not own or any(isinstance(value, list) for value in own.values()) or not own.keys() <= others.keys():
                continue
            if any(others[option] != value for option, value in own.items()):
                raise BadInput(
                    f"{place}: nothing of it remains, since {later} sets all of it again. What lies over another "
                    "configuration is named behind it."
                )


def _leaves(content: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Every value that is no mapping, by its keys without `init_args`; what a recipe expects is no option."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            inside = above if key == "init_args" else f"{above}{key}."
            yield from _leaves(value, inside) if above or key != "expected" else ()
        else:
            yield f"{above}{key}", value


def _unknown_key(place: str, key: str, classes: Mapping[str, str]) -> BadInput:
    """The error of a key at the top of a file, which is a mistake or was to hold an anchor."""
    name = meant(key, classes)
    near = near_options(key, [*_OF_FILES, *_dotted()]) if name is None else f"Did you mean --{name}? "
    anchor = " An anchor (&NAME) needs no key of its own: it goes before the first value that it names."
    return BadInput(
        f"{place}: Unknown option --{key}. {near}A key at the top of a file must be one of {', '.join(_OF_FILES)}."
        f"{'' if near else anchor}"
    )


def check_option(option: str, known: Collection[str], classes: Mapping[str, str]) -> None:
    """Refuse an option that nobody takes, and one of a class that is named nowhere.

    Args:
        option: without dashes.
        known: options without a prefix.
        classes: slot -> class that is named.

    Raises:
        BadInput: names it and its nearest neighbours.
    """
    first, *rest = option.split(".")
    if first == "expected":
        return
    if first not in OPTION_TOPS or not rest:
        if option.replace("_", "-") not in {name.replace("_", "-") for name in known}:
            raise _unknown(option, [*known, *_dotted()], classes)
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


def _unknown(option: str, known: Iterable[str], classes: Mapping[str, str]) -> BadInput:
    """The error of an option that nobody takes: with the one that was meant, or those that are written alike."""
    if (name := meant(option, classes)) is None:
        return unknown_option(option, known)
    return BadInput(f"Unknown option --{option}. Did you mean --{name}? {ALL_OPTIONS}")


def meant(option: str, classes: Mapping[str, str]) -> str | None:
    """Return the option that was meant by one without its prefix, or by the name it has in other programs.

    Args:
        option: unknown, without dashes.
        classes: slot -> class that the command line names.

    Examples:
        >>> meant("lr", {})
        'model.optimizer.lr'
        >>> meant("batch_size", {"data": "CSL"})
        'data.batch_size'
    """
    last = option.removeprefix("model.")
    if (known := _ELSEWHERE.get(last.replace("_", "-"))) is not None:
        return known
    return next((f"{slot}.{last}" for slot in classes if last in (taken_by(slot, classes) or ())), None)


def taken_by(holder: str, classes: Mapping[str, str]) -> list[str] | None:
    """Return the options that stand below another one; None where no source tells them all.

    Args:
        holder: `data`, `model.architecture`, or one of `HOLDERS`.
        classes: slot -> class that is named.

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
    """Options of trainer and module, with their prefix."""
    return [f"{top}.{name}" for top in ("trainer", "model") for name in taken_by(top, {}) or ()]
