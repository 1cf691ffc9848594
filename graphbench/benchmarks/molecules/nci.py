"""NCI: 4,712 small molecules that come with RDKit, and a target that is computed."""

from __future__ import annotations

from typing import Any

from rdkit import rdBase

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.nci_file import nci_file, read_nci
from graphbench.contracts import GraphTable
from graphbench.data.package_files import file_sha256
from graphbench.data.progress import track


class NCI(MoleculeBenchmark):
    """4,712 molecules of the NCI open database, penalised logP, scaffold split; nothing to download.

    RDKit's wheel ships the first 5,000 molecules of the database. Kept are those of one fragment and 6 to 38 atoms.
    The target is ZINC's, with the constants of ZINC-full and the smallest rings; OGB features. Whole Murcko scaffolds
    go to one split, so that the test asks for new ring systems. The mean of the training targets has a test MAE of
    1.92, ridge regression on Morgan counts one of 0.88, or 0.97 when folded into 4,096 columns
    (`graphbench.benchmarks.molecules.chemistry.baselines`).

    Args:
        options: see `GraphBenchmark`.
    """

    spec = specs.NCI

    def source_key(self) -> dict[str, Any]:
        """Checksum of the shipped file and version of RDKit."""
        return {"file": file_sha256(nci_file()), "rdkit": rdBase.rdkitVersion}

    def read(self) -> dict[str, GraphTable]:
        """Parse the file, compute the target and split."""
        return read_nci(track)
