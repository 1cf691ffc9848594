"""Graphs in the formats that users have."""

from __future__ import annotations

import pytest
import torch
from own_graphs import make_graphs

from graphbench.benchmarks.graphs.benchmark import Graphs


@pytest.fixture(scope="session")
def graphs():
    return make_graphs()


@pytest.fixture
def saved(graphs, tmp_path):
    """Save the graphs with `torch.save` and return the path."""
    torch.save(graphs, tmp_path / "mine.pt")
    return tmp_path / "mine.pt"


@pytest.fixture
def opened(tmp_path):
    """Open a benchmark whose files and store are temporary."""

    def opened(source, **options):
        benchmark = Graphs(source, root=str(tmp_path / "data"), **options)
        benchmark.prepare_data()
        benchmark.setup()
        return benchmark

    return opened
