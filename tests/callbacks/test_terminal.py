"""What a terminal of 80 columns shows while `graphbench fit` trains."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import pytest

LONGEST = 80


def seen_in_terminal(words):
    """Run graphbench in a pseudo-terminal of 80 columns; return what it printed, without control sequences."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm", COLUMNS=str(LONGEST), LINES="24")
        os.execv(sys.executable, [sys.executable, "-m", "graphbench", *words])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, LONGEST, 0, 0))
    output = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the end, on Linux
            break
        if not part:
            break
        output += part
    _, status = os.waitpid(child, 0)
    assert status == 0, output.decode()[-2000:]
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode())


@pytest.mark.slow
def test_the_bar_is_one_line_and_epochs_stay(tmp_path):
    options = ["--trainer.max_epochs", "3", "--run", str(tmp_path / "run")]  # epochs of 118 batches
    shown = seen_in_terminal(["fit", "--config", "quickstart", *options])
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", shown) if line.strip()]
    bars = [line for line in lines if line.startswith("Epoch ")]
    assert bars
    assert all(len(line) <= LONGEST for line in bars)
    assert any(re.search(r"loss: [\d.]+ left: \d:\d\d:\d\d$", line) for line in bars), "nothing is broken or cut"
    others = [line for line in lines if not line.startswith(("Epoch ", "Validation ", "Sanity "))]
    history = [line for line in others if line.startswith("epoch ")]
    assert [line.split()[1] for line in history] == ["1/3", "2/3", "3/3"]
    assert all(len(line) <= LONGEST for line in history)
    assert not [line for line in lines if line.startswith(" ")], "no value is wrapped onto another line"
