"""Plan a study: the trainings that answer the four questions of a graph transformer's reviewer.

- control: what does each part carry? Message passing, with encodings, with global attention, fused (`control`).
- depth: what happens with more layers? The model at several depths, with capacity, rank and range.
- budget: is it better than others of its size? Rivals with equally many parameters, trained in the same way.
- cost: what does a step cost? For the model and its rivals, measured without training.

Two rows with the same configuration share their runs, and an existing run is never trained again: runs are found by
their configuration, whatever the name of the folder. So every run of a study measures the diagnostics of all questions.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from graphbench import registry
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, GraphbenchError
from graphbench.experiments.control import Measure, control_rows, families, family_of, fit_width, words_of
from graphbench.experiments.sweeps.plan import benchmark_options
from graphbench.experiments.trainings import Training, results
from graphbench.registry.configurations import class_name, configurations, read, resolve
from graphbench.runs.differences import differing

Question = Literal["control", "depth", "budget", "cost"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
DEPTHS = (4, 8, 12, 24, 48)
#: Message passing, and attention to neighbours, to all nodes and along expanders.
RIVALS = ("GCN", "GatedGCN", "GT", "GPS", "Exphormer")
DIAGNOSTICS = ("AttentionCapacity", "RankProgression", "InfluenceRange")
_ARCHITECTURE = "model.architecture.init_args"


@dataclass(frozen=True, eq=False)
class Row:
    """One model for one question on one benchmark."""

    question: Question  # the question it belongs to
    benchmark: str  # name of the data
    label: str  # of the row
    configs: tuple[str, ...] = ()  # configurations, first to last
    options: tuple[str, ...] = ()  # additional options of `graphbench fit`
    settings: Mapping[str, Any] = field(default_factory=dict)  # every option with its value
    parameters: int | None = None  # trainable ones
    name: str = ""  # of its runs, equal for rows with the same configuration
    depth: int | None = None  # layers, for the question of depth
    is_model: bool = False  # whether the others of the question are compared with it
    why: str = ""  # reason why it cannot be trained; "" if it can

    def training(self, seed: int) -> Training:
        """Return its training with a seed."""
        return Training(self.name, seed, self.configs, self.options)


@dataclass(frozen=True)
class Study:
    """Model, questions and data of a study."""

    model: tuple[str, ...]  # configurations of the model, first to last
    measure: Measure  # returns every option and the parameters of a command line of `graphbench fit`
    questions: Sequence[Question] = QUESTIONS  # to answer
    #: names with options of their data, or configurations whose data are used; by default the model's.
    benchmarks: Sequence[str] = ()
    depths: Sequence[int] = DEPTHS  # numbers of layers
    #: names of architectures, with options: `GT --model.architecture.full=true`; None for those of `RIVALS` that are
    #: installed and are not the model.
    rivals: Sequence[str] | None = None
    options: Sequence[str] = ()  # of `graphbench fit`, for every training

    def rows(self) -> list[Row]:
        """List the rows of every question on every benchmark; rows with the same configuration have the same name.

        Raises:
            GraphbenchError: the model does not fit a benchmark, or an option is wrong.
        """
        for text in self.rivals or ():
            parse_rival(text)  # before building models
        rows: list[Row] = []
        for name, data in data_options(self.benchmarks):
            base = _Base(self, name, [*data, *self.options])
            makers: Mapping[Question, Callable[[], Iterable[Row]]] = {
                "control": base.control, "depth": base.depth, "budget": base.budget,
                "cost": partial(base.budget, "cost"),
            }  # fmt: skip
            for row in (row for question in self.questions for row in makers[question]()):
                rows.append(_shared(row, rows))
        return rows


def _shared(row: Row, others: Sequence[Row]) -> Row:
    """Return a row with the name of an earlier one with its configuration, so that both share their runs."""
    if not row.why and row.question != "cost":
        for one in others:
            if not one.why and one.question != "cost" and are_same(one.settings, row.settings):
                return replace(row, name=one.name, configs=one.configs, options=one.options, settings=one.settings)
    return row


class _Base:
    """The model of a study on one benchmark."""

    def __init__(self, study: Study, benchmark: str, options: Sequence[str]) -> None:
        self.study, self.options = study, tuple(options)
        self.settings, self.parameters = study.measure(words_of(study.model, self.options))
        self.benchmark = benchmark or class_name(self.settings["data"])
        self.given: Mapping[str, Any] = self.settings["model"]["architecture"]["init_args"]
        self.architecture = class_name(self.settings["model"]["architecture"])

    def row(
        self, question: Question, label: str, configs: Sequence[str] = (), options: Sequence[str] = (), **facts: Any
    ) -> Row:
        """Return a trainable row, with the diagnostics that its configuration lacks."""
        configs, words = tuple(configs or self.study.model), (*self.options, *options)
        # Once to see which diagnostics the configuration lacks, and again with them.
        settings, _ = self.study.measure(words_of(configs, words))
        present = {class_name(one) for one in settings["trainer"]["callbacks"] or ()}
        words += tuple(f"--trainer.callbacks+={name}" for name in DIAGNOSTICS if name not in present)
        settings, parameters = self.study.measure(words_of(configs, words))
        name = f"{_plain(f'{self.benchmark}-{question}-{label}')}-{_checksum(settings)}"
        return Row(question, self.benchmark, label, configs, words, settings, parameters, name, **facts)

    def control(self) -> Iterator[Row]:
        """Yield the four rows of equal size."""
        family = family_of(self.study.model, self.architecture)
        if family is None:
            have = ", ".join(families()) or "no installed recipes"
            why = f"it has no overlays that switch attention and encodings off; {have} do (`control-messages`, ...)"
            yield Row("control", self.benchmark, self.architecture, why=why)
            return
        try:
            rows = control_rows(self.study.model, self.options, self.study.measure, family)
        except GraphbenchError as error:
            yield Row(
                "control", self.benchmark, self.architecture, why=f"the control of {family} does not fit: {error}"
            )
            return
        for one in rows:
            yield self.row("control", one.label, one.recipe, one.options, is_model=one.key == "fused")

    def depth(self) -> Iterator[Row]:
        """Yield the model at every depth, with unchanged width."""
        if "num_layers" not in self.given:
            yield Row("depth", self.benchmark, self.architecture, why="--depths: it has no option num_layers")
            return
        usual = self.given["num_layers"] if self.given["num_layers"] in self.study.depths else self.study.depths[0]
        for depth in self.study.depths:
            label = f"{depth} layer{'s' * (depth > 1)}"
            option = f"--{_ARCHITECTURE}.num_layers={depth}"
            yield self.row("depth", label, options=[option], depth=depth, is_model=depth == usual)

    def budget(self, question: Question = "budget") -> Iterator[Row]:
        """Yield the model, and its rivals with the width that comes closest to its number of parameters.

        Options that both classes have keep the model's values, such as layers, heads, dropout and encodings; others
        keep the rival's defaults.
        """
        yield self.row(question, self.architecture, is_model=True)
        for label, words in self._rivals():
            line = words_of(self.study.model, [*self.options, *words])
            try:
                settings, _ = self.study.measure(line)
                if "hidden_dim" not in settings["model"]["architecture"]["init_args"]:
                    raise BadInput("it has no option hidden_dim to choose its size by")
                _, width, _ = fit_width(line, self.parameters, self.study.measure)
                yield self.row(question, label, options=[*words, *width])
            except GraphbenchError as error:
                yield Row(question, self.benchmark, label, why=str(error))

    def _rivals(self) -> list[tuple[str, list[str]]]:
        """Return label and options of each rival."""
        if self.study.rivals is not None:
            return [parse_rival(text) for text in self.study.rivals]
        installed = registry.architectures()
        return [parse_rival(name) for name in RIVALS if name in installed and name != self.architecture]


def parse_rival(text: str) -> tuple[str, list[str]]:
    """Return label and options of a rival.

    Examples:
        >>> parse_rival("GT --model.architecture.dropout=0.5")
        ('GT (dropout=0.5)', ['--model.architecture=GT', '--model.architecture.dropout=0.5'])
    """
    name, *words = shlex.split(text) or [""]
    if name not in registry.architectures() or not all(re.match(r"--model\..+=", word) for word in words):
        raise BadInput(
            f"--rivals {text!r}: expected the name of an architecture (`graphbench list architectures`), and "
            "its options with their values: 'GT --model.architecture.full=true'."
        )
    options = ", ".join(re.sub(r"^[^=]*\.", "", word) for word in words)
    return f"{name} ({options})" if options else name, [f"--model.architecture={name}", *words]


def data_options(benchmarks: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return name and options of each benchmark; `("", [])` for that of the model.

    A configuration, installed or a file, contributes its data: `graphbench study --benchmarks mine.yaml`.
    """
    named = []
    for text in benchmarks:
        if Path(text).is_file() or text in configurations():
            named.append((_plain(text.removesuffix(".yaml")), [f"--data={json.dumps(_data_of(text))}"]))
        else:
            (data, parts), *_ = benchmark_options([text])
            named.append(("-".join(parts), data))
    labels = [label for label, _ in named]
    numbered = [
        (f"{label}-{labels[: place + 1].count(label)}" if labels.count(label) > 1 else label, words)
        for place, (label, words) in enumerate(named)
    ]
    return numbered or [("", [])]


def are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two complete configurations describe the same training, except for the seed."""
    return not any(difference.decides_training for difference in differing(one, other))


class Standing:
    """Runs that need not be trained again, found by their configuration.

    The study's own runs, in `output`, are resumed; in `further` folders only finished runs count, at any depth.
    """

    def __init__(self, output: Path, further: Iterable[Path] = ()) -> None:
        paths = sorted((output / "runs").glob("*/config.yaml"))
        others = [path for folder in further for path in sorted(folder.rglob("config.yaml"))]
        self._runs = [(path.parent, _read(path)) for path in paths]
        self._runs += [(path.parent, _read(path)) for path in others if "test" in results(path.parent)]

    def find(self, row: Row, seed: int) -> Path | None:
        """Return the folder of a run of a row with a seed, preferring finished ones."""
        fitting = [
            folder
            for folder, content in self._runs
            if content.get("seed_everything") == seed
            and content.keys() >= {"data", "model", "trainer"}
            and are_same(content, row.settings)
        ]
        return min(fitting, key=lambda folder: "test" not in results(folder), default=None)


@dataclass(frozen=True)
class Planned:
    """A row with a seed."""

    row: Row  # of the study
    training: Training  # to run unless finished
    folder: Path  # of its run; outside of the study if an earlier run exists

    @property
    def is_finished(self) -> bool:
        """Return whether it has been trained and tested."""
        return "test" in results(self.folder)


def planned(rows: Iterable[Row], seeds: Sequence[int], output: Path, standing: Standing) -> list[Planned]:
    """List every trainable row with every seed, all of a seed before the next."""
    plan = []
    trained = [row for row in rows if not row.why and row.question != "cost"]
    for seed in seeds:
        for row in trained:
            training = row.training(seed)
            folder = standing.find(row, seed) or training.folder(output)
            # A run of this study resumes in its folder, whatever label its row had at the start.
            if folder.parent == output / training.room:
                training = replace(training, name=folder.name.removesuffix(f"-{seed}"))
            plan.append(Planned(row, training, folder))
    return plan


def _data_of(text: str) -> Mapping[str, Any]:
    """Return the data of a configuration."""
    data = read(resolve(text)).get("data")
    if not isinstance(data, Mapping):
        raise BadInput(f"--benchmarks {text}: this configuration names no data. Name a benchmark, or one that does.")
    return data


def _read(path: Path) -> dict[str, Any]:
    """Read a configuration; empty if it cannot be read."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+=]+", "-", text).strip("-")


def _checksum(settings: Mapping[str, Any]) -> str:
    # Runs of all seeds share a name, and expected results do not affect training.
    content = {name: value for name, value in settings.items() if name not in ("seed_everything", "expected")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:8]
