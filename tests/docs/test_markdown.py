"""Tables and commands render as such on every page: rows are together, and commands are not in paragraphs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT / "plugins", "**/*.md"))
    for path in folder.glob(pattern)
    if not {"api", "catalogue", "_build"} & set(path.parts)
)
_SEPARATOR = re.compile(r"\|(\s*:?-+:?\s*\|)+")


def lines_of(page: Path) -> list[str]:
    """Return the lines outside of fences; those within become "```"."""
    lines, fence = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        opening = re.match(r"\s*(`{3,}|:{3,})", line)
        if opening and opening[1][0] == "`" and fence in ("", opening[1]):
            fence = "" if fence else opening[1]
        lines.append("```" if fence or opening else line)
    return lines


def cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row.strip())) - 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_rows_stand_in_tables_and_commands_in_blocks(page):
    lines = ["", *lines_of(page)]
    wrong, width = [], 0
    for number, (before, line) in enumerate(itertools.pairwise(lines), 1):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.lstrip().startswith("|"):
            if not before.lstrip().startswith("|"):  # the header: a table ends at a blank line
                width = cells(line) if _SEPARATOR.fullmatch(following.strip()) and not before.strip() else -1
            if cells(line) != width:
                wrong.append(f"{number}: {line}")
        elif re.match(r" {4}(graphbench|python|pip|make|torchrun) ", line) and re.match(r"[A-Za-z`*]", before):
            wrong.append(f"{number}: {line}")
    assert wrong == []
