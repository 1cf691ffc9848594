"""Sizes that `graphbench list benchmarks` shows, against the data of every benchmark that needs no network."""

from __future__ import annotations

import pytest

from graphbench import registry
from graphbench.errors import GraphbenchError

#: Without ElectricFlow, which draws graphs while training, TSP, whose own test checks its 1,200 tours, and the
#: benchmarks whose specification depends on the user's files.
COMPLETE = sorted(
    name
    for name, record in registry.benchmarks().items()
    if record.spec.offline and record.spec.split_sizes is not None and name not in ("ElectricFlow", "TSP")
)


#: Their listed means are exact to the digit shown, those of the others to one percent.
GENERATED = ("CLUSTER", "CYCLES", "PATTERN")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPLETE)
def test_sizes_are_as_listed(name, tmp_path):
    spec = registry.benchmarks()[name].spec
    benchmark = registry.load("benchmarks", name)(root=str(tmp_path))
    try:
        benchmark.setup()
    except GraphbenchError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))
    tables = [benchmark.tables[split] for split in ("train", "val", "test")]
    assert tuple(map(len, tables)) == spec.split_sizes
    graphs = sum(map(len, tables))
    nodes = sum(int(table.ptr["node"][-1]) for table in tables) / graphs
    edges = sum(int(table.ptr["edge"][-1]) for table in tables) / graphs
    tolerance = {"rel": 0, "abs": 0.05 + 1e-9} if name in GENERATED else {"rel": 0.01}
    assert nodes == pytest.approx(spec.mean_nodes, **tolerance)
    assert edges == pytest.approx(spec.mean_edges, **tolerance)
    stored = sum(path.stat().st_size for path in benchmark.store.root.glob("table-*/*")) / 1e6
    assert stored == pytest.approx(spec.disk_mb, rel=0.1, abs=0.1)
