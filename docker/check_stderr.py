"""Report lines in a training command's stderr that such a command should not print.

    python docker/check_stderr.py FILE

Warnings of libraries, tracebacks and leak reports are such lines; `EXPECTED` lists all others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: Beginnings of lines that `fit` prints about the quickstart's molecules.
EXPECTED = (
    r"Seed set to \d+$",
    r"\w+ on NCI: [\d,]+ trainable parameters ",
    r"Run folder: runs/",
    r"NCI: (reading the data|the model has batch norms, so training batches mix graphs of all sizes)$",
    r"Reading molecules: \d+ (of|chunks) ",
    r"\w+ of NCI \w+: [\d,]+ (of [\d,]+ )?graphs ",
    r"schedule\.warmup is \d+ steps, and the run has \d+: ",
    r"An epoch of \d+ batches takes about ",
    r"epoch \d+/\d+ ",
    r"Best epoch \d+: val/",
    r"Report: runs/",
    r"Next: graphbench test --run runs/",
    r"$",
)


def unexpected(text: str) -> Iterator[str]:
    """Yield the lines that match no pattern of `EXPECTED`.

    Args:
        text: what a command wrote to stderr.
    """
    begins = re.compile("|".join(EXPECTED))
    return (line for line in text.splitlines() if not begins.match(line))


def main(file: str) -> int:
    """Print the unexpected lines of a file.

    Args:
        file: what a command wrote to stderr.

    Returns:
        Exit status: 1 if there are any.
    """
    lines = list(unexpected(Path(file).read_text(encoding="utf-8", errors="replace")))
    sys.stderr.writelines(f"unexpected on stderr: {line}\n" for line in lines)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
