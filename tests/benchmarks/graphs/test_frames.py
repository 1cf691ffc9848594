"""Tables as one frame: one type for a column, whatever its length."""

from __future__ import annotations

import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.frames import read_frame
from graphbench.benchmarks.graphs.networkx_files import frame_column


def test_a_long_column_is_not_numbers_above_and_text_below(tmp_path):
    (tmp_path / "nodes.csv").write_text("graph,x\n" + "001,1.50\n" * 60_000 + "a,b\n")
    frame = read_frame(tmp_path / "nodes.csv")
    assert frame["graph"].unique().tolist() == ["001", "a"]
    assert frame["x"].unique().tolist() == ["1.50", "b"]


def test_nullable_columns_of_parquet_are_read_as_those_of_text(tmp_path):
    """What `DataFrame.convert_dtypes` leaves: pandas' own integers, floats and texts, with `NA` for what is missing."""
    plain = pd.DataFrame({"whole": [1, 2], "gaps": [1.0, None], "real": [0.5, None], "text": ["C", None]})
    plain.to_csv(tmp_path / "a.csv", index=False)
    plain.convert_dtypes().to_parquet(tmp_path / "b.parquet")
    text, table = read_frame(tmp_path / "a.csv"), read_frame(tmp_path / "b.parquet")
    for name in plain:
        assert table[name].dtype.kind == text[name].dtype.kind
        np.testing.assert_array_equal(*(frame_column(frame[name].to_numpy()) for frame in (text, table)))
