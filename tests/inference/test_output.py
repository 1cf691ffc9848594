"""Tables written in parts equal the whole table and appear only when complete."""

from __future__ import annotations

import csv
import gc
import io
import sys

import pandas as pd
import pytest

from graphbench.errors import BadInput, GraphbenchError
from graphbench.inference.output import STANDARD_OUTPUT, check_output, write_frames

PARTS = [
    pd.DataFrame({"name": ["a, b", ""], "p": [1.5, None], "problem": ["", "why"]}),
    pd.DataFrame({"name": ['"c"'], "p": [float("nan")], "problem": [""]}),
]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_parts_become_one_table(tmp_path, name):
    rows = []
    write_frames(iter(PARTS), tmp_path / "new" / name, lambda frame: rows.append(len(frame)))
    whole = pd.concat(PARTS, ignore_index=True)
    path = tmp_path / "new" / name
    read = pd.read_parquet(path) if name.endswith("parquet") else pd.read_csv(path, keep_default_na=False)
    assert read[["name", "problem"]].to_numpy().tolist() == whole[["name", "problem"]].to_numpy().tolist()
    assert pd.to_numeric(read["p"]).isna().tolist() == [False, True, True]
    assert rows == [2, 1]
    assert [p.name for p in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_an_error_leaves_the_old_file(tmp_path, name):
    def torn():
        yield PARTS[0]
        raise BadInput("the input ends badly")

    (tmp_path / name).write_text("old")
    with pytest.raises(BadInput, match="ends badly"):
        write_frames(torn(), tmp_path / name, lambda frame: None)
    assert (tmp_path / name).read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_error_leaves_standard_output_open(monkeypatch):
    class Terminal:
        buffer = io.BytesIO()

    def torn():
        yield PARTS[0]
        raise BadInput("the input ends badly")

    monkeypatch.setattr(sys, "stdout", Terminal)
    with pytest.raises(BadInput, match="ends badly"):
        write_frames(torn(), STANDARD_OUTPUT, lambda frame: None)
    gc.collect()
    assert Terminal.buffer.getvalue().startswith(b'name,p,problem\n"a, b",1.5,')


def test_a_carriage_return_in_a_cell_starts_no_row(tmp_path):
    """Python's csv module and pandas read back what was written."""
    frames = [
        pd.DataFrame({"smiles": ["C\rC", 'O"\r\n'], "x": [1.5, None]}),
        pd.DataFrame({"smiles": ["N", None, "N\rN"], "x": [2.5, 3.0, 3.5]}),
    ]
    path = tmp_path / "out.csv"
    write_frames(frames, path, lambda frame: None)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["smiles", "x"], ["C\rC", "1.5"], ['O"\r\n', ""], ["N", "2.5"], ["", "3.0"], ["N\rN", "3.5"]]
    pd.testing.assert_frame_equal(pd.read_csv(path), pd.concat(frames, ignore_index=True))


def test_what_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphbenchError, match=r"out\.csv cannot be written"):
        write_frames(iter(PARTS), tmp_path / "file" / "out.csv", lambda frame: None)
    mixed = [pd.DataFrame({"a": [1]}), pd.DataFrame({"a": ["word"]})]
    with pytest.raises(BadInput, match=r"Write a \.csv file"):
        write_frames(iter(mixed), tmp_path / "out.parquet", lambda frame: None)


def test_names_of_outputs(tmp_path):
    assert check_output("a/b.CSV").suffix == ".CSV"
    (tmp_path / "folder.csv").mkdir()
    for name, said in ((None, "is missing"), ("a.txt", "must end in"), (str(tmp_path / "folder.csv"), "is a folder")):
        with pytest.raises(BadInput, match=said):
            check_output(name)


def test_standard_output_gets_every_part_at_once(tmp_path, capfdbinary):
    """Rows are written before the next ones are requested, as a pipe expects."""
    seen = []

    def parts():
        for part in PARTS:
            seen.append(capfdbinary.readouterr().out)
            yield part

    write_frames(parts(), check_output("-", streams=True), lambda frame: None)
    assert seen[1].decode().startswith(",".join(PARTS[0].columns))
    write_frames(iter(PARTS), tmp_path / "out.csv", lambda frame: None)
    assert b"".join([*seen, capfdbinary.readouterr().out]) == (tmp_path / "out.csv").read_bytes()
    with pytest.raises(BadInput, match="must end in"):
        check_output("-")
