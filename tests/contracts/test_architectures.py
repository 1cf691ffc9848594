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


#: Architecture -> most waits and launches of a training step, see `ArchitectureContract`; only ever lowered.
BUDGETS = {
    "AdvDIFFormer": (0, 298),
    "CNDGCNN": (0, 859),
    "CNPointNet": (0, 752),
    "DFiFormer": (0, 395),
    "DGCNN": (0, 462),
    "DIFFormer": (0, 1030),
    "DeepGraph": (0, 907),
    "Exphormer": (0, 810),
    "GAT": (0, 301),
    "GCN": (0, 157),
    "GCNII": (0, 1749),
    "GIN": (0, 193),
    "GINE": (0, 216),
    "GNNPlus": (0, 784),
    "GPS": (0, 1039),
    "GRIT": (0, 1602),
    "GT": (0, 490),
    "GatedGCN": (0, 281),
    "GraphMamba": (0, 968),
    "GraphSAGE": (0, 225),
    "Graphormer": (0, 1099),
    "LinearTransformer": (3, 817),
    "Luna": (0, 588),
    "MEGA": (0, 1106),
    "NAGphormer": (0, 225),
    "NodeFormer": (0, 1244),
    "OGBGNN": (0, 269),
    "PointCNN": (0, 951),
    "PointConv": (0, 1045),
    "PointNet": (0, 376),
    "PointNetPlusPlus": (0, 677),
    "PointSequoia": (4, 1868),
    "PointTransformer": (0, 1353),
    "Polynormer": (0, 1172),
    "Positions": (0, 49),
    "S4D": (0, 639),
    "SAN": (0, 988),
    "SAT": (0, 2073),
    "SFT": (4, 1497),
    "SFiFormer": (44, 3111),
    "SGFormer": (0, 281),
    "SPN": (0, 476),
    "SequenceSequoia": (0, 734),
    "SequenceTransformer": (0, 373),
    "Sequoia": (5, 411),
    "SetTransformer": (0, 959),
    "TunedGNN": (0, 316),
    "VNDGCNN": (0, 914),
    "VNPointNet": (0, 926),
}


class _Registered(ArchitectureContract):
    def test_every_task_and_feature_kind_works_or_is_refused(self):
        assert any(self.taken_specifications(thorough=True).values())


def _contract(name):
    """A contract per architecture: the process that counts steps sees classes, and nothing of fixtures."""
    waits, launches = BUDGETS.get(name, (0, None))
    facts = {
        "architecture": registry.load("architectures", name),
        "random_order": DRAWN.get(name, ""),
        "numbered_edges": NUMBERED_EDGES.get(name, ""),
        "options": OPTIONS.get(name, {}),
        "without_gradient": WITHOUT_GRADIENT.get(name, ()),
        "most_waits": waits,
        "most_launches": launches,
    }
    return pytest.mark.slow(type(f"Test{name}", (_Registered,), facts))


for _name in sorted(registry.architectures()):
    globals()[f"Test{_name}"] = _contract(_name)
