"""Random graphs in place of data that are not on this machine."""

from __future__ import annotations

import pytest
import torch

from graphbench import registry
from graphbench.errors import BadInput, UnknownName
from graphbench.experiments.reproduce.recipes import benchmark_of, can_be_offline, setting, stand_in_options
from graphbench.experiments.reproduce.tables import tables
from graphbench.testing.stand_in import StandIn


def absent():
    """Return benchmarks of published tables that need a download, each with the options of its recipes."""
    found = {}
    for table in tables().values():
        for cell in table.cells:
            if cell.way == "recipe" and not can_be_offline(cell.recipe):
                found.setdefault(benchmark_of(cell.recipe), setting(cell.recipe, "data.init_args") or {})
    return found


@pytest.mark.parametrize(("name", "options"), absent().items())
def test_graphs_have_features_and_targets_of_the_specification(tmp_path, name, options):
    """The check of every benchmark has already compared the stored data with the specification."""
    own = {key: value for key, value in options.items() if key != "batch_size"}
    data = StandIn(name, own, root=str(tmp_path), batch_size=4)
    data.prepare_data()
    data.setup()
    spec = registry.load("benchmarks", name)(**own).spec
    assert (data.spec.task, data.spec.node, data.spec.edge) == (spec.task, spec.node, spec.edge)
    assert (data.spec.metric, data.spec.num_classes, data.spec.num_targets) == (
        spec.metric, spec.num_classes, spec.num_targets,
    )  # fmt: skip
    assert [len(data.tables[split]) for split in ("train", "val", "test")] == [8, 4, 4]
    batch = next(iter(data.train_dataloader()))
    assert batch.num_graphs == 4
    if "category" in spec.node.names:
        parts = [int(word) for word in spec.extra["parts"].split()]
        for graph in range(4):
            (category,) = batch.x[batch.batch == graph, 0].unique().tolist()
            first = sum(parts[:category])
            assert set(batch.y[batch.batch == graph].flatten().tolist()) <= set(range(first, first + parts[category]))
    again = StandIn(name, own, root=str(tmp_path / "other"))
    again.prepare_data()
    assert torch.equal(again.tables["train"].columns["edge_index"], data.tables["train"].columns["edge_index"])


def test_what_the_benchmark_does_not_take_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no_such"):
        StandIn("PascalVOCSP", {"no_such": 1}, root=str(tmp_path))
    with pytest.raises(UnknownName):
        StandIn("Nothing", root=str(tmp_path))


def test_options_of_a_cell_decide_the_specification_too():
    words = stand_in_options(["sfi-former/pattern"], ["--data.init_args.max_length=9", "--data.init_args.batch_size=2"])
    assert words[1] == "--data.init_args.of=PATTERN"
    assert words[2] == '--data.init_args.of_options={"source": "pyg", "max_length": 9}'
