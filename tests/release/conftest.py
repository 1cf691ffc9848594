"""The scripts of release/ as modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def check():
    """Load release/check.py."""
    return load_script(ROOT / "release" / "check.py")


@pytest.fixture(scope="session")
def lower_bounds():
    """Load release/lower_bounds.py."""
    return load_beside("lower_bounds.py")


@pytest.fixture(scope="session")
def audit():
    """Load release/audit.py."""
    return load_beside("audit.py")


def load_beside(name):
    """Load a script that imports another script of its folder."""
    sys.path.insert(0, str(ROOT / "release"))
    try:
        return load_script(ROOT / "release" / name)
    finally:
        sys.path.remove(str(ROOT / "release"))
