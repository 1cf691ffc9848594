"""What can be said of a command line before torch is imported: unknown names, files and options, and the help page.

Importing torch and Lightning takes seconds, and a typo should be told at once. What the sources do not tell is left to
the parser that LightningCLI builds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from graphbench import registry
from graphbench.cli.contents import SLOTS, check_order, classes_in, options_in, spoken
from graphbench.cli.misplaced import check_loose, check_name, check_names, check_owner, meant, meant_option
from graphbench.cli.options import OWN, SEVERAL, check_needed, own_parser
from graphbench.cli.parsers import near_options, unknown_option
from graphbench.errors import BadInput
from graphbench.registry.configurations import with_files
from graphbench.registry.describe import options_of
from graphbench.runs import RunFolder

MODULE = "graphbench.training.module:BenchmarkModule"
TRAINER = "pytorch_lightning.trainer.trainer:Trainer"
#: Options beside those of the command, the trainer, the model and the data.
_OTHERS = ("config", "c", "help", "h", "print_config", "seed_everything", "expected", "trust", "json", "run-folder")
#: Keys at the top of a configuration, as messages list them.
_OF_FILES = ("data", "model", "trainer", "seed_everything", "expected")
#: Option of `BenchmarkModule` -> the class whose options it takes as well.
_NESTED = {"head": "graphbench.nn.heads:HeadConfig", "schedule": "graphbench.training.optim:Schedule"}


def look(command: str, arguments: Sequence[str]) -> None:
    """Find what is wrong at first sight.

    Raises:
        BadInput: an option is unknown, a configuration is missing or is no mapping, or a folder holds no run.
        UnknownName: a benchmark or architecture is not registered, or a configuration not installed.
    """
    check_loose(arguments, command, SEVERAL.get(command, ()))
    own, rest = own_parser(command, **OWN[command]).parse_known_args(list(arguments))
    words = with_files(rest)
    check_names(words)
    run = getattr(own, "resume" if command == "fit" else "run", None)
    if command == "predict":
        _check_runs(arguments)
    there = ["--config", str(RunFolder.existing(run).config)] if run else []
    for slot, name in _classes([*there, *words]).items():
        if name.isidentifier():
            registry.find(SLOTS[slot], name)
    _refuse_unknown(words, OWN[command], there)
    check_needed(command, own)


def _check_runs(words: Sequence[str]) -> None:
    """Look at the runs of an ensemble, among which the file to answer may stand."""
    of_run = False
    for word in words:
        of_run = word in SEVERAL["predict"] if word.startswith("--") else of_run
        if of_run and Path(word).is_file():
            raise BadInput(f"--run {word}: this is a file, and no folder of a run. Did you mean --input {word}?")


def refuse_unknown(words: Sequence[str], own: Iterable[str]) -> None:
    """Look at the options of a command that hands most of them to `graphbench fit`.

    Args:
        words: the command line without the command's own options.
        own: names of these, which may be meant.

    Raises:
        BadInput: an option is unknown, or a configuration is missing or is no mapping.
    """
    check_loose(words, "fit")
    check_names(words)
    _refuse_unknown(words, own)


def _refuse_unknown(words: Sequence[str], own: Iterable[str], there: Sequence[str] = ()) -> None:
    """`there` is said before the command line by the configuration of a run, which is not looked at: it was trained."""
    groups, classes = {"data", "model", "trainer"}, _classes([*there, *words])
    known = {name.replace("_", "-") for name in own} | {*_OTHERS, *groups}
    _check_contents(words, {*_OTHERS, *groups}, there)
    for word in words:
        if word.startswith("--") and len(word) > 2:
            _check(word[2:].partition("=")[0].rstrip("+"), known, classes)


def _classes(words: Sequence[str]) -> dict[str, str]:
    """Slot -> the class that it names last, on the command line or in a configuration."""
    return {slot: name for _, content in spoken(words) for slot, name in classes_in(content).items()}


def _check_contents(words: Sequence[str], known: Iterable[str], there: Sequence[str]) -> None:
    """Refuse what files say and nobody takes.

    An option whose class is not named beside it is held against the only class that is named at all; where there are
    several, whoever comes last decides, and takes what it knows.
    """
    contents = list(spoken(words))
    check_order(contents)
    each = [classes_in(content) for _, content in contents]
    before = [classes_in(content) for _, content in spoken(there)]
    every = {slot: {found[slot] for found in (*before, *each) if slot in found} for slot in SLOTS}
    for (place, content), own in zip(contents, each, strict=True):
        for slot, name in own.items():
            check_name(slot if place.endswith(slot) else f"{place}: {slot}", slot, name)
        for option, named_here in _told(place, options_in(content)):
            slot = next((slot for slot in SLOTS if option.startswith(f"{slot}.")), "")
            if slot and not named_here and len(every[slot]) > 1:
                continue
            classes = own if named_here else {name: next(iter(found)) for name, found in every.items() if found}
            try:
                _check(option, known, classes)
            except BadInput as error:
                if place.startswith("--config ") and "." not in option:
                    raise _unknown_key(place, option, classes) from error
                raise BadInput(f"{place}: {error}") from error


def _unknown_key(place: str, key: str, classes: Mapping[str, str]) -> BadInput:
    """The error of a key at the top of a file, which is a mistake or was to hold an anchor."""
    name = _meant(key, classes)
    near = near_options(key, [*_OF_FILES, *_dotted()]) if name is None else f"Did you mean --{name}? "
    anchor = " An anchor (&NAME) needs no key of its own: it goes before the first value that it names."
    return BadInput(
        f"{place}: Unknown option --{key}. {near}A key at the top of a file must be one of {', '.join(_OF_FILES)}."
        f"{'' if near else anchor}"
    )


def _told(place: str, options: Iterator[tuple[str, bool]]) -> list[tuple[str, bool]]:
    try:
        return list(options)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error


def _check(option: str, known: Iterable[str], classes: Mapping[str, str]) -> None:
    """Refuse an option that nobody takes.

    Raises:
        BadInput: names it and its nearest neighbours.
    """
    first, *rest = option.split(".")
    if first == "expected":
        return
    if first not in ("data", "model", "trainer") or not rest:
        if option.replace("_", "-") not in {name.replace("_", "-") for name in known}:
            raise _unknown(option, [*known, *_dotted()], classes)
        return
    rest = [part for part in rest if part != "init_args"]
    if not rest or rest[0] in ("class_path", "help", "config"):
        return
    slot = "model.architecture" if rest[0] == "architecture" and len(rest) > 1 else first
    if slot in SLOTS and rest[-1] not in ("class_path", "help"):
        check_owner(option, slot, classes)
    if first == "trainer":
        taken = options_of(TRAINER)
    elif first == "model":
        taken = options_of(MODULE)
        if rest[0] == "architecture":
            first, rest = "model.architecture", rest[1:]
            taken = _options_of_class("architectures", classes.get(first))
        elif rest[0] in _NESTED and len(rest) > 1:
            first, rest, taken = f"model.{rest[0]}", rest[1:], options_of(_NESTED[rest[0]])
    else:
        taken = _options_of_class("benchmarks", classes.get("data"))
    if taken is None or not rest or rest[0] in taken or rest[0] in ("class_path", "dict_kwargs", "help"):
        return
    owner = classes.get(first, "")
    if owner:
        near = near_options(rest[0], taken, f"{first}.")
        raise BadInput(
            f"--{option}: {owner} has no option {rest[0]!r}. {near}It has: "
            f"{', '.join(name for name in taken if name != 'spec')}."
        )
    raise _unknown(option, [f"{first}.{name}" for name in taken if name != "spec"], classes)


def _unknown(option: str, known: Iterable[str], classes: Mapping[str, str]) -> BadInput:
    name = _meant(option, classes)
    return unknown_option(option, known) if name is None else meant_option(option, name)


def _meant(option: str, classes: Mapping[str, str]) -> str | None:
    return meant(option, classes, lambda slot: _options_of_class(SLOTS[slot], classes[slot]))


def _options_of_class(group: registry.Group, name: str | None) -> dict[str, str] | None:
    """What a registered class takes; None for another class, which is not read."""
    package, _, last = (name or "").rpartition(".")
    record = registry.records(group).get(last)
    if record is None or (package and package.partition(".")[0] != record.target.partition(":")[0].partition(".")[0]):
        return None
    return options_of(record.target)


def _dotted() -> list[str]:
    """Options of trainer and module, with their prefix."""
    trainer, module = options_of(TRAINER) or {}, options_of(MODULE) or {}
    return [f"trainer.{name}" for name in trainer] + [f"model.{name}" for name in module if name != "spec"]


def help_page(command: str) -> str:
    """The options of a command that trains or scores: its own first, then those of model, data and trainer."""
    module, trainer = options_of(MODULE) or {}, options_of(TRAINER) or {}
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
