"""The scripts of docker/ as modules; they need Python 3.11, as the image does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


def _module(name):
    pytest.importorskip("tomllib", reason="the image has Python 3.11 or later")
    spec = importlib.util.spec_from_file_location(f"docker_{name}", ROOT / "docker" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def entrypoint():
    """docker/entrypoint.py."""
    return _module("entrypoint")


@pytest.fixture(scope="session")
def requirements():
    """docker/requirements.py."""
    return _module("requirements")
