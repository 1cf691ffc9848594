"""Logs and warnings of libraries, silenced and restored."""

from __future__ import annotations

import logging
import warnings

import pytest

from graphbench.training.quiet import silenced


def test_levels_and_warnings_are_as_before_even_after_an_error(caplog):
    logger = logging.getLogger("a_library")
    logger.setLevel(logging.INFO)

    def fail():
        logger.info("unheard")
        warnings.warn("unheard", stacklevel=1)
        raise KeyError

    with silenced(["a_library"]), pytest.raises(KeyError):
        fail()
    assert not caplog.records
    assert logger.level == logging.INFO
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", stacklevel=1)


def test_records_of_the_level_pass(caplog):
    with silenced(["a_library"], logging.CRITICAL):
        logging.getLogger("a_library").critical("out of disk space")
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
