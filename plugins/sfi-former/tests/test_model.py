"""The architectures keep their contract with every solver, and the head of the paper's equations."""

from __future__ import annotations

from graphbench.nn import RWSEEncoder
from graphbench.testing import ArchitectureContract
from graphbench_sfi_former import DFiFormer, ProximalOptions, SFiFormer

SMALL = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2}


class TestSFiFormer(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL


class TestDFiFormer(ArchitectureContract):
    architecture = DFiFormer
    options = SMALL


class TestSFiFormerWithHardConstraint(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"alpha": None, "extra_parameters": False, "local_layer": "none"}


class TestSFiFormerByFlowAlone(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"terms": "flow", "penalty": 5.0}


class TestSFiFormerByAdjacencyAlone(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"terms": "adjacency"}


class TestSFiFormerByIteration(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"solver": "proximal", "proximal": ProximalOptions(num_steps=3, start="zeros")}


class TestSFiFormerByDenselyStartedIteration(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"solver": "proximal", "proximal": ProximalOptions(num_steps=3, start="dense", step="constant")}


class TestSFiFormerWithPositions(ArchitectureContract):
    architecture = SFiFormer

    def make_model(self, spec):
        return SFiFormer(spec, **SMALL, positional_encoders=[RWSEEncoder(4, 4)])


class TestSFiFormerOverEdges(ArchitectureContract):
    architecture = SFiFormer
    options = SMALL | {"flow_graph": "edges"}
