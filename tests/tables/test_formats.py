"""Text tables give the rows of Python's `csv` with the line on which each begins, whatever the part size."""

from __future__ import annotations

import csv
import io
import random

import pytest

from graphbench.errors import BadInput
from graphbench.tables.formats import BLANK, NO_OBJECT, TORN
from graphbench.tables.reader import open_table

#: Lines of a table with two columns: plain, quoted across lines, blank, of the wrong length, or with padded cells.
LINES = ["a,1", ' b , "2', 'c,"3"', '"d\nd",4', "", "  ", ",", "e", "f,5,6", "g,7,,", "h\u00a0,8", '"i""i",9', "j,\t"]


def expected(text):
    """Return (first line, cells or the problem) of every row after the header, read with `csv`."""
    reader, begin, rows = csv.reader(io.StringIO(text, newline="")), 1, []
    for cells in reader:
        line, begin = begin, reader.line_num + 1
        if not cells:
            continue
        while len(cells) > 2 and not cells[-1].strip():
            cells.pop()
        problem = BLANK if not any(cell.strip() for cell in cells) else TORN if len(cells) != 2 else ""
        rows.append((line, problem or cells))
    return rows[1:]


def rows_of_part(part):
    cells = enumerate(part.frame.to_numpy().tolist())
    found = (part.problems[place][0] if place in part.problems else row for place, row in cells)
    return list(zip(part.numbers, found, strict=True))


def rows_of(path, size):
    return [row for part in open_table(path, "name").parts(size) for row in rows_of_part(part)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quotes", [False, True])
def test_rows_are_those_of_csv(tmp_path, end, quotes):
    draw = random.Random(0)
    lines = [line for line in LINES if quotes or '"' not in line]
    lines = [line for line in lines if line.count('"') % 2 == 0]
    for number in range(40):
        text = end.join(["name,x", *draw.choices(lines, k=draw.randrange(30))]).replace("\n", end) + draw.choice(
            ["", end]
        )
        path = tmp_path / f"{number}.csv"
        path.write_bytes(text.encode())
        for size in (1, 2, 5, 1000):
            assert rows_of(path, size) == expected(text), (text, size)


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_quote_that_is_not_closed_is_named_by_its_line(tmp_path, size):
    path = tmp_path / "a.csv"
    path.write_text('name,x\na,1\nb,2\nc,"3\nd,4\n')
    with pytest.raises(BadInput, match=r"a\.csv: a quote that opens on line 4 is not closed"):
        rows_of(path, size)


def test_lines_that_are_no_objects_are_problems_of_their_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"name": "a", "x": 1.50}\n\n[1]\n{"x": null, "name": "b"}\n')
    assert rows_of(path, 2) == [(1, ["a", "1.50"]), (3, NO_OBJECT), (4, ["b", ""])]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quotes", [False, True])
def test_rows_that_nobody_wants_are_counted(tmp_path, end, quotes):
    """Skipped parts keep their row numbers, and requested parts have the rows of a full read."""
    path, lines = tmp_path / "t.csv", [line for line in LINES if quotes or '"' not in line]
    for seed in range(30):
        rng = random.Random(seed)
        text = end.join(["name,value", *rng.choices(lines, k=40)]) + end
        path.write_bytes(text.encode())
        chosen = {row for row in range(60) if rng.random() < 0.4}
        whole, row = rows_of(path, 1000), 0
        for part in open_table(path, "name").parts(3, chosen.__contains__):
            assert part.numbers == [number for number, _ in whole[row : row + len(part.frame)]]
            if row in chosen:
                assert rows_of_part(part) == whole[row : row + len(part.frame)]
            row += len(part.frame)
        assert row == len(whole)
