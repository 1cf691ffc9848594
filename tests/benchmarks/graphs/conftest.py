"""Graphs in the formats that users have."""

from __future__ import annotations

import pytest
import torch
from own_graphs import make_graphs


@pytest.fixture(scope="session")
def graphs():
    return make_graphs()


@pytest.fixture
def saved(graphs, tmp_path):
    """A file of `torch.save`."""
    torch.save(graphs, tmp_path / "mine.pt")
    return tmp_path / "mine.pt"
