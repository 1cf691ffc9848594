"""Page with the help of every command, as `graphbench COMMAND --help` prints it where the site is built."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from unittest.mock import patch

from graphbench.cli import COMMANDS, main


def help_of(command: str) -> str:
    """Return what a command prints for `--help`, in lines of at most 100 columns.

    Raises:
        RuntimeError: the command printed no help.
    """
    shown = io.StringIO()
    with patch.dict(os.environ, COLUMNS="100"), redirect_stdout(shown):
        try:
            code = main([command, "--help"])
        except SystemExit as end:  # argparse's own help ends the program
            code = end.code
    if code or not shown.getvalue().strip():
        raise RuntimeError(f"graphbench {command} --help: expected help, got exit status {code}")
    return shown.getvalue().strip()


def page() -> str:
    """Return a section per command: its summary and its options."""
    sections = [
        f"## {name}\n\n{summary[0].upper()}{summary[1:]}.\n\n```text\n{help_of(name)}\n```"
        for name, (_, summary) in COMMANDS.items()
    ]
    return "\n\n".join(sections)
