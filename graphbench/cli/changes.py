"""What a command line changes of the recipe that it names, or of the run that it continues.

No score is held against that of another training. In a run that goes on, each changed option is in force for the rest
of it, or refused in one line. Data, trainer and callbacks are built of the options that are given, so those are in
force by themselves. What a checkpoint puts over them, rates, other options of the optimizer, schedules, options within
the states of callbacks, is set again by `graphbench.callbacks.changed_options`. Refused is what would make other
weights of the checkpoint's, or what is over: how a run begins. Other data are refused by `graphbench.cli.same_data`,
which looks at them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphbench.cli.command_line import CommandLine
from graphbench.cli.lightning import resolve
from graphbench.cli.options import Request
from graphbench.errors import BadInput
from graphbench.runs.differences import NOTHING, Difference, differing
from graphbench.training.parts import parse_rates

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
