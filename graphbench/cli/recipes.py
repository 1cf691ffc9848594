"""What a command line alters of the recipe that it names, so that no score is held against one of another training."""

from __future__ import annotations

from collections.abc import Sequence

from graphbench.cli.lightning import resolve
from graphbench.cli.names import configurations
from graphbench.cli.options import Request
from graphbench.runs.differences import Difference, differing


def recipe_of(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command line that are its recipe: its files up to the last that says what is expected.

    A file behind that one, and every option, alters the recipe.

    Args:
        arguments: what LightningCLI parses.

    Raises:
        BadInput: a file cannot be read.
    """
    words: list[str] = []
    recipe: list[str] = []
    for position, word in enumerate(arguments):
        if word != "--config" and not word.startswith("--config="):
            continue
        file = [word] if "=" in word else [word, *arguments[position + 1 : position + 2]]
        words += file
        if any(any(content.get("expected", {}).values()) for content in configurations(file)):
            recipe = list(words)
    return recipe


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
