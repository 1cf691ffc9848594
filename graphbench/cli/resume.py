"""A run that goes on: from which checkpoint, to which length, and by the command line that began it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml

from graphbench.cli.command_line import CommandLine, value_at
from graphbench.cli.lightning import resolve
from graphbench.cli.options import Request
from graphbench.errors import BadInput, CorruptData
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.differences import NOTHING, Difference, differing
from graphbench.training.parts import parse_rates

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """Where a run goes on.

    Args:
        checkpoint: the file.
        step: its step.
        epoch: its epoch, from 0.
        epochs: how many are complete.
    """

    checkpoint: Path
    step: int
    epoch: int
    epochs: int

    def refuse_past(self, trainer: pl.Trainer, run: RunFolder) -> None:
        """Refuse a length that the run has passed.

        Raises:
            BadInput: `max_epochs` or `max_steps` is below what was trained.
        """
        epochs, steps = trainer.max_epochs, trainer.max_steps
        whole = "Give the length of the whole run, what was trained before included."
        if epochs is not None and -1 < epochs <= self.epoch:
            raise BadInput(
                f"--trainer.max_epochs is {epochs}, but {run.path} is in epoch {self.epoch + 1} already. {whole}"
            )
        if -1 < steps < self.step:
            raise BadInput(f"--trainer.max_steps is {steps}, but {run.path} is at step {self.step} already. {whole}")

    def said(self, trainer: pl.Trainer, run: RunFolder) -> str:
        """What a person is told before the run goes on, or is found to have nothing left to train."""
        for name, done, most in (("epochs", self.epochs, trainer.max_epochs), ("steps", self.step, trainer.max_steps)):
            if done == most:
                return (
                    f"{run.path} is finished: --trainer.max_{name} is {most}, and so many are trained. To train on, "
                    f"name more: graphbench fit --resume {run.path} --trainer.max_{name} N, with N above {most}."
                )
        return f"Continuing {run.path} at step {self.step}"


def find_start(request: Request) -> Start | None:
    """The checkpoint to go on from; None for a new run, or before its first one.

    Raises:
        BadInput: the named one is not there, or the run's are gone though it was finished.
        CorruptData: it is damaged; the message names one that is not.
    """
    run = request.run
    if run is None:
        return None
    path = Path(request.own.checkpoint) if request.own.checkpoint else run.resumable
    if path is None:
        if run.is_begun and not _is_first(run):
            raise BadInput(f"{run.path} has no {run.last.name} to continue from. {_offer(run, run.last)}")
        run.best.unlink(missing_ok=True)  # with it the folder would hold a run
        log.info("%s has no checkpoint: it stopped before its first one and starts anew.", run.path)
        return None
    try:
        loaded = load_checkpoint(path)
        complete = loaded["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
        return Start(path, int(loaded["global_step"]), int(loaded["epoch"]), int(complete))
    except KeyError as error:
        raise BadInput(f"--checkpoint {path} holds weights alone and no training to go on with.") from error
    except CorruptData as error:
        raise CorruptData(f"{error} {_offer(run, path)}") from error


def _is_first(run: RunFolder) -> bool:
    """Whether a run has no more than the best checkpoint of its first epoch, which is written before the last one.

    A run that was stopped between the two has lost that epoch alone, and comes to the same result from the start.
    """
    if run.results.is_file():
        return False
    try:
        return load_checkpoint(run.best).get("epoch") == 0
    except BadInput:
        return not run.best.is_file()  # another process of this job has removed it


def _offer(run: RunFolder, damaged: Path) -> str:
    """What to do about a checkpoint that is damaged or gone."""
    for other in (run.previous, run.best):
        if other.is_file() and other.resolve() != damaged.resolve():
            try:
                step = load_checkpoint(other)["global_step"]
            except CorruptData:
                continue
            return f"Continue at step {step} with: graphbench fit --resume {run.path} --checkpoint {other}"
    return "There is no other one to continue from."


def without_repeats(arguments: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Return a command line that is given again, without what it appends to a list of the run that has it already.

    A list that the command line itself gives, by a file or whole, takes the place of the run's: what is appended to
    that one stays.

    Args:
        arguments: of a command that began a run, each configuration by the path of its file.
        config: configuration of the run.

    Examples:
        >>> words = ["--trainer.callbacks+=Timer", "--trainer.callbacks.interval", "epoch", "--trainer.max_epochs", "9"]
        >>> without_repeats(words, {"trainer": {"callbacks": [{"class_path": "pytorch_lightning.callbacks.Timer"}]}})
        ['--trainer.max_epochs', '9']
        >>> without_repeats(words[:1], {"trainer": {"callbacks": None}})
        ['--trainer.callbacks+=Timer']
    """
    line = CommandLine.parse(arguments)
    given = {one.path for one in line.options if not one.appends}
    kept: list[str] = []
    rest = list(line.options)
    while rest:
        one = rest.pop(0)
        words = list(one.words)
        if one.appends:
            while rest and rest[0].name.startswith(f"{one.name}."):
                words += rest.pop(0).words
            lists = (value_at(content, one.path) for _, content in line.contents)
            replaced = one.path in given or any(isinstance(value, list) for value in lists)
            known = value_at(config, one.path)
            if not replaced and _appended(one.value) <= _classes(known if isinstance(known, list) else []):
                log.info("The run has %s already, as its config.yaml says.", " ".join(words))
                continue
        kept += words
    return kept


def _appended(value: str) -> set[str]:
    """The last parts of the names that are appended."""
    try:
        return _classes(yaml.safe_load(value))
    except yaml.YAMLError:
        return {value}


def _classes(content: Any) -> set[str]:
    items = content if isinstance(content, list) else [content]
    return {str(item.get("class_path") if isinstance(item, Mapping) else item).rpartition(".")[2] for item in items}


#: Parts of the model whose weights the checkpoint holds, and ends of options of them that change none of these.
_BUILT = re.compile(r"model\.(architecture|head|positional_encoding)(\..*)?")
_TRAINING_ALONE = re.compile(r"(.*[._])?(dropout|drop|checkpointing)")
_NEW_RUN = "Train a new run from its weights instead: graphbench fit --model.init_from {run} --run NEW ..."
#: What decided about the checkpoint before it was written: pattern of options -> why it stays.
_STAYS = {
    r"seed_everything": "the random numbers go on from the checkpoint. Another seed needs a new run.",
    r"model\.(loss|quantiles|class_weights|standardize_targets)(\..*)?": (
        f"it decides what the weights mean. {_NEW_RUN}"
    ),
    r"model\.select_by|data\.(.*\.)?metric": "the best epoch so far was chosen by the other one. " + _NEW_RUN,
    r"model\.init_from": f"the weights are those of the checkpoint. {_NEW_RUN}",
    r"model\.freeze(\..*)?": f"the optimizer's state is of the parameters that were trained. {_NEW_RUN}",
    r"model\.optimizer": f"the checkpoint has the state of the other one. {_NEW_RUN}",
    r"model\.optimizer\.(fused|foreach|capturable|differentiable|initial_accumulator_value)": (
        f"the optimizer's state was made with the other one. {_NEW_RUN}"
    ),
    r"trainer\.fast_dev_run": "a trial leaves nothing and continues nothing. Try it with --config instead of --resume.",
    r"trainer\.default_root_dir": "a run is written into its own folder, which --resume names.",
    r"trainer\.callbacks\.(LearningRateFinder|BatchSizeFinder)(\..*)?": (
        "it searches before the first step, and what it found is in the run's config.yaml. Leave it as it was."
    ),
    r"trainer\.callbacks\.StochasticWeightAveraging\..*": "its averages and rates go on as they began. " + _NEW_RUN,
}
#: Callbacks whose checkpoints hold averaged weights in place of those that are trained.
_AVERAGES = re.compile(r"trainer\.callbacks\.(\w*WeightAveraging)(-\d+)?")


def recipe_of(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command line that are its recipe: its files up to the last that says what is expected.

    A file behind that one, and every option, alters the recipe.

    Args:
        arguments: what LightningCLI parses.

    Raises:
        BadInput: a file cannot be read.
    """
    line = CommandLine.parse(arguments)
    files = line.named("--config")
    count = max((n for n, one in enumerate(line.files, 1) if any((one.get("expected") or {}).values())), default=0)
    return [word for one in files[:count] for word in one.words]


def altered_options(request: Request) -> list[Difference]:
    """Return the options that decide a score and that a command line gives other values than its recipe or run.

    Args:
        request: a command line; where it names a run, that run's configuration is what is altered.

    Raises:
        BadInput: an option is unknown, missing, or has a value of the wrong type.
    """
    recipe = request.stored or recipe_of(request.arguments)
    if not recipe or recipe == request.arguments:
        return []
    return [one for one in differing(resolve(recipe), resolve(request.arguments)) if one.decides_score]


def changed_options(request: Request) -> list[Difference]:
    """Compare a run's own configuration with that of the command line that continues it.

    Args:
        request: names the run.

    Raises:
        BadInput: an option cannot change within a run; names it, both values and what would be right.
    """
    if not request.changed or request.run is None:
        return []
    changed = differing(resolve(request.stored), resolve(request.arguments))
    for one in changed:
        if why := _refusal(one):
            raise BadInput(f"--resume: {one}, but {why.format(run=request.run.path)}")
    return changed


def _refusal(one: Difference) -> str:
    """Why an option stays as it is; empty where it may change."""
    if _BUILT.fullmatch(one.option) and not _TRAINING_ALONE.fullmatch(one.option):
        return f"a run goes on as the model that it began with. {_NEW_RUN}"
    for pattern, why in _STAYS.items():
        if re.fullmatch(pattern, one.option) and not (one.before is NOTHING and "Averaging" in pattern):
            return why
    if _AVERAGES.fullmatch(one.option) and one.now is NOTHING:
        return "its checkpoints hold the averages, from which no training goes on without it. Keep it."
    if one.option.startswith(("model.lr_scales", "model.learning_rates")) and _regroups(one):
        return f"other parts get rates of their own, of which the optimizer's state knows nothing. {_NEW_RUN}"
    return ""


def _regroups(one: Difference) -> bool:
    """Whether rates are given to other parts than before, not only other rates to the same ones."""
    if one.before is NOTHING or one.now is NOTHING:
        return True
    if isinstance(one.before, (int, float)) and isinstance(one.now, (int, float)):
        return False
    before, now = (set(parse_rates(value)) if value else set() for value in (one.before, one.now))
    return before != now
