"""`graphbench verify`: check a run that someone sent, and add it to the equal-budget tables of all models."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from graphbench import registry
from graphbench.cli.console import show_line
from graphbench.cli.lightning import resolve
from graphbench.cli.parsers import CommandParser
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, CorruptData
from graphbench.experiments import Training
from graphbench.experiments.budget import (
    EXPERIMENT,
    NOTE,
    PREFIX,
    add_records,
    outside_budget,
    record_file,
    shared_options,
)
from graphbench.experiments.records import Record, record_of
from graphbench.inference.verification import Check, verify
from graphbench.registry.configurations import Configuration, class_name, configurations, facts
from graphbench.runs import RunFolder, trust
from graphbench.runs.differences import differing

log = logging.getLogger(__name__)
#: Text that is unchanged in Markdown and HTML.
_PLAIN = r"[^<>|`\[\]*\n\r]{0,300}"


def run(arguments: Sequence[str]) -> int:
    """Check a run; with `--records`, add it to its table.

    Return 1 if a check fails, in which case nothing is added, else 0.
    """
    parser = CommandParser(
        "verify",
        description="Check a run that someone sent: its configuration builds and names only registered classes, the "
        "parameters agree, a training step runs, and its predictions give the claimed scores on targets that "
        "are read again. With --records, a run of `--config equal-budget/NAME` is added to the table of all models.",
    )
    parser.add_argument(
        "record",
        metavar="RUN",
        help="folder with config.yaml, results.json, environment.json, metrics.csv, predictions-val.csv and "
        "predictions-test.csv of a run; checkpoints are not needed",
    )
    parser.add_argument(
        "--records", metavar="FOLDER", help="folder of the tables' records, such as experiments/records"
    )
    parser.add_argument("--by", metavar="PERSON", help="who ran it, for the page of results")
    parser.add_argument("--name", help="row of the table; by default the class of the model, and what distinguishes it")
    options = parser.parse_args(arguments)
    if options.records is not None and not Path(options.records).is_dir():
        raise BadInput(f"--records {options.records}: there is no such folder.")
    if (options.records is None) != (options.by is None):
        raise BadInput("--records FOLDER and --by PERSON go together: a table says who ran what.")
    for option in ("by", "name"):
        text = getattr(options, option)
        if text is not None and (not re.fullmatch(_PLAIN, text) or not text.strip()):
            raise BadInput(f"--{option} {text!r}: expected a line of at most 300 letters without < > | ` [ ] or *.")
    folder = RunFolder.existing(options.record)
    # From here on, neither the checks nor the search for the table import foreign code.
    trust.restrict_to(trust.Policy.of(folder.config, remembered=False))
    pl.seed_everything(0, verbose=False)  # so that the training step repeats its loss
    if not _show(verify(folder)):
        return 1
    if options.records is None:
        return 0
    content = load_yaml(folder.config.read_text(encoding="utf-8"))
    table, problems = _table_of(folder, content)
    if not _show([Check(f"budget of {table.name}", "; ".join(problems) or "kept", not problems)]):
        return 1
    record = _record(folder, content, table, options.by, options.name)
    path = record_file(Path(options.records), table.name)
    add_records([record], path)
    log.info("Added: %s, seed %d, to %s", record.name, record.seed, path)
    return 0


def _show(checks: Any) -> bool:
    """Print checks as they finish; return whether all hold."""
    holds = True
    for one in checks:
        show_line(f"{'holds' if one.holds else 'FAILS':6} {one.name}: {one.text}")
        holds = holds and one.holds
    return holds


def _table_of(folder: RunFolder, content: Mapping[str, Any]) -> tuple[Configuration, list[str]]:
    """Find the table of a run's benchmark, and describe how its configuration departs from the table's budget."""
    tables = {name: each[0] for name, each in configurations().items() if name.startswith(PREFIX)}
    benchmark = class_name(content["data"])
    matching = [one for one in tables.values() if facts(one).benchmark == benchmark]
    if not matching:
        raise BadInput(f"No table is about {benchmark}. Tables: {', '.join(tables)}.")
    table, results = matching[0], folder.read_results()
    architecture = content["model"]["architecture"]
    wanted = resolve(["--config", str(table.path), f"--model.architecture={json.dumps(architecture)}"])
    problems = [str(one) for one in differing(wanted, content) if one.decides_training]
    problems += (content.get("expected") or {}).get("resumed") or []
    expected = facts(table).expected
    if results.get("epochs") != expected.epochs:
        problems.append(f"{results.get('epochs')} epochs were trained, and the table has {expected.epochs}")
    assert expected.parameters is not None
    problems += outside_budget(_given(content), results["parameters"], expected.parameters)
    return table, problems


def _record(folder: RunFolder, content: Mapping[str, Any], table: Configuration, by: str, name: str | None) -> Record:
    """Create the record of a run that has passed all checks, from its configuration."""
    model, given = class_name(content["model"]["architecture"]), _given(content)
    default = inspect.signature(registry.load("architectures", model).__init__).parameters
    changed = {option: value for option, value in given.items() if value != default[option].default}
    shared = shared_options(given.keys(), given.get("hidden_dim", 0))
    variant = ", ".join(f"{option}={value}" for option, value in changed.items() if option not in shared)
    words = [f"--model.architecture={model}"]
    words += [f"--model.architecture.init_args.{option}={value}" for option, value in (shared | changed).items()]
    fields = {
        "experiment": EXPERIMENT.format(benchmark=class_name(content["data"])),
        "name": name or (f"{model} ({variant})" if variant else model),
        "recipe": (table.name,),
        "options": tuple(words),
        "full": False,
        "note": NOTE,
        "by": by,
    }
    try:
        record = record_of(Training(folder.path.name, content["seed_everything"], [table.name]), folder.path, fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptData(f"{folder.path} does not say how it was made ({type(error).__name__}: {error}).") from error
    for name, value in record.as_dict().items():
        if isinstance(value, str) and name != "note" and not re.fullmatch(_PLAIN, value):
            raise CorruptData(f"{folder.path}: {name} is {value!r}, not a line of text for a page.")
    if odd := [word for word in record.options if re.search(r"[<>|`\n\r]", word)]:
        raise CorruptData(f"{folder.path}: {odd[0]!r} is not an option for a page.")
    return Record.parse(record.as_dict(), str(folder.path))


def _given(content: Mapping[str, Any]) -> dict[str, Any]:
    return dict(content["model"]["architecture"].get("init_args") or {})
