"""Parts of an entry: shares fill them, a failure loses only one, and `remove` deletes all."""

import numpy as np
import pytest

from graphbench.data.parts.kept import KeptParts, spans_of
from graphbench.data.parts.shares import Share

KEY = {"kind": "numbers", "seed": 0}
SPANS = [(0, 4), (4, 8), (8, 9)]


def rows(span, writer):
    writer.append("x", np.arange(*span))


def test_shares_fill_all_parts_and_say_how_many_are_missing(store):
    kept = KeptParts(store, KEY)
    assert not kept.exist()
    assert kept.fill(SPANS, Share(2, 2), rows, "numbers") == 2
    assert kept.open(SPANS[0]) is None
    assert kept.fill(SPANS, Share(1, 2), rows, "numbers") == 0
    joined = np.concatenate([kept.open(span).arrays["x"] for span in SPANS])
    assert joined.tolist() == list(range(9))
    assert KeptParts(store, KEY | {"seed": 1}).open(SPANS[0]) is None, "parts of another entry"
    kept.remove()
    assert not kept.exist()


def test_a_failure_loses_the_part_it_is_in_and_no_other(store):
    kept, computed = KeptParts(store, KEY), []

    def fails(span, writer):
        rows(span, writer)
        computed.append(span)
        if span == SPANS[1] and computed.count(span) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.fill(SPANS, Share(), fails, "numbers")
    assert kept.open(SPANS[1]) is None
    assert kept.fill(SPANS, Share(), fails, "numbers") == 0
    assert computed == [SPANS[0], SPANS[1], SPANS[1], SPANS[2]]


def test_spans_hold_every_row_once():
    spans = spans_of(100_000)
    assert [row for span in spans for row in range(*span)] == list(range(100_000))
