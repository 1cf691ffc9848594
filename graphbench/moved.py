"""Modules that moved: old dotted paths, as configurations of 0.1.0 hold them, import the new modules."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

#: Old module -> where its content is now. A name from here is imported with a DeprecationWarning.
MOVED = {
    "graphbench.benchmarks.block_model_drawing": "graphbench.benchmarks.block_models.sampling",
    "graphbench.benchmarks.circulant": "graphbench.benchmarks.block_models.csl",
    "graphbench.benchmarks.cycles": "graphbench.benchmarks.block_models.cycles",
    "graphbench.benchmarks.electric_flow_drawing": "graphbench.benchmarks.electric_flow.sampling",
    "graphbench.benchmarks.electric_flow_loader": "graphbench.benchmarks.electric_flow.loader",
    "graphbench.benchmarks.listops": "graphbench.benchmarks.sequences.listops",
    "graphbench.benchmarks.long_text": "graphbench.benchmarks.sequences.long_text",
    "graphbench.benchmarks.lrgb_archive": "graphbench.benchmarks.lrgb.archive",
    "graphbench.benchmarks.lrgb_files": "graphbench.benchmarks.lrgb.files",
    "graphbench.benchmarks.lrgb_molecules": "graphbench.benchmarks.lrgb.molecules",
    "graphbench.benchmarks.lrgb_pickle": "graphbench.benchmarks.lrgb.pickles",
    "graphbench.benchmarks.modelnet": "graphbench.benchmarks.points.modelnet",
    "graphbench.benchmarks.nci": "graphbench.benchmarks.molecules.nci",
    "graphbench.benchmarks.ogb_molecules": "graphbench.benchmarks.molecules.ogb",
    "graphbench.benchmarks.own_superpixels": "graphbench.benchmarks.superpixels.own_images",
    "graphbench.benchmarks.pathfinder": "graphbench.benchmarks.sequences.pathfinder",
    "graphbench.benchmarks.pcqm": "graphbench.benchmarks.molecules.pcqm",
    "graphbench.benchmarks.peptides": "graphbench.benchmarks.molecules.peptides",
    "graphbench.benchmarks.point_cloud_base": "graphbench.benchmarks.points.base",
    "graphbench.benchmarks.qm9": "graphbench.benchmarks.molecules.qm9",
    "graphbench.benchmarks.resistor_graphs": "graphbench.benchmarks.electric_flow.resistor_graphs",
    "graphbench.benchmarks.satellite": "graphbench.benchmarks.superpixels.satellite",
    "graphbench.benchmarks.sequence_base": "graphbench.benchmarks.sequences.base",
    "graphbench.benchmarks.sequential_images": "graphbench.benchmarks.sequences.sequential_images",
    "graphbench.benchmarks.shapenet": "graphbench.benchmarks.points.shapenet",
    "graphbench.benchmarks.solids": "graphbench.benchmarks.points.solids",
    "graphbench.benchmarks.superpixel_base": "graphbench.benchmarks.superpixels.base",
    "graphbench.benchmarks.zinc": "graphbench.benchmarks.molecules.zinc",
    "graphbench.callbacks.attention_figures": "graphbench.figures.attention",
    "graphbench.callbacks.graph_drawing": "graphbench.figures.graphs",
    "graphbench.data.pool": "graphbench.data.worker_pool",
    "graphbench.tasks.heads": "graphbench.nn.heads",
    "graphbench.images": "graphbench.benchmarks.superpixels",
    "graphbench.images.boundary": "graphbench.benchmarks.superpixels.boundary",
    "graphbench.images.cifar": "graphbench.benchmarks.superpixels.cifar",
    "graphbench.images.folders": "graphbench.benchmarks.superpixels.folders",
    "graphbench.images.idx": "graphbench.benchmarks.superpixels.idx",
    "graphbench.images.labelled": "graphbench.benchmarks.superpixels.labelled",
    "graphbench.images.superpixels": "graphbench.benchmarks.superpixels.slic",
    "graphbench.images.tables": "graphbench.benchmarks.superpixels.tables",
    "graphbench.cells": "graphbench.files.cells",
    "graphbench.checkpoints": "graphbench.runs.checkpoints",
    "graphbench.configurations": "graphbench.registry.configurations",
    "graphbench.describe": "graphbench.registry.describe",
    "graphbench.distributed": "graphbench.training.distributed",
    "graphbench.expected": "graphbench.registry.expected",
    "graphbench.hub": "graphbench.runs.hub",
    "graphbench.hyperparameters": "graphbench.training.hyperparameters",
    "graphbench.module": "graphbench.training.module",
    "graphbench.optim": "graphbench.training.optim",
    "graphbench.parts": "graphbench.training.parts",
    "graphbench.safe_yaml": "graphbench.files.safe_yaml",
    "graphbench.trust": "graphbench.runs.trust",
    "graphbench.weights": "graphbench.runs.weights",
    "graphbench.molecules": "graphbench.benchmarks.molecules.chemistry",
    "graphbench.molecules.features": "graphbench.benchmarks.molecules.chemistry.features",
    "graphbench.molecules.files": "graphbench.benchmarks.molecules.chemistry.files",
    "graphbench.molecules.nci": "graphbench.benchmarks.molecules.nci_file",
    "graphbench.molecules.ogb_files": "graphbench.benchmarks.molecules.ogb_files",
    "graphbench.molecules.packages": "graphbench.data.package_files",
    "graphbench.molecules.peptides": "graphbench.benchmarks.molecules.peptide_sequences",
    "graphbench.molecules.problems": "graphbench.benchmarks.molecules.chemistry.problems",
    "graphbench.molecules.properties": "graphbench.benchmarks.molecules.chemistry.properties",
    "graphbench.molecules.qm9_sources": "graphbench.benchmarks.molecules.qm9_sources",
    "graphbench.molecules.qm9_structures": "graphbench.benchmarks.molecules.qm9_structures",
    "graphbench.molecules.qm9_targets": "graphbench.benchmarks.molecules.qm9_targets",
    "graphbench.molecules.reading": "graphbench.benchmarks.molecules.chemistry.reading",
    "graphbench.molecules.rivals": "graphbench.benchmarks.molecules.chemistry.baselines",
    "graphbench.molecules.scaffolds": "graphbench.benchmarks.molecules.chemistry.scaffolds",
    "graphbench.molecules.tables": "graphbench.benchmarks.molecules.chemistry.tables",
    "graphbench.molecules.targets": "graphbench.benchmarks.molecules.chemistry.targets",
    "graphbench.molecules.user_file": "graphbench.benchmarks.molecules.chemistry.user_file",
    "graphbench.molecules.vocabulary": "graphbench.benchmarks.molecules.chemistry.vocabulary",
    "graphbench.molecules.zinc_published": "graphbench.benchmarks.molecules.zinc_published",
    "graphbench.molecules.zinc_smiles": "graphbench.benchmarks.molecules.zinc_smiles",
    "graphbench.points": "graphbench.benchmarks.points",
    "graphbench.points.files": "graphbench.benchmarks.points.files",
    "graphbench.points.meshes": "graphbench.benchmarks.points.meshes",
    "graphbench.points.off": "graphbench.benchmarks.points.off",
    "graphbench.points.rotations": "graphbench.benchmarks.points.rotations",
    "graphbench.points.shapenet": "graphbench.benchmarks.points.shapenet_files",
    "graphbench.points.solids": "graphbench.benchmarks.points.parametric",
    "graphbench.points.surfaces": "graphbench.benchmarks.points.surfaces",
    "graphbench.sequences": "graphbench.benchmarks.sequences",
    "graphbench.sequences.aan": "graphbench.benchmarks.sequences.aan",
    "graphbench.sequences.listops": "graphbench.benchmarks.sequences.expressions",
    "graphbench.sequences.pathfinder": "graphbench.benchmarks.sequences.dashed_paths",
    "graphbench.sequences.ragged": "graphbench.benchmarks.sequences.ragged",
    "graphbench.sequences.reviews": "graphbench.benchmarks.sequences.reviews",
}


class MovedModules:
    """Answers an import of an old path with the module that took its place, not with a second copy of it.

    An old package is a stand-in that has what the new one has: Python makes a submodule an attribute of its package,
    and the new package may have another submodule of that name (`graphbench.points.shapenet` is `shapenet_files` now).

    A finder and loader without their base classes: importing `importlib.abc` takes a quarter of `import graphbench`.
    """

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A specification for paths in `MOVED`; others are left to Python."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module under its new path."""
        warnings.warn(f"{spec.name} moved to {MOVED[spec.name]}.", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(MOVED[spec.name])
        if hasattr(module, "__path__"):
            return _stand_in(spec.name, module)
        self._specs[module.__name__] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs twice; Python's import has overwritten the module's own specification, which comes back."""
        if module.__name__ in self._specs:
            module.__spec__ = self._specs[module.__name__]


def _stand_in(name: str, package: ModuleType) -> ModuleType:
    """A package under its old name, with the attributes of the new one but for submodules that moved elsewhere."""

    def attribute(wanted: str) -> object:
        old = f"{name}.{wanted}"
        return importlib.import_module(old) if old in MOVED else getattr(package, wanted)

    found = ModuleType(name, package.__doc__)
    found.__dict__.update(__path__=package.__path__, __getattr__=attribute)
    return found


def install() -> None:
    """Answer imports of old paths from now on; called by `import graphbench`."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        # First, since Python's own finder would look for `graphbench.molecules.features` in the new package's folder.
        sys.meta_path.insert(0, MovedModules())
