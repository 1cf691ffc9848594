"""Continue a run: find its checkpoint, and compare its options with those of the command line.

A changed option takes effect for the rest of the run, or is refused in one line. Data, trainer and callbacks are built
from the new options. The checkpoint would restore rates, other options of the optimizer, schedules and options in the
states of callbacks; `graphbench.callbacks.changed_options` sets these again. Options that the checkpoint's weights
depend on, and those for the start of a run, are refused. `graphbench.cli.same_data` refuses other data.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from graphbench.cli.command_line import CommandLine, as_word, class_names, classes_in, plain, value_at
from graphbench.cli.lightning import resolve
from graphbench.cli.options import Request
from graphbench.data.files.nested import flatten
from graphbench.errors import BadInput, CorruptData
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.differences import NOTHING, Difference, differing
from graphbench.training.parts import parse_rates

log = logging.getLogger(__name__)
#: Parts of the model whose weights the checkpoint contains, and suffixes of their options that change no weight.
_WEIGHTS = re.compile(r"model\.(architecture|head|positional_encoding)(\..*)?")
_TRAINING_ALONE = re.compile(r"(.*[._])?(dropout|drop|checkpointing)")
_NEW_RUN = "Train a new run from its weights instead: graphbench fit --model.init_from {run} --run NEW ..."
#: Pattern of options that cannot change within a run -> the reason.
_FIXED = {
    r"seed_everything": "the random numbers continue from the checkpoint. Another seed needs a new run.",
    r"model\.(loss|quantiles|class_weights|standardize_targets)(\..*)?|data\.(.*\.)?(target_weights|log10)(\..*)?": (
        f"it decides what the weights mean. {_NEW_RUN}"
    ),
    r"model\.select_by|data\.(.*\.)?metric": "the best epoch so far was chosen by the old one. " + _NEW_RUN,
    r"model\.init_from": f"the weights are those of the checkpoint. {_NEW_RUN}",
    r"model\.freeze(_epochs)?(\..*)?": f"the optimizer's state is for the parameters that were trained. {_NEW_RUN}",
    r"model\.optimizer": f"the checkpoint has the state of the old one. {_NEW_RUN}",
    r"model\.optimizer\.(fused|foreach|capturable|differentiable|initial_accumulator_value)": (
        f"the optimizer's state comes from the old one. {_NEW_RUN}"
    ),
    r"trainer\.fast_dev_run": "a trial cannot continue a run. Use --config instead of --resume.",
    r"trainer\.default_root_dir": "a run is written into its own folder, which --resume names.",
    r"trainer\.callbacks\.(LearningRateFinder|BatchSizeFinder)(\..*)?": (
        "it searches before the first step, and what it found is in the run's config.yaml. Leave it as it was."
    ),
    r"trainer\.callbacks\.StochasticWeightAveraging\..*": "its averages and rates continue as they began. " + _NEW_RUN,
}
#: Callbacks whose checkpoints contain averaged weights instead of the trained ones.
_AVERAGES = re.compile(r"trainer\.callbacks\.(\w*WeightAveraging)(-\d+)?")


# -- checkpoints -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """A checkpoint from which a run resumes.

    Args:
        checkpoint: its file.
        step: its step.
        epoch: its epoch, from 0.
        epochs: complete epochs.
    """

    checkpoint: Path
    step: int
    epoch: int
    epochs: int

    def refuse_past(self, trainer: pl.Trainer, run: RunFolder) -> None:
        """Refuse a length that the run has already passed."""
        epochs, steps = trainer.max_epochs, trainer.max_steps
        whole = "Give the length of the whole run, including the trained part."
        if epochs is not None and -1 < epochs <= self.epoch:
            raise BadInput(
                f"--trainer.max_epochs is {epochs}, but {run.path} is in epoch {self.epoch + 1} already. {whole}"
            )
        if -1 < steps < self.step:
            raise BadInput(f"--trainer.max_steps is {steps}, but {run.path} is at step {self.step} already. {whole}")

    def describe(self, trainer: pl.Trainer, run: RunFolder) -> str:
        """Say that the run resumes, or that it has nothing left to train."""
        for name, done, most in (("epochs", self.epochs, trainer.max_epochs), ("steps", self.step, trainer.max_steps)):
            if done == most:
                return (
                    f"{run.path} is finished: all of --trainer.max_{name} {most} are trained. To train further, give a "
                    f"larger number: graphbench fit --resume {as_word(run.path)} --trainer.max_{name} N, with N above "
                    f"{most}."
                )
        return f"Continuing {run.path} at step {self.step}"


def find_start(request: Request) -> Start | None:
    """Return the checkpoint to continue from; None for a new run, or one without a checkpoint yet.

    Raises:
        BadInput: the named file is missing, or the checkpoints of a finished run are.
        CorruptData: it is damaged; the message names an intact one.
    """
    run = request.run
    if run is None:
        return None
    path = Path(request.options.checkpoint) if request.options.checkpoint else run.resumable
    if path is None:
        if run.is_begun and not _is_first(run):
            raise BadInput(f"{run.path} has no {run.last.name} to continue from. {_suggest_other(run, run.last)}")
        run.best.unlink(missing_ok=True)  # else the folder would count as a run, and the fit would be refused
        log.info("%s has no checkpoint: it stopped before its first one and starts over.", run.path)
        return None
    try:
        loaded = load_checkpoint(path)
        # `epoch` is the one in which the checkpoint was written, and may be incomplete.
        complete = loaded["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
        return Start(path, int(loaded["global_step"]), int(loaded["epoch"]), int(complete))
    except KeyError as error:
        raise BadInput(f"--checkpoint {path} contains only weights and no training to continue.") from error
    except CorruptData as error:
        raise CorruptData(f"{error} {_suggest_other(run, path)}") from error


def _is_first(run: RunFolder) -> bool:
    """Return whether a run has only the best checkpoint of its first epoch, which is written right before the last one.

    A run that was stopped between the two loses only that epoch, and repeats it exactly from the start.
    """
    if run.results.is_file():
        return False
    try:
        return load_checkpoint(run.best).get("epoch") == 0
    except BadInput:
        return not run.best.is_file()  # another process of this job has removed it


def _suggest_other(run: RunFolder, damaged: Path) -> str:
    """Name a checkpoint other than one that is damaged or missing."""
    for other in (run.previous, run.best):
        if other.is_file() and other.resolve() != damaged.resolve():
            try:
                step = load_checkpoint(other)["global_step"]
            except CorruptData:
                continue
            places = f"--resume {as_word(run.path)} --checkpoint {as_word(other)}"
            return f"Continue at step {step} with: graphbench fit {places}"
    return "There is no other one to continue from."


# -- the same command again --------------------------------------------------------------------------------------------


def without_repeats(words: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Drop what a repeated command line appends to a list of the run that already has it.

    A list that the command line itself sets, in a file or completely, replaces the run's: what is appended to it stays,
    and so does what is appended more often than the run has it. Options of what is dropped keep the run's values, and a
    warning names each that the command line gives another value.

    Examples:
        >>> words = ["--trainer.callbacks+=Timer", "--trainer.callbacks.interval", "epoch", "--trainer.max_epochs", "9"]
        >>> without_repeats(words, {"trainer": {"callbacks": [{"class_path": "pytorch_lightning.callbacks.Timer"}]}})
        ['--trainer.max_epochs', '9']
        >>> without_repeats(words[:1], {"trainer": {"callbacks": None}})
        ['--trainer.callbacks+=Timer']
    """
    line = CommandLine.parse(words)
    replaced_paths = {one.path for one in line.options if not one.appends}
    result: list[str] = []
    rest, unmatched = list(line.options), dict[str, list[Any]]()
    while rest:
        option = rest.pop(0)
        group = list(option.words)
        if option.appends:
            options: dict[str, str] = {}
            while rest and rest[0].name.startswith(f"{option.name}."):
                inner = rest.pop(0)
                group += inner.words
                options[inner.path.removeprefix(f"{option.path}.")] = inner.value
            lists = (value_at(content, option.path) for _, content in line.contents)
            replaced = option.path in replaced_paths or any(isinstance(value, list) for value in lists)
            present = value_at(config, option.path)
            items = unmatched.setdefault(option.path, list(present) if isinstance(present, list) else [])
            value = plain(option.value)
            added = value if isinstance(value, list) and value else [value]
            if not replaced and (same := _matching(added, items)) is not None:
                log.info("The run already has %s, as its config.yaml says.", " ".join(option.words))
                if others := _other_values(added, same, options):
                    log.warning("%s keeps the run's %s.", option.value, ", ".join(others))
                continue
        result += group
    return result


def _matching(added: Sequence[Any], items: list[Any]) -> list[Any] | None:
    """Take an item of the same class for each one that is added, and return them; None if one is missing."""
    left, same = list(items), []
    for one in added:
        item = next((item for item in left if class_names(item) == class_names(one)), None)
        if item is None:
            return None
        left.remove(item)
        same.append(item)
    items[:] = left
    return same


def _other_values(added: Sequence[Any], same: Sequence[Any], options: Mapping[str, str]) -> list[str]:
    """Describe values of the run's items that differ from those typed; `options` are those of the last item."""
    typed = [dict(flatten(one.get("init_args") or {})) if isinstance(one, Mapping) else {} for one in added]
    typed[-1] |= {name: plain(value) for name, value in options.items()}
    return [
        f"{name} {value_at(item, name)} instead of {value}"
        for values, item in zip(typed, same, strict=True)
        for name, value in values.items()
        if name and not _equal(value, value_at(item, name))
    ]


def _equal(typed: Any, stored: Any) -> bool:
    try:
        return typed == stored or float(typed) == float(stored)  # YAML reads 1e-3 as a text
    except (TypeError, ValueError):
        return str(typed) == str(stored)


# -- other options -----------------------------------------------------------------------------------------------------


def recipe_of(words: Sequence[str]) -> list[str]:
    """Return the words that name the recipe: the files up to the last one with expected results.

    Later files, and all options, alter the recipe.
    """
    line = CommandLine.parse(words)
    files = line.named("--config")
    count = max((n for n, one in enumerate(line.files, 1) if any((one.get("expected") or {}).values())), default=0)
    return [word for one in files[:count] for word in one.words]


def altered_options(request: Request) -> list[Difference]:
    """Return the options that decide a score and differ from those of the recipe or run that a command line names.

    An architecture does not alter a recipe that leaves it open, such as `equal-budget/zinc`.
    """
    recipe = request.stored or recipe_of(request.arguments)
    if not recipe or recipe == request.arguments:
        return []
    now = resolve(request.arguments)
    if not any("model.architecture" in classes_in(content) for content in CommandLine.parse(recipe).files):
        recipe = [*recipe, f"--model.architecture={json.dumps(now['model']['architecture'])}"]
    return [one for one in differing(resolve(recipe), now) if one.decides_score]


def changed_options(request: Request) -> list[Difference]:
    """Compare a run's configuration with that of the command line that continues it; refuse forbidden changes."""
    if not request.typed or request.run is None:
        return []
    changed = differing(resolve(request.stored), resolve(request.arguments))
    for one in changed:
        if why := _reason_to_refuse(one):
            raise BadInput(f"--resume: {one}, but {why.format(run=as_word(request.run.path))}")
    return changed


def _reason_to_refuse(one: Difference) -> str:
    """Return why an option cannot change; "" if it may."""
    if _WEIGHTS.fullmatch(one.option) and not _TRAINING_ALONE.fullmatch(one.option):
        return f"a run continues as the model that it began with. {_NEW_RUN}"
    for pattern, why in _FIXED.items():
        if re.fullmatch(pattern, one.option) and not (one.before is NOTHING and "Averaging" in pattern):
            return why
    if _AVERAGES.fullmatch(one.option) and one.now is NOTHING:
        return "its checkpoints hold the averages, which no training can continue without it. Keep it."
    if one.option.startswith(("model.lr_scales", "model.learning_rates")) and _regroups(one):
        return f"other parts get their own rates, which the optimizer's state does not know. {_NEW_RUN}"
    return ""


def _regroups(one: Difference) -> bool:
    """Return whether parts other than before have their own rates, not only other rates for the same parts."""
    if one.before is NOTHING or one.now is NOTHING:
        return True
    if isinstance(one.before, (int, float)) and isinstance(one.now, (int, float)):
        return False
    before, now = (set(parse_rates(value)) if value else set() for value in (one.before, one.now))
    return before != now
