"""Every registered architecture satisfies the contract: none escapes."""

from __future__ import annotations

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


def test_architectures_are_registered():
    assert registry.architectures(), "install the plug-ins: pip install -e plugins/FAMILY"


class TestRegisteredArchitectures(ArchitectureContract):
    @pytest.fixture(autouse=True, params=sorted(registry.architectures()))
    def registered(self, request):
        self.architecture = registry.load("architectures", request.param)
        if request.param in DRAWN:
            self.random_order = DRAWN[request.param]
        self.numbered_edges = NUMBERED_EDGES.get(request.param, "")

    @pytest.mark.slow  # the plug-ins' own tests do it on small models
    def test_every_task_and_feature_kind_works_or_is_refused(self):
        assert any(self.taken_specifications().values())
