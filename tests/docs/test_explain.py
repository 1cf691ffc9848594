"""What `docs/explain.md` shows is what the command accepts and writes."""

from __future__ import annotations

import re
from pathlib import Path

from graphbench.cli import main

GUIDE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")


def test_options_and_files_are_those_of_the_command(capsys) -> None:
    assert main(["explain", "--help"]) == 0
    told = capsys.readouterr().out
    for option in set(re.findall(r"--[a-z]+", GUIDE)):
        assert option in told, option
    for file in ("nodes.csv", "edges.csv", "rows.csv", "row-NUMBER.png"):
        assert f"`{file}`" in GUIDE
        assert file in told
    assert "(default: 64)" in told
    assert "(64 by default)" in GUIDE
