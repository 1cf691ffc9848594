"""Pairs of papers in the layout of the Long Range Arena's release."""

import pytest

from graphbench.benchmarks.sequences.aan import FILES, find_pairs, read_pairs
from graphbench.errors import CorruptData, MissingData

LINES = b'1.0\tP07-1\tP05-2\tfirst text\tsecond\n0\tA\tB\tx\tsome "quoted" words\n1\tC\tD\tcaf\xc3\xa9\tz\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "new_aan_pairs.train.tsv"
    path.write_bytes(LINES)
    return path


def test_both_papers_lie_one_after_the_other(file):
    first, second = read_pairs(file, max_length=100, chunk=2)
    assert first.tokens.tobytes() == b'first textsecondxsome "quoted" words'
    assert first.lengths.tolist() == [16, 20]
    assert first.second.tolist() == [10, 1]
    assert first.labels.tolist() == [1, 0]
    assert second.tokens.tobytes() == b"caf\xc3\xa9z"
    assert second.labels.tolist() == [1]


def test_long_papers_are_cut_each(file):
    (pairs,) = read_pairs(file, max_length=3, chunk=10)
    assert pairs.tokens.tobytes() == b"firsecxsomcafz"
    assert pairs.second.tolist() == [3, 1, 3]


@pytest.mark.parametrize("line", [b"1\tA\tB\tonly one text", b"2\tA\tB\tx\ty", b"1\tA\tB\t\ty", b"1\tA\tB\tx\ty\tz"])
def test_bad_line_is_named(file, line):
    file.write_bytes(LINES + line)
    with pytest.raises(CorruptData, match="line 4 is not a label"):
        list(read_pairs(file, 10, 2))


def test_files_are_found_in_the_folders_of_the_release(tmp_path):
    with pytest.raises(MissingData, match=r"new_aan_pairs.train.tsv.* out of lra_release.gz"):
        find_pairs(tmp_path)
    place = tmp_path / "lra_release" / "lra_release" / "tsv_data"
    place.mkdir(parents=True)
    for name in FILES.values():
        (place / name).write_bytes(LINES)
    assert find_pairs(tmp_path)["val"] == place / "new_aan_pairs.eval.tsv"
