"""Tables of a run: if bytes are cut off, zeroed or altered, the whole rows before them are read."""

from __future__ import annotations

import pandas as pd
import pytest

from graphbench.runs.tables import append_rows, load_table, write_table

COLUMNS = ("epoch", "step", "name", "value")
ROWS = [
    {"epoch": "1", "step": "3", "name": "layers.0, head 1", "value": "0.25"},
    {"epoch": "1", "step": "3", "name": 'says "no"\nin two lines', "value": ""},
    {"epoch": "12", "step": "36", "name": "é", "value": "nan"},
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    write_table(path, COLUMNS, ROWS[:2])
    append_rows(path, COLUMNS, ROWS[2:])
    return path


def test_rows_come_back_as_they_were_written_and_as_pandas_reads_them(table):
    found = load_table(table)
    assert (found.columns, found.as_dicts(), found.torn) == (COLUMNS, ROWS, None)
    assert pd.read_csv(table, dtype=str, keep_default_na=False).to_dict("records") == ROWS


@pytest.mark.parametrize("rest", [b"", b"\0" * 100])
def test_a_table_that_ends_anywhere_is_read_up_to_its_last_whole_row(table, rest):
    whole = table.read_bytes()
    for end in range(len(whole)):
        table.write_bytes(whole[:end] + rest)
        rows = load_table(table).as_dicts()
        assert rows == ROWS[: len(rows)], end
        if rest or whole[:end][-1:] not in (b"", b"\n"):
            assert load_table(table).torn is not None, end


@pytest.mark.parametrize(
    ("text", "rows", "torn"),
    [
        ("", 0, None),
        ("epoch,step\n1,2\n1,2,3\n2,4\n", 1, 3),
        ("epoch,step\n1,2\none,2\n", 1, 3),
        ("epoch,step\n1,inf\n", 0, 2),
        ("epoch,epoch\n1,2\n", 0, 1),
        ("epoch,step\r\n1,2\r\n\r\n3,4\r\n", 2, None),
    ],
)
def test_the_first_row_that_is_not_whole_ends_the_table(tmp_path, text, rows, torn):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert (len(load_table(path).rows), load_table(path).torn) == (rows, torn)


def test_a_table_that_is_not_there_has_no_rows(tmp_path):
    assert load_table(tmp_path / "t.csv").as_dicts() == []


def test_a_column_that_the_table_has_not_is_refused(table):
    with pytest.raises(ValueError, match="other"):
        append_rows(table, COLUMNS, [{"other": 1}])
