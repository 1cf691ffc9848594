"""The table of `docs/reproduce.md` can be read, every way is explained, and every option that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from graphbench.cli.commands.reproduce import _parser
from graphbench.experiments.reproduce.tables import WAYS, read_table

TEXT = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")


def test_the_table_of_ones_own_is_read(tmp_path):
    (block,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    (tmp_path / "table-1.yaml").write_text(block, encoding="utf-8")
    table = read_table(tmp_path / "table-1.yaml", "my-paper/table-1")
    assert [(cell.recipe, cell.printed.sd) for cell in table.cells] == [
        (("gps/pattern",), 0.059), (("gps/cluster",), 0.18), ((), None),
    ]  # fmt: skip


def test_every_way_is_explained():
    assert all(f"`{way}`" in TEXT for way in WAYS)


def test_every_named_option_exists():
    known = {word for action in _parser()._actions for word in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w.-])", TEXT.partition("## On a GPU")[0]))
    assert named - known == set()
