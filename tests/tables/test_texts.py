"""`Texts`, stored in one array of bytes, behaves like a list of strings."""

import numpy as np
import pytest

from graphbench.tables.texts import Texts

LIST = ["C[C@@H]", "", "\N{EM DASH} \N{GREEK SMALL LETTER ALPHA}", "N" * 300]


@pytest.fixture(params=["collected", "stored"])
def texts(request):
    collected = Texts(LIST[:1])
    collected.extend(LIST[1:])
    if request.param == "collected":
        return collected
    return Texts.of_arrays(np.array(collected.data), np.array(collected.ptr))


def test_texts_are_those_of_the_list(texts):
    assert list(texts) == LIST
    assert len(texts) == len(LIST)
    assert [texts[place] for place in range(-4, 4)] == LIST + LIST
    assert texts[1:3] == LIST[1:3]
    assert texts[::-2] == LIST[::-2]
    assert texts == LIST
    assert texts != LIST[::-1]
    assert texts != "".join(LIST)
    assert texts != len(LIST)
    assert LIST[2] in texts
    with pytest.raises(IndexError):
        texts[4]


def test_no_texts():
    assert list(Texts()) == []
    assert not Texts()
    assert Texts().ptr.tolist() == [0]
    assert len(Texts().data) == 0
