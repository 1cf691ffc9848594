"""`graphbench config NAME`: an installed configuration, printed or copied to a file of one's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from graphbench.cli.parsers import CommandParser, file_to_write
from graphbench.errors import BadInput
from graphbench.registry.configurations import resolve


def run(arguments: Sequence[str]) -> int:
    """Print a configuration, or write it into a file.

    Raises:
        BadInput: no configuration has the name, or the file to write exists.
    """
    parser = CommandParser(
        "config",
        description="Print an installed configuration. `graphbench list configs` shows their names.",
    )
    parser.add_argument("name", help="such as quickstart or gps/zinc")
    parser.add_argument(
        "--copy", nargs="?", const=".", metavar="FILE", help="write it to a file, in this folder where none is named"
    )
    options = parser.parse_args(arguments)
    path = resolve(options.name)
    text = path.read_text(encoding="utf-8")
    if options.copy is None:
        sys.stdout.write(text)
        return 0
    target = Path(options.copy)
    if target.is_dir():
        target = target / path.name
    if file_to_write("--copy", target).exists():
        raise BadInput(f"--copy {target}: this file exists already, and nothing is overwritten. Name another.")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    print(f"Wrote {target}. Next: graphbench fit --config {target}")
    return 0
