"""Text files of points and tours, as the authors of TSP wrote them."""

from __future__ import annotations

import numpy as np
import pytest
from tours import line_of

from graphbench.benchmarks.block_models.tsp_files import read_tours, text_file
from graphbench.errors import CorruptData, MissingData


def instances(count=3, n=6):
    random = np.random.default_rng(0)
    return [(random.random((n + k, 2)), random.permutation(n + k)) for k in range(count)]


def test_lines_are_points_and_tours(tmp_path):
    written = instances()
    (tmp_path / "TSP_val.txt").write_text("".join(line_of(*one) for one in written))
    found = list(read_tours(text_file(tmp_path, "val"), fewest=4))
    assert len(found) == len(written)
    for (points, tour), (expected, order) in zip(found, written, strict=True):
        np.testing.assert_allclose(points, expected, atol=1e-15)
        assert tour.tolist() == order.tolist()


def test_both_names_are_known_and_a_missing_file_is_told(tmp_path):
    (tmp_path / "tsp50-500_train.txt").write_text("")
    assert text_file(tmp_path, "train").name == "tsp50-500_train.txt"
    with pytest.raises(MissingData, match=r"TSP_test\.txt or tsp50-500_test\.txt is not in .*source=generated") as told:
        text_file(tmp_path, "test")
    assert str(tmp_path) in str(told.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line.replace(" output", ""), "the word 'output' once"),
        (lambda line: line.replace("0.", "x.", 1), "could not convert"),
        (lambda line: line.split(" ", 1)[1], "are no 4 or more points"),
        (lambda line: "nan" + line[line.index(" ") :], "not finite"),
        (lambda line: line.rstrip().rsplit(" ", 1)[0], "does not visit each"),
        (lambda line: line.rstrip() + " 1\n", "does not visit each"),
        (lambda line: " ".join(line.split()[:8]) + " output 1 2 3 4 1", None),
        (lambda line: " ".join(line.split()[:6]) + " output 1 2 3 1", "are no 4 or more points"),
    ],
)
def test_other_lines_are_named(change, message, tmp_path):
    good = line_of(*instances(1)[0])
    (tmp_path / "TSP_train.txt").write_text(good + change(good))
    reading = read_tours(tmp_path / "TSP_train.txt", fewest=4)
    next(reading)
    if message is None:
        assert len(next(reading)[0]) == 4
    else:
        with pytest.raises(CorruptData, match=rf"TSP_train\.txt, line 2: .*{message}"):
            next(reading)
