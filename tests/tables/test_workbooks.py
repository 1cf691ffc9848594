"""Workbooks: cells as text, blank rows, other sheets, and the error without openpyxl."""

from __future__ import annotations

import datetime as dt
import importlib.util
import zipfile
from pathlib import Path

import pytest

from graphbench.errors import BadInput, CorruptData, MissingExtra
from graphbench.tables.workbooks import check_workbook, workbook_rows

needs_openpyxl = pytest.mark.skipif(importlib.util.find_spec("openpyxl") is None, reason="needs the extra excel")


@pytest.fixture
def book(tmp_path):
    """Return a workbook with two sheets; the first has a blank row, a gap, a date and a cell beyond the header."""
    openpyxl = pytest.importorskip("openpyxl")
    made = openpyxl.Workbook()
    sheet = made.active
    sheet.title = "Assay"
    rows = [["smiles", "y", "on"], ["CCO", 1.5, True], [], [" CC ", None, dt.date(2024, 5, 1)], ["C", 2, "", "x"]]
    for number, row in enumerate(rows, 1):
        for place, value in enumerate(row, 1):
            sheet.cell(number, place, value)
    for number in (1, 4):
        sheet.cell(number, 5).number_format = "0.00"  # stored, although it is blank
    made.create_sheet("Notes").append(["nothing"])
    made.save(tmp_path / "a.xlsx")
    return tmp_path / "a.xlsx"


def test_cells_are_text_with_the_number_of_their_row(book):
    notes = []
    assert list(workbook_rows(book, notes)) == [
        (1, ["smiles", "y", "on"]),
        (2, ["CCO", "1.5", "True"]),
        (4, ["CC", "", "2024-05-01 00:00:00"]),
        (5, ["C", "2", "", "x"]),
    ]
    assert notes == ["the sheet 'Assay' is read, the first of 2"]


def test_a_workbook_that_unpacks_to_far_more_is_refused_before_it_is_opened(book):
    """All shared strings are loaded into memory, however few of them a sheet uses."""
    packed = book.with_name("bomb.xlsx")
    with zipfile.ZipFile(book) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
        with target.open("xl/more.xml", "w") as file:
            for _ in range(100):
                file.write(bytes(1 << 20))
    with pytest.raises(CorruptData, match=r"bomb\.xlsx"):
        next(workbook_rows(packed, []))


def test_a_damaged_sheet_is_named_as_a_file_that_cannot_be_read(book):
    """Its XML is parsed only while rows are read."""
    damaged = book.with_name("damaged.xlsx")
    with zipfile.ZipFile(book) as source, zipfile.ZipFile(damaged, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content[: len(content) // 2] if name.endswith("sheet1.xml") else content)
    with pytest.raises(BadInput, match=r"damaged\.xlsx"):
        list(workbook_rows(damaged, []))


def test_a_workbook_of_charts_alone_has_no_rows_to_read(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    made = openpyxl.Workbook()
    made.create_chartsheet("Plot")
    del made["Sheet"]
    made.save(tmp_path / "charts.xlsx")
    with pytest.raises(BadInput, match=r"charts\.xlsx"):
        list(workbook_rows(tmp_path / "charts.xlsx", []))


@needs_openpyxl
def test_other_files_are_no_workbooks(tmp_path):
    (tmp_path / "a.xlsx").write_text("smiles,y\n")
    with pytest.raises(BadInput, match="not a workbook that openpyxl can read"):
        next(workbook_rows(tmp_path / "a.xlsx", []))


def test_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_workbook(Path("a.csv"))
    with pytest.raises(MissingExtra, match=r"Reading a\.XLSX .*'openpyxl'.*\[excel\]"):
        check_workbook(Path("a.XLSX"))


def test_a_formula_without_a_saved_value_is_no_empty_cell(tmp_path):
    """Covers formulas without a value, with the value that a spreadsheet saved, and with an empty text as result."""
    openpyxl = pytest.importorskip("openpyxl")
    book, path = openpyxl.Workbook(), tmp_path / "mine.xlsx"
    book.active.append(["name", "twice", "saved", "empty"])
    book.active.append(["a", "=2*2", "=2*3", '=IF(1,"","x")'])
    book.active.append(["b", 1.5, None, None])
    book.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = parts["xl/worksheets/sheet1.xml"].replace(b"<f>2*3</f><v />", b"<f>2*3</f><v>6</v>")
    sheet = sheet.replace(b"<f>2*3</f><v></v>", b"<f>2*3</f><v>6</v>").replace(b'r="D2"', b'r="D2" t="str"')
    assert b"<v>6</v>" in sheet
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (parts | {"xl/worksheets/sheet1.xml": sheet}).items():
            archive.writestr(name, content)
    rows = [cells for _, cells in workbook_rows(path, [])]
    assert rows == [["name", "twice", "saved", "empty"], ["a", "=2*2", "6", ""], ["b", "1.5", "", ""]]
