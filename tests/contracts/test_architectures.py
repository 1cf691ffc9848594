"""Every registered architecture satisfies the contract: none escapes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphbench import registry
from graphbench.testing import ArchitectureContract

#: Architectures whose results follow the numbering of nodes, and why.
DRAWN = {
    "DeepGraph": "equivariant in expectation, see plugins/deepgraph/tests/test_model.py",
    "GraphMamba": "nodes of equal degree are read in an order that their numbers decide, as in the authors' code",
}

#: Architectures whose weights belong to edges by their number, and the option that makes them independent of it.
NUMBERED_EDGES = {
    "LinearTransformer": "the general form has a row of weights for every edge; `form: efficient` has not"
}

#: Options without which a model is degenerate on tiny graphs.
OPTIONS = {
    "PointNetPlusPlus": {"radius": 4.0}  # points of tiny clouds are far apart: each would be alone in its ball
}

PLUGINS = Path(__file__).parents[2] / "plugins"


def test_architectures_are_registered():
    assert registry.architectures(), "install the plug-ins: pip install -e plugins/FAMILY"


def test_every_plugin_holds_its_architectures_to_the_contract():
    """On small models, each time; the class below does it on the defaults, and for whatever else is installed."""
    checked = {
        name
        for path in PLUGINS.glob("*/tests/**/test_*.py")
        for name in re.findall(r"^    architecture = (?:\w+\.)?(\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    ours = {f"graphbench-{folder.name}" for folder in PLUGINS.iterdir()}
    records = registry.architectures().values()
    assert {record.name for record in records if record.distribution in ours} <= checked


#: Parts that the contract's loss does not reach: clusters of Sequoia learn from its penalty alone.
WITHOUT_GRADIENT = {"Sequoia": ("before.*", "logits.*", "among.local.edge_norm.*")}


@pytest.mark.slow
class TestRegisteredArchitectures(ArchitectureContract):
    @pytest.fixture(autouse=True, params=sorted(registry.architectures()))
    def registered(self, request):
        self.architecture = registry.load("architectures", request.param)
        if request.param in DRAWN:
            self.random_order = DRAWN[request.param]
        self.numbered_edges = NUMBERED_EDGES.get(request.param, "")
        self.options = OPTIONS.get(request.param, {})
        self.without_gradient = WITHOUT_GRADIENT.get(request.param, ())

    def test_every_task_and_feature_kind_works_or_is_refused(self):
        assert any(self.taken_specifications(thorough=True).values())
