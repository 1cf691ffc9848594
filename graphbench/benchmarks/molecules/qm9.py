"""QM9: 130,831 small molecules with their geometry and quantum-chemical properties."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from rdkit import rdBase

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark, Reader
from graphbench.benchmarks.molecules.chemistry.features import FeatureSet
from graphbench.benchmarks.molecules.chemistry.problems import RowProblem, refuse_problems
from graphbench.benchmarks.molecules.chemistry.properties import combine_terms
from graphbench.benchmarks.molecules.chemistry.tables import subset, to_table, with_targets, with_text
from graphbench.benchmarks.molecules.chemistry.vocabulary import QM9_ATOM_TYPES, ZINC_BOND_TYPES
from graphbench.benchmarks.molecules.qm9_sources import (
    CONSTRAINED_SOLUBILITY,
    PACK_FILES,
    QM9_TARGETS,
    QM9Rows,
    addresses,
    check_physical,
    fetch_published,
    pack_paths,
    read_pack,
    read_published,
)
from graphbench.benchmarks.molecules.qm9_structures import (
    StructureRecipe,
    Structures,
    join_structures,
    read_structures,
    read_texts,
)
from graphbench.contracts import SPLITS, BenchmarkSpec, Column, Features, GraphTable
from graphbench.contracts.table import NODE, pointer
from graphbench.data.splits import permutation
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import BadInput, check_choice

logger = logging.getLogger(__name__)

Source = Literal["pyg", "qm9pack"]
Split = Literal["standard", "electric-flow"]
Constants = Literal["train", "zinc-full"]
FeatureColumns = Literal["ogb", "types"]

#: Maps a split to the numbers of train, validation and test molecules.
_SIZES: dict[Split, tuple[int, int, int]] = {
    "standard": (110_000, 10_000, 10_831),
    "electric-flow": (20_000, 2_000, 100_000),
}
_CHUNK = 512  # molecules per task of a process
_SOURCES: dict[Source, str] = {
    "pyg": "gdb9.sdf and gdb9.sdf.csv, by the addresses in PyG",
    "qm9pack": "files in the package qm9pack",
}


class QM9Source(MoleculeBenchmark):
    """Base of data sets of QM9's molecules: fetches and reads their source, see `QM9`."""

    def __init__(self, source: Source, **options: Any) -> None:
        super().__init__(**options)
        check_choice("source", source, get_args(Source))
        self.source = source

    @property
    @abstractmethod
    def recipe(self) -> StructureRecipe:
        """Return the values to compute for every molecule."""

    def source_key(self) -> dict[str, Any]:
        """Return the addresses or checksums of the files, not needed for a prepared store, and RDKit's version."""
        files = list(addresses()) if self.source == "pyg" else list(PACK_FILES.values())
        return {"source": self.source, "files": files, "rdkit": rdBase.rdkitVersion}

    def rows(self, targets: Sequence[str] = ()) -> QM9Rows:
        """Load all molecules as records, and some physical targets."""
        if self.source == "pyg":
            return read_published(fetch_published(Path(self.root, "QM9")), targets)
        return read_pack(pack_paths(), targets, self.recipe.geometry)

    def structures(self, rows: QM9Rows) -> Structures:
        """Read all molecules on all cores."""
        starts = range(0, len(rows.records), _CHUNK)
        chunks = ((start, rows.records[start : start + _CHUNK]) for start in starts)
        read = partial(read_structures, self.recipe)
        unit = f"chunks of {_CHUNK} molecules"
        parts = map_in_processes(read, chunks, len(starts), f"Reading {self.spec.name}", unit=unit)
        structures = join_structures(list(parts))
        problems = [RowProblem(kind, row + 1, detail) for row, kind, detail in structures.arrays.problems]
        advice = "Fetch the files again, or use another version of RDKit."
        if self.recipe.features != "ogb":
            advice = "Use features=ogb, which has a value for every atom and bond, or source=qm9pack."
        refuse_problems(problems, self.spec.source, len(rows.records), advice, "molecule")
        return structures

    def table(self, rows: QM9Rows, structures: Structures) -> GraphTable:
        """Build graphs of all molecules with names, SMILES and, if in the recipe, positions."""
        table = with_text(to_table(structures.arrays), {"smiles": structures.smiles, "id": rows.names})
        if not self.recipe.positions:
            return table
        return table.with_columns({"pos": torch.from_numpy(structures.positions)}, {"pos": Column(NODE)})


class QM9(QM9Source):
    """Small molecules of up to nine C, N, O and F atoms, with a quantum-chemical property or penalised logP.

    Atoms and bonds have OGB's nine and three columns, or with `features=types` one column each: 15 types of heavy atoms
    and Kekulé bonds, as many as in "Graph Transformers Dream of Electric Flow" (for its list see
    `chemistry.vocabulary.QM9_ATOM_TYPES`). Properties are those of Ramakrishnan et al. (B3LYP/6-31G(2df,p)) without the
    3,054 molecules whose geometry does not match their formula. All energies are in eV, and targets are named as in
    PyG: mu, alpha, homo, lumo, gap, r2, zpve, u0, u298, h298, g298, cv, the atomisation energies u0_atom, u298_atom,
    h298_atom and g298_atom, and rotational_a, _b and _c.

    Sources:

    `pyg`: the raw files that PyG fetches, `gdb9.sdf`, `gdb9.sdf.csv` and `uncharacterized.txt` in `root`/QM9/raw.
    `qm9pack`: the same molecules from the files of the package qm9pack, without a network. Bonds are those of its
    SMILES. Atomisation energies are total energies minus those of free atoms.

    `target=constrained_solubility` is the penalised logP of "Graph Transformers Dream of Electric Flow" (arXiv
    2410.16699), for which only split sizes and loss are published: logP - SA - ring penalty, each minus its mean and
    divided by its standard deviation. `split=standard` has the sizes of SchNet and DimeNet, 110,000 / 10,000 / 10,831;
    `electric-flow` uses 20,000 / 2,000 / 100,000 and drops 8,831. Both cut one permutation by `split_seed`, since sizes
    are published, but rows are not.

    Args:
        target: one or several physical targets, or only `constrained_solubility`.
        source: source of the molecules, see above.
        hydrogens: make hydrogens nodes; otherwise a column has their number (with `features=types`, for charged atoms).
        positions: give every node its coordinates in Angstrom.
        split: `standard` or `electric-flow`; by default the usual one for the target.
        split_seed: seed of the permutation.
        constants: means and deviations of constrained solubility: over the training molecules (default) or those of
            ZINC (`zinc-full`).
        features: `ogb`, or `types`, for heavy atoms only (`hydrogens=False`). All molecules of qm9pack have types; the
            files of `pyg` were not tested, and an error names the molecules without types.
        options: see `GraphBenchmark`.
    """

    spec = specs.QM9

    def __init__(
        self,
        target: str | list[str] = "gap",
        source: Source = "pyg",
        hydrogens: bool = True,
        positions: bool = False,
        split: Split | None = None,
        split_seed: int = 0,
        constants: Constants | None = None,
        features: FeatureColumns = "ogb",
        **options: Any,
    ) -> None:
        super().__init__(source, **options)
        check_choice("split", split, (None, *get_args(Split)))
        check_choice("constants", constants, (None, *get_args(Constants)))
        check_choice("features", features, get_args(FeatureColumns))
        if features == "types" and hydrogens:
            raise BadInput("features=types names only heavy atoms: set hydrogens=false, or use features=ogb.")
        self.targets = (target,) if isinstance(target, str) else tuple(target)
        self.computed = self.targets == (CONSTRAINED_SOLUBILITY,)
        if not self.computed:
            check_physical(self.targets)
            if constants is not None:
                raise BadInput(f"constants belongs to target={CONSTRAINED_SOLUBILITY}, not to {self.targets[0]}.")
        self.constants: Constants = constants or "train"
        self.split: Split = split or ("electric-flow" if self.computed else "standard")
        self.hydrogens, self.positions, self.split_seed = hydrogens, positions, split_seed
        self.features: FeatureColumns = features
        self.spec = self._fill_spec()

    def _fill_spec(self) -> BenchmarkSpec:
        units = ("",) if self.computed else tuple(QM9_TARGETS[name].unit for name in self.targets)
        spec = replace(
            type(self).spec,
            num_targets=len(self.targets),
            target_names=self.targets,
            target_units=units,
            split_sizes=_SIZES[self.split],
            coordinates=3 if self.positions else 0,
            offline=self.source == "qm9pack",
            source=_SOURCES[self.source],
        )
        if not self.hydrogens:
            spec = replace(spec, mean_nodes=8.8, max_nodes=9, mean_edges=18.8)
        if self.features == "types":
            node = Features(vocabularies=(len(QM9_ATOM_TYPES),), names=("atom_type",))
            edge = Features(vocabularies=(len(ZINC_BOND_TYPES),), names=("bond_type",))
            spec = replace(spec, node=node, edge=edge, extra={**spec.extra, "atom_vocabulary": "qm9"})
        if self.computed:
            spec = replace(spec, extra={**spec.extra, "labels": f"recomputed, {self.constants} constants"})
        return spec

    @property
    def recipe(self) -> StructureRecipe:
        """Return the values to compute for every molecule."""
        features: FeatureSet = "qm9" if self.features == "types" else "ogb"
        return StructureRecipe(self.hydrogens, self.positions, terms=self.computed, features=features)

    def input_reader(self) -> Reader:
        """Return a reader of SMILES like those of qm9pack; raise `BadInput` if training graphs came from structures."""
        if self.positions:
            raise BadInput("QM9 cannot read new inputs with positions=true: a SMILES has no coordinates.")
        if self.source == "pyg":
            raise BadInput(
                "QM9 cannot read new inputs with source=pyg: the geometry of its graphs marks every stereo centre, "
                "unlike a SMILES. Train with source=qm9pack."
            )
        return partial(read_texts, self.recipe)

    def source_key(self) -> dict[str, Any]:
        """Return the source, and every option that changes graphs, targets or the split."""
        key = super().source_key() | {"hydrogens": self.hydrogens, "positions": self.positions}
        if self.features != "ogb":  # keeps the key of earlier stores
            key["features"] = self.features
        labels = self.constants if self.computed else "physical"
        return key | {"targets": [list(self.targets), labels], "split": [self.split, self.split_seed]}

    def read(self) -> Mapping[str, GraphTable]:
        """Load the molecules, build the graphs, and split."""
        pairs = zip(self.targets, self.spec.target_units, strict=True)
        targets = ", ".join(f"{name} in {unit}" if unit else name for name, unit in pairs)
        logger.info("QM9: %s, %s", self.spec.source, targets)
        rows = self.rows(() if self.computed else self.targets)
        structures = self.structures(rows)
        split = self.rows_of_splits(len(rows.records))
        y = rows.targets
        if self.computed:
            terms = structures.arrays.terms
            train, is_zinc = terms[split["train"]], self.constants == "zinc-full"
            y = combine_terms(terms) if is_zinc else ((terms - train.mean(0)) / train.std(0)).sum(axis=1)
        table = with_targets(self.table(rows, structures), y)
        return {name: subset(table, split[name]) for name in SPLITS}

    def rows_of_splits(self, num_molecules: int) -> dict[str, np.ndarray]:
        """Cut one permutation of all molecules into the rows of each split."""
        sizes = self.spec.split_sizes
        assert sizes is not None
        if num_molecules < sum(sizes):
            raise BadInput(f"QM9 has {num_molecules:,} molecules, but split={self.split} takes {sum(sizes):,}.")
        order = permutation(num_molecules, self.split_seed)
        ends = np.cumsum(sizes)
        return dict(zip(SPLITS, np.split(order[: ends[-1]], ends[:-1]), strict=True))


class QM9Contacts(QM9Source):
    """Atoms of QM9's molecules in contact in space although five or more bonds apart: a stand-in for PCQM-Contact.

    PCQM-Contact (`PCQMContact`) has other and larger molecules, so scores are not comparable. The rule is the same: a
    pair of atoms, including hydrogens, is in contact if it is closer than 3.5 Angstrom and at least five bonds apart;
    molecules without a contact are left out. As in PCQM-Contact, the rest is split 90, 5 and 5% into train, validation
    and test, by a permutation with seed 42. Geometries are those of B3LYP/6-31G(2df,p). A batch has each pair once,
    with the smaller number first, as `contact_index [num_pairs, 2]`. Training samples wrong partners; evaluation ranks
    the true one among all atoms of the molecule (`graphbench.training.tasks.link_ranking`). Positions, which imply the
    contacts, are not in the batch.

    Args:
        source: `qm9pack`, without a network, or `pyg`, see `QM9`.
        options: see `GraphBenchmark`.
    """

    spec = specs.QM9_CONTACTS

    def __init__(self, source: Source = "qm9pack", **options: Any) -> None:
        super().__init__(source, **options)
        if source == "pyg":
            self.spec = replace(
                type(self).spec, split_sizes=None, offline=False, source=_SOURCES["pyg"], licence="CC BY 4.0"
            )

    @property
    def recipe(self) -> StructureRecipe:
        """Return the values to compute for every molecule."""
        return StructureRecipe(contacts=True)

    def read(self) -> Mapping[str, GraphTable]:
        """Load the molecules, build the graphs and their contacts, and split."""
        rows = self.rows()
        structures = self.structures(rows)
        table = self.table(rows, structures).with_columns(
            {"contact_index": torch.from_numpy(structures.contacts)},
            {"contact_index": Column("contact", index_of=NODE)},
            {"contact": pointer(torch.from_numpy(structures.num_contacts))},
        )
        split = contact_split(structures.num_contacts)
        return {name: subset(table, split[name]) for name in SPLITS}


def contact_split(num_contacts: np.ndarray) -> dict[str, np.ndarray]:
    """Split the molecules with a contact, by a permutation with seed 42, into 90, 5 and 5%."""
    rows = np.flatnonzero(num_contacts)
    shuffled = rows[permutation(len(rows), 42)]
    held = len(rows) // 20
    return dict(zip(SPLITS, np.split(shuffled, [len(rows) - 2 * held, len(rows) - held]), strict=True))
