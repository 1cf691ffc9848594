"""Tables as one frame: one type for a column, whatever its length."""

from __future__ import annotations

from graphbench.benchmarks.graphs.frames import read_frame


def test_a_long_column_is_not_numbers_above_and_text_below(tmp_path):
    (tmp_path / "nodes.csv").write_text("graph,x\n" + "001,1.50\n" * 60_000 + "a,b\n")
    frame = read_frame(tmp_path / "nodes.csv")
    assert frame["graph"].unique().tolist() == ["001", "a"]
    assert frame["x"].unique().tolist() == ["1.50", "b"]
