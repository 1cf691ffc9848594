"""The scripts of docker/ as modules; they need Python 3.11, as the image does."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root():
    """Return the root of the repository."""
    return ROOT


def _module(name):
    pytest.importorskip("tomllib", reason="the image has Python 3.11 or later")
    return load_script(ROOT / "docker" / f"{name}.py")


@pytest.fixture(scope="session")
def entrypoint():
    """Load docker/entrypoint.py."""
    return _module("entrypoint")


@pytest.fixture(scope="session")
def check_stderr():
    """Load docker/check_stderr.py."""
    return _module("check_stderr")


@pytest.fixture(scope="session")
def requirements():
    """Load docker/requirements.py."""
    return _module("requirements")
