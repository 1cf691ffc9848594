"""The benchmarks, one file a family. Names are loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.benchmarks.base import GraphBenchmark as GraphBenchmark
    from graphbench.benchmarks.block_models import CLUSTER as CLUSTER
    from graphbench.benchmarks.block_models import PATTERN as PATTERN
    from graphbench.benchmarks.circulant import CSL as CSL
    from graphbench.benchmarks.cycles import CYCLES as CYCLES
    from graphbench.benchmarks.electric_flow import ElectricFlow as ElectricFlow
    from graphbench.benchmarks.listops import ListOps as ListOps
    from graphbench.benchmarks.long_text import Retrieval as Retrieval
    from graphbench.benchmarks.long_text import Text as Text
    from graphbench.benchmarks.lrgb import COCOSP as COCOSP
    from graphbench.benchmarks.lrgb import PascalVOCSP as PascalVOCSP
    from graphbench.benchmarks.lrgb_molecules import PCQMContact as PCQMContact
    from graphbench.benchmarks.lrgb_molecules import PeptidesFunc as PeptidesFunc
    from graphbench.benchmarks.lrgb_molecules import PeptidesStruct as PeptidesStruct
    from graphbench.benchmarks.modelnet import ModelNet40 as ModelNet40
    from graphbench.benchmarks.molecules import Molecules as Molecules
    from graphbench.benchmarks.nci import NCI as NCI
    from graphbench.benchmarks.ogb_molecules import MolHIV as MolHIV
    from graphbench.benchmarks.ogb_molecules import MolPCBA as MolPCBA
    from graphbench.benchmarks.own_superpixels import Superpixels as Superpixels
    from graphbench.benchmarks.pathfinder import Pathfinder as Pathfinder
    from graphbench.benchmarks.pcqm import PCQM4M as PCQM4M
    from graphbench.benchmarks.pcqm import PCQM4Mv2 as PCQM4Mv2
    from graphbench.benchmarks.peptides import AMPPeptides as AMPPeptides
    from graphbench.benchmarks.qm9 import QM9 as QM9
    from graphbench.benchmarks.qm9 import QM9Contacts as QM9Contacts
    from graphbench.benchmarks.satellite import SatelliteSuperpixels as SatelliteSuperpixels
    from graphbench.benchmarks.sequential_images import SequentialFashionMNIST as SequentialFashionMNIST
    from graphbench.benchmarks.sequential_images import SequentialImage as SequentialImage
    from graphbench.benchmarks.shapenet import ShapeNetPart as ShapeNetPart
    from graphbench.benchmarks.solids import Solids as Solids
    from graphbench.benchmarks.superpixels import CIFAR10Superpixels as CIFAR10Superpixels
    from graphbench.benchmarks.superpixels import DigitsSuperpixels as DigitsSuperpixels
    from graphbench.benchmarks.superpixels import MNISTSuperpixels as MNISTSuperpixels
    from graphbench.benchmarks.zinc import ZINC as ZINC

_HOME = {
    "AMPPeptides": "peptides",
    "CIFAR10Superpixels": "superpixels",
    "CLUSTER": "block_models",
    "COCOSP": "lrgb",
    "CSL": "circulant",
    "CYCLES": "cycles",
    "DigitsSuperpixels": "superpixels",
    "ElectricFlow": "electric_flow",
    "GraphBenchmark": "base",
    "ListOps": "listops",
    "MNISTSuperpixels": "superpixels",
    "ModelNet40": "modelnet",
    "MolHIV": "ogb_molecules",
    "MolPCBA": "ogb_molecules",
    "Molecules": "molecules",
    "NCI": "nci",
    "PATTERN": "block_models",
    "PCQM4M": "pcqm",
    "PCQM4Mv2": "pcqm",
    "PCQMContact": "lrgb_molecules",
    "PascalVOCSP": "lrgb",
    "Pathfinder": "pathfinder",
    "PeptidesFunc": "lrgb_molecules",
    "PeptidesStruct": "lrgb_molecules",
    "QM9": "qm9",
    "QM9Contacts": "qm9",
    "Retrieval": "long_text",
    "SatelliteSuperpixels": "satellite",
    "SequentialFashionMNIST": "sequential_images",
    "SequentialImage": "sequential_images",
    "ShapeNetPart": "shapenet",
    "Solids": "solids",
    "Superpixels": "own_superpixels",
    "Text": "long_text",
    "ZINC": "zinc",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
