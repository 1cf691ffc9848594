"""`graphbench completion bash|zsh`: complete names and options in a shell, without importing torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from graphbench import registry
from graphbench.cli.checks import taken_by
from graphbench.cli.command_line import HOLDERS, REQUIRED, SLOTS, CommandLine, spell_out
from graphbench.cli.options import OWN
from graphbench.cli.parsers import CommandParser
from graphbench.contracts.spec import SPLITS
from graphbench.errors import GraphbenchError, check_choice
from graphbench.registry.configurations import configurations

_BASH = """\
_graphbench() {
    local IFS=$'\\n'
    COMPREPLY=($(graphbench completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${COMPREPLY[0]} == *. ]] && compopt -o nospace
}
complete -o default -F _graphbench graphbench"""
_ZSH = """\
#compdef graphbench
_graphbench() {
    local -a found
    found=("${(@f)$(graphbench completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -- $found || _files
}
compdef _graphbench graphbench"""
SHELLS = {"bash": _BASH, "zsh": _ZSH}

#: Depth to which runs are searched: `runs/NAME/config.yaml`, and one level deeper.
_DEEPEST = 4
_VALUES = {
    "split": SPLITS,
    "if-exists": ("fail", "resume"),
    "data-changed": ("refuse", "accept"),
    "on-error": ("stop", "skip"),
    "level": ("graph", "node"),
    "model.loss": (
        "BCE", "Gaussian", "Huber", "L1", "MSE", "Quantile", "cross_entropy", "focal", "weighted_cross_entropy",
    ),
    "model.optimizer": ("Adam", "AdamW", "Muon", "SGD"),
    "trainer.logger": ("CSVLogger", "MLFlowLogger", "TensorBoardLogger", "WandbLogger"),
    "trainer.profiler": ("advanced", "pytorch", "simple"),
    "trainer.accelerator": ("auto", "cpu", "gpu", "mps"),
    "trainer.precision": ("32-true", "64-true", "16-mixed", "bf16-mixed"),
}  # fmt: skip
#: Callbacks of Lightning that docs/ describes.
CALLBACKS = (
    "BatchSizeFinder", "EMAWeightAveraging", "EarlyStopping", "LearningRateFinder", "ModelCheckpoint",
    "StochasticWeightAveraging",
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    """Print the script of a shell, or with `--words` the completions of its last word."""
    if arguments[:1] == ["--words"]:
        print("\n".join(completions(arguments[1:])))
        return 0
    parser = CommandParser(
        "completion",
        description="Print a script that completes names and options. For bash, add to ~/.bashrc: "
        'eval "$(graphbench completion bash)". For zsh, add to ~/.zshrc after `autoload -U compinit; compinit`: '
        'eval "$(graphbench completion zsh)".',
    )
    parser.add_argument("shell", help="bash or zsh")
    shell = parser.parse_args(arguments).shell
    check_choice("completion", shell, SHELLS)
    print(SHELLS[shell])
    return 0


def completions(words: Sequence[str]) -> list[str]:
    """Return the completions of the last word; none if the shell should offer files.

    bash splits `--a=b` at the equals sign.

    Examples:
        >>> completions(["prep"])
        ['prepare']
        >>> completions(["fit", "--model.architecture.num_l"])  # nobody has named the architecture yet
        []
        >>> completions(["fit", "--model.loss", "Hu"])
        ['Huber']
    """
    from graphbench.cli import COMMANDS

    if len(words) < 2:
        return _starting("".join(words), COMMANDS)
    typed = spell_out([word for word in words[:-1] if word != "="])
    command, before, current = typed[0], typed[-1], words[-1].removeprefix("=")
    if current.startswith("--") and "=" in current:  # zsh does not split it
        option, _, value = current.partition("=")
        return [f"{option}={match}" for match in _starting(value, _values(command, option))]
    if current.startswith("-"):
        return _starting(current, _options(command, typed[1:]))
    if before.startswith("--"):
        return _starting(current, _values(command, before))
    if command == "list":
        return _starting(current, (*registry.GROUPS, "configs", "weights"))
    if command == "config":
        return _starting(current, configurations())
    return _starting(current, SHELLS) if command == "completion" else []


def _starting(start: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(start))


def _values(command: str, option: str) -> Iterable[str]:
    """Return the values of an option; none for numbers, texts and files."""
    name = option.removeprefix("--").rstrip("+")
    if (command, name) == ("test", "if-exists"):  # scoring is not resumed
        return ("fail", "replace")
    if name == "config":
        return [*configurations(), *(str(path) for path in Path().glob("*.yaml"))]
    if name in ("run", "resume"):
        # Level by level: `**` would walk through all data, environments and checkpoints at every press of Tab.
        return [str(path.parent) for depth in range(_DEEPEST) for path in Path().glob("*/" * depth + "config.yaml")]
    slot = name.removesuffix(".class_path")
    if slot in SLOTS and (group := SLOTS[slot].group) is not None:
        return [*registry.records(group), *(CALLBACKS if slot == "trainer.callbacks" else ())]
    return _VALUES.get(name, ())


def _options(command: str, words: Sequence[str]) -> list[str]:
    """Return the options of a command: its own, and those of data, model and trainer."""
    if command not in OWN:
        return ["--help"]
    names = [name.replace("_", "-") for name in OWN[command]] + ["config", "trust", "help", "seed_everything"]
    line, classes = CommandLine.parse(words), {}
    with contextlib.suppress(GraphbenchError):  # a file that does not exist yet
        classes = line.located().classes
    names += [*REQUIRED, "model.positional_encoding"]
    for holder in (*HOLDERS, *classes):
        names += [f"{holder}.{name}" for name in taken_by(holder, classes) or ()]
    return [f"--{name}" for name in dict.fromkeys(names)]
