"""Cells of targets and times: numbers, classes, labels and missing ones; every defect is reported with its line."""

import numpy as np
import pytest

from graphbench.benchmarks.molecules.chemistry.files import (
    MoleculeRows,
    classes_hint,
    missing_hint,
    parse_targets,
    parse_times,
)
from graphbench.tables.cells import USUAL, Missing


def rows(**columns):
    length = len(next(iter(columns.values())))
    return MoleculeRows("a.csv", list(columns), columns, lines=list(range(2, length + 2)))


def told(problems):
    return [(problem.line, problem.kind, problem.detail) for problem in problems]


def test_numbers_are_read():
    y, problems = parse_targets(rows(a=["1", "-2.5e3", " 0 "], b=["", "nan", "4"]), ["a", "b"], "regression")
    assert np.array_equal(y, [[1, np.nan], [-2500, np.nan], [0, 4]], equal_nan=True)
    assert problems == []


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("abc", "target 'a' is not a number"),
        ("1,5", "target 'a' is not a number"),
        ("1_000", "target 'a' is not a number"),
        ("inf", "target 'a' is not a finite number in single precision"),
        ("1e39", "target 'a' is not a finite number in single precision"),
    ],
)
def test_what_is_no_number(cell, kind):
    _, problems = parse_targets(rows(a=["1", cell]), ["a"], "regression")
    assert told(problems) == [(3, kind, repr(cell))]


@pytest.mark.parametrize("cell", ["", "NaN", "NA", "none", "null", "n/a"])
@pytest.mark.parametrize("task", ["regression", "classification", "multilabel"])
def test_only_target_may_not_be_missing(cell, task):
    _, problems = parse_targets(rows(a=["1", cell]), ["a"], task)
    assert told(problems) == [(3, "target 'a' is missing", "")]


def test_one_of_several_targets_may_be_missing():
    y, problems = parse_targets(rows(a=["1", "", ""], b=["", "0", ""]), ["a", "b"], "multilabel")
    assert told(problems) == [(4, "all targets are missing", "")]
    assert np.array_equal(y[:2], [[1, np.nan], [np.nan, 0]], equal_nan=True)


def test_faulty_row_is_told_once():
    _, problems = parse_targets(rows(a=["x"], b=[""]), ["a", "b"], "regression")
    assert told(problems) == [(2, "target 'a' is not a number", "'x'")]


def test_classes_are_whole_numbers_in_range():
    y, problems = parse_targets(rows(a=["0", "2.0", "3", "-1", "0.5"]), ["a"], "classification", num_classes=3)
    assert (y.dtype, y[:2, 0].tolist()) == (np.int64, [0, 2])
    assert told(problems) == [
        (line, "target 'a' is not a class number from 0 to 2", cell)
        for line, cell in ((4, "'3'"), (5, "'-1'"), (6, "'0.5'"))
    ]


def test_classes_by_name_have_the_order_that_is_given():
    content = rows(a=["yes", "no", "none", "Yes", "", "maybe"])
    y, problems = parse_targets(content, ["a"], "classification", classes=("no", "yes", "none"))
    assert y[:3, 0].tolist() == [1, 0, 2], "a class may be named like a missing cell"
    told_classes = "target 'a' is none of the classes 'no', 'yes', 'none'"
    assert told(problems) == [
        (5, told_classes, "'Yes'"), (7, told_classes, "'maybe'"), (6, "target 'a' is missing", ""),
    ]  # fmt: skip


def test_texts_that_could_be_classes_are_told_with_the_options_to_type():
    hint = classes_hint(rows(a=["wet", "dry", "", "NA", "wet"]), "a")
    assert """--data.task classification --data.classes '["dry", "wet"]'""" in hint
    assert classes_hint(rows(a=["1", "2"]), "a") == ""
    assert classes_hint(rows(a=["wet", "1.5"]), "a") == ""
    assert classes_hint(rows(a=["wet", "wet"]), "a") == ""
    assert classes_hint(rows(a=[f"name {number}" for number in range(21)]), "a") == ""


def test_labels_are_zero_or_one():
    y, problems = parse_targets(rows(a=["0", "1", "True", "false", "2"]), ["a"], "multilabel")
    assert y[:4, 0].tolist() == [0, 1, 1, 0]
    assert told(problems) == [(6, "target 'a' is not 0 or 1", "'2'")]


def test_every_usual_word_is_a_missing_target():
    words = [form for word in USUAL for form in (word, word.lower(), word.upper())] + ["", "nan"]
    y, problems = parse_targets(rows(a=words, b=["1"] * len(words)), ["a", "b"], "regression")
    assert problems == []
    assert np.isnan(y[:, 0]).all()
    _, problems = parse_targets(
        rows(a=["ND", "-", "nan", ""], b=["1"] * 4), ["a", "b"], "regression", missing=Missing.of([])
    )
    assert [problem.line for problem in problems] == [2, 3]


def test_words_of_ones_own_are_missing_beside_the_usual_ones():
    content = rows(a=["-999", "-999.0", "pending", "ND", "-99"], b=["0"] * 5)
    y, problems = parse_targets(content, ["a", "b"], "regression", missing=Missing.of([-999, "Pending"]))
    assert problems == []
    assert np.array_equal(y[:, 0], [np.nan] * 4 + [-99], equal_nan=True)


def test_texts_that_could_be_words_for_missing_ones_are_told_with_the_option_to_type():
    content = rows(a=["1", "pending", "lost", "ND", "3 uM"], b=["2", "pending", "", "3", "1,380.4"])
    hint = missing_hint(content, ["a", "b"], Missing.of(None))
    assert hint.endswith("""--data.missing '["lost", "pending"]'.""")
    assert missing_hint(rows(a=["wet", "dry"]), ["a"], Missing.of(None)) == "", "no hint for a column of text"


def test_times_are_in_order():
    """Each list ascends in time, and so do its parsed values."""
    for cells, form in (
        (["1998", "2003.5", "2004", "20210304"], None),
        (["2019", "2019-02", "2019-02-11T23:59:59+00:00", "2019-02-12", "2019-02-12 00:00:01"], None),
        (["0001-01-01", "1677-09-21", "2262-04-12", "9999-12-31"], None),  # placeholders, and the ends of nanoseconds
        (["01/01/2020", "31/12/9999"], "%d/%m/%Y"),
        (["2020-01-01T00:30:00+02:00", "2019-12-31T23:00:00Z", "2020-01-01"], None),
        (["28/02/2019", "01/03/2019", "02/01/2020"], "%d/%m/%Y"),
        (["Jan 5, 1900", "Feb 1, 1969", "Mar 3, 2100"], "%b %d, %Y"),
    ):
        rows = MoleculeRows("f.csv", ["t"], {"t": cells}, lines=list(range(2, 2 + len(cells))))
        values, problems = parse_times(rows, "t", form)
        assert not problems
        assert (np.diff(values) > 0).all()


def test_what_is_no_time_is_named_by_its_line():
    rows = MoleculeRows(
        "f.csv", ["t"], {"t": ["2019-02-30", "", "n/a", "03/04/2021", "2019-01-01", "inf"]}, lines=list(range(2, 8))
    )
    values, problems = parse_times(rows, "t")
    assert np.isfinite(values).tolist() == [False, False, False, False, True, False]
    assert sorted((problem.line, "missing" in problem.kind) for problem in problems) == [
        (2, False), (3, True), (4, True), (5, False), (7, False),
    ]  # fmt: skip


@pytest.mark.parametrize("numbers", [["2021.5", "2021.12"], ["2021", "1998"], ["1612137600", "16"], ["1e3", "-2"]])
@pytest.mark.parametrize("other", ["x", "n/a", "03/04/2021", "inf"])
def test_a_cell_that_is_no_time_does_not_make_dates_of_numbers(numbers, other):
    cells = [*numbers, other]
    values, (problem,) = parse_times(MoleculeRows("f.csv", ["t"], {"t": cells}, lines=[2, 3, 4]), "t")
    assert values[:2].tolist() == list(map(float, numbers))
    assert (problem.line, np.isnan(values[2])) == (4, True)
