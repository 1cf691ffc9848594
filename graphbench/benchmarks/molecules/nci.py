"""NCI: 4,712 small molecules that come with RDKit, and a target that is computed."""

from __future__ import annotations

from typing import Any

from rdkit import rdBase

from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.vocabulary import (
    OGB_ATOMS,
    OGB_BONDS,
)
from graphbench.benchmarks.molecules.nci_file import nci_file, read_nci
from graphbench.contracts import BenchmarkSpec, GraphTable
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

    spec = BenchmarkSpec(
        name="NCI",
        task="graph-regression",
        node=OGB_ATOMS,
        edge=OGB_BONDS,
        metric="MAE",
        higher_is_better=False,
        loss="L1",
        target_names=("penalized_logp",),
        target_units=("",),
        split_sizes=(3769, 471, 472),
        mean_nodes=15.7,
        max_nodes=38,
        mean_edges=32.3,
        offline=True,
        disk_mb=1.8,
        licence="BSD-3-Clause, as shipped with RDKit",
        citation="Voigt et al., J. Chem. Inf. Comput. Sci. 41, 702 (2001); target: Jin et al., ICML 2018",
        source="Data/NCI/first_5K.smi of the installed RDKit",
        molecules=True,
        extra={"atom_vocabulary": "ogb_cip", "target": "zinc-full constants, smallest_rings"},
    )

    def source_key(self) -> dict[str, Any]:
        """Checksum of the shipped file and version of RDKit."""
        return {"file": file_sha256(nci_file()), "rdkit": rdBase.rdkitVersion}

    def read(self) -> dict[str, GraphTable]:
        """Parse the file, compute the target and split."""
        return read_nci(track)
