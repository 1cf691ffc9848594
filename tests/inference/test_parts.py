"""A table in parts: each row once and in order, equal bytes after an interruption, no parts of other predictions."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from dataclasses import asdict

import numpy as np
import pandas as pd
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from graphbench.contracts import InputPart
from graphbench.data.parts.shares import Share
from graphbench.errors import BadInput, CorruptData
from graphbench.inference.parts import PartsFolder

IDENTITY = {"input": {"bytes": 7, "sha256": "a" * 64}, "models": [{"weights": "b" * 64}]}
PART_ROWS = 10


class Killed(BaseException):
    """Raised in place of a signal."""


def blocks(sizes, answered):
    """Yield blocks of an input as a reader does, and add "end" to `answered` after the last."""
    row = 0
    for size in sizes:
        rows = np.arange(row, row + size)
        yield [InputPart(pd.DataFrame({"row": rows}), None, [])]
        row += size
    answered.append("end")


def answer(views, answered, fail):
    """Yield tables with one or two rows for each input row, as for nodes."""
    for (view,) in views:
        if fail(view):
            raise Killed
        rows = np.repeat(view.frame["row"].to_numpy(), 1 + view.frame["row"].to_numpy() % 2)
        answered += view.frame["row"].tolist()
        yield pd.DataFrame(
            {"row": rows, "y": np.sin(rows), "problem": np.where(rows % 5 == 0, "odd", "").astype(object)}
        )


def fill(folder, sizes, share="1/1", resume=True, identity=IDENTITY, fail=lambda view: False, part_rows=PART_ROWS):
    """Write a share as the command does; return the result of `finish` and the answered rows."""
    answered = []
    with PartsFolder.opened(folder, identity, {}, Share.parse(share), part_rows, resume) as parts:
        parts.write(answer(parts.wanted(blocks(sizes, answered)), answered, fail))
        return parts.finish(), [row for row in answered if row != "end"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


SIZES = (4, 4, 4, 4, 4, 1, 9, 10, 2, 3)  # a block may be short, and parts begin within blocks


@pytest.fixture
def whole(tmp_path):
    fill(tmp_path / "whole", SIZES)
    return contents(tmp_path / "whole")


def test_the_parts_are_one_table_for_pandas_and_arrow(whole, tmp_path):
    rows = np.repeat(np.arange(sum(SIZES)), 1 + np.arange(sum(SIZES)) % 2)
    for table in (
        pd.read_parquet(tmp_path / "whole"),
        pyarrow.dataset.dataset(tmp_path / "whole").to_table().to_pandas(),
    ):
        assert table["row"].tolist() == rows.tolist()
        assert np.array_equal(table["y"], np.sin(rows))
    manifest = json.loads(whole["_manifest.json"])
    assert manifest["complete"]
    assert [(part["first_row"], part["input_rows"]) for part in manifest["parts"]] == [
        (0, 12), (12, 8), (20, 10), (30, 10), (40, 5),
    ]  # fmt: skip
    assert sum(part["rows"] for part in manifest["parts"]) == len(rows)


@pytest.mark.parametrize("count", [2, 3, 9])
def test_shares_in_any_order_write_the_same_parts(whole, tmp_path, count):
    answered = Counter()
    shares = [f"{number + 1}/{count}" for number in range(count)]
    random.Random(count).shuffle(shares)
    for number, share in enumerate(shares, 1):
        (done, total, counts), rows = fill(tmp_path / "new" / "shared", SIZES, share, resume=False)
        answered.update(rows)
        assert total == 5
        assert (done == 5) == (number == len(shares) or counts.rows == 67)
    assert answered == Counter(range(sum(SIZES)))
    assert contents(tmp_path / "new" / "shared") == whole
    columns = ["problem", "outside_training"]
    assert asdict(counts) == {"rows": 67, "without": 13, "outside": 0, "columns": columns}


def test_any_interruption_leaves_whole_parts_and_the_rest_follows(whole, tmp_path):
    random_numbers = random.Random(0)
    for attempt in range(12):
        folder, answered = tmp_path / str(attempt), Counter()
        for _ in range(3):
            at = random_numbers.randrange(sum(SIZES))
            with contextlib.suppress(Killed):  # unless the part of this row exists
                fill(folder, SIZES, fail=lambda view, at=at: at in view.frame["row"].tolist())
            there = contents(folder)
            assert all(there[name] == whole[name] for name in there if name.startswith("part-"))
        (_, _, counts), rows = fill(folder, SIZES)
        assert contents(folder) == whole
        assert counts.rows == 67
        answered.update(rows)
        assert max(answered.values(), default=1) == 1


def test_what_is_there_is_not_answered_again(whole, tmp_path):
    assert fill(tmp_path / "whole", SIZES)[1] == []
    (tmp_path / "whole" / "part-000002.parquet").unlink()
    (tmp_path / "whole" / "part-000003.parquet").write_bytes(b"torn")
    (tmp_path / "whole" / ".part-000001.parquet-abc").write_bytes(b"of a killed process")
    assert fill(tmp_path / "whole", SIZES)[1] == list(range(20, 40))
    assert contents(tmp_path / "whole") == whole
    assert not list((tmp_path / "whole").glob(".part-*"))


def test_a_killed_write_leaves_no_part(whole, tmp_path, monkeypatch):
    def torn(table, file, **options):
        file.write(b"PAR1 half of it")
        raise Killed

    monkeypatch.setattr(pq, "write_table", torn)
    with pytest.raises(Killed):
        fill(tmp_path / "torn", SIZES)
    monkeypatch.undo()
    assert not list((tmp_path / "torn").glob("part-*"))
    fill(tmp_path / "torn", SIZES)
    assert contents(tmp_path / "torn") == whole


@pytest.mark.parametrize(
    ("identity", "part_rows", "named"),
    [
        (IDENTITY | {"input": {"bytes": 8, "sha256": "a" * 64}}, PART_ROWS, "input.bytes was 7, now 8"),
        (IDENTITY | {"models": [{"weights": "c" * 64}]}, PART_ROWS, r"models.0.weights was b{12}\.\.\., now c{12}"),
        (IDENTITY | {"models": [*IDENTITY["models"], {"weights": "d"}]}, PART_ROWS, "models.1.weights was absent"),
        (IDENTITY, 20, "part_rows was 10, now 20"),
    ],
)
def test_another_prediction_is_refused_by_what_differs(whole, tmp_path, identity, part_rows, named):
    with pytest.raises(BadInput, match=named):
        fill(tmp_path / "whole", SIZES, identity=identity, part_rows=part_rows)
    assert contents(tmp_path / "whole") == whole


def test_parts_that_are_there_need_a_word_to_go_on(whole, tmp_path):
    with pytest.raises(BadInput, match="--if-exists resume"):
        fill(tmp_path / "whole", SIZES, resume=False)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(BadInput, match=r"contains notes\.txt and no _manifest\.json"):
        fill(tmp_path / "mine", SIZES)
    (tmp_path / "mine" / "_manifest.json").write_text("{}")
    with pytest.raises(CorruptData, match=r"_manifest\.json is not a manifest"):
        fill(tmp_path / "mine", SIZES)


def test_two_processes_do_not_write_one_share(tmp_path):
    with (
        PartsFolder.opened(tmp_path / "one", IDENTITY, {}, Share(), PART_ROWS),
        pytest.raises(BadInput, match="another process is writing share 1/1"),
    ):
        fill(tmp_path / "one", SIZES)


def test_shares_that_read_other_rows_are_not_called_complete(tmp_path):
    """As if the input changed but kept its time and size, or another version read it."""
    fill(tmp_path / "one", SIZES, "2/2")
    with pytest.raises(CorruptData, match=r"part-000001\.parquet .*\b12\b.*\b13\b"):
        fill(tmp_path / "one", (4, 4, 5, *SIZES[3:]), "1/2")


def test_parts_shorter_than_a_block_are_refused(tmp_path):
    with pytest.raises(BadInput, match="--part-rows must be at least 9"):
        fill(tmp_path / "one", (4, 9), part_rows=5)
