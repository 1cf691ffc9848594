"""The architectures fulfil their contract with every solver, and have the head of the paper's equations."""

from __future__ import annotations

from graphbench.nn import RWSEEncoder
from graphbench.testing import ArchitectureContract
from graphbench_sfi_former import DFiFormer, ProximalOptions, SFiFormer

SMALL = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2}
#: One for each layer with an exact flow: whether it has rows that float32 cannot represent, which are rare and cost a
#: sort in float64. These rows depend on the weights and on earlier layers; a fixed number of them would not be exact.
EXACT = SMALL["num_layers"]


class TestSFiFormer(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL
    most_waits = EXACT
    most_launches = 1063


class TestDFiFormer(ArchitectureContract):
    architecture = DFiFormer
    options = SMALL
    most_launches = 379


class TestSFiFormerWithHardConstraint(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"alpha": None, "extra_parameters": False, "local_layer": "none"}
    most_waits = EXACT
    most_launches = 912


class TestSFiFormerByFlowAlone(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"terms": "flow", "penalty": 5.0}
    most_waits = EXACT
    most_launches = 1015


class TestSFiFormerByAdjacencyAlone(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"terms": "adjacency"}
    most_launches = 313


class TestSFiFormerByIteration(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"solver": "proximal", "proximal": ProximalOptions(num_steps=3, start="zeros")}
    most_launches = 775


class TestSFiFormerByDenselyStartedIteration(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"solver": "proximal", "proximal": ProximalOptions(num_steps=3, start="dense", step="constant")}
    most_launches = 735


class TestSFiFormerWithPositions(ArchitectureContract):
    architecture = SFiFormer
    most_waits = EXACT
    most_launches = 1069

    def make_model(self, spec):
        return SFiFormer(spec, **SMALL, positional_encoders=[RWSEEncoder(4, 4)])


class TestSFiFormerOverEdges(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"flow_graph": "edges"}
    most_waits = EXACT
    most_launches = 1077
