"""Options passed in Python: which are refused, and which are left to the constructor."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from graphbench.errors import BadInput, UnknownName
from graphbench.training.arguments import check_options, parameters


class Base:
    def __init__(self, width: int = 4, flag: bool = False) -> None:
        self.width, self.flag = width, flag


class Passing(Base):
    def __init__(
        self,
        spec: object,
        rate: float = 0.5,
        mode: Literal["mean", "max"] | None = None,
        sizes: list[int] | str = "all",
        place: str = "data",
        **options: Any,
    ) -> None:
        super().__init__(**options)


class Open:
    def __init__(self, width: int = 4, **further: Any) -> None:
        self.further = further


def test_options_of_bases_are_options():
    assert parameters(Passing) == ["rate", "mode", "sizes", "place", "width", "flag"]
    assert parameters(Open) == ["width"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rate": 1, "width": np.int64(3), "flag": np.True_, "mode": None},
        {"rate": np.float32(0.1), "mode": "max", "sizes": [1]},
        {"sizes": 3.5},  # not a plain type: left to the constructor
        {"place": Path("here")},
    ],
)
def test_what_fits_passes(options):
    check_options("given", Passing, options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": "0.5"}, "given: rate must be a number, but got '0.5'"),
        ({"rate": True}, "given: rate must be a number, but got True"),
        ({"width": 2.0}, "given: width must be an integer, but got 2.0"),
        ({"width": None}, "given: width must be an integer, but got None"),
        ({"place": 3}, "given: place must be text, but got 3"),
        ({"flag": 1}, "given: flag must be True or False, but got 1"),
        ({"mode": "sum"}, "given: mode must be one of 'mean', 'max' or None, but got 'sum'"),
        ([("rate", 1)], "given must be a mapping of options"),
    ],
)
def test_what_does_not_fit_is_refused(options, said):
    with pytest.raises(BadInput, match=said):
        check_options("given", Passing, options)


def test_unknown_names_are_refused_where_all_are_told():
    with pytest.raises(UnknownName, match=r"No option of Passing in given is called 'widht'\. Did you mean width\?"):
        check_options("given", Passing, {"widht": 3})
    check_options("given", Open, {"anything": 3})
