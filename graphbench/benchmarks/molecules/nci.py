"""NCI: 4,712 small molecules that RDKit's wheel ships, with a computed target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rdkit import RDConfig, rdBase

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.properties import combine_terms
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, Track, read_molecules
from graphbench.benchmarks.molecules.chemistry.scaffolds import scaffold_split
from graphbench.benchmarks.molecules.chemistry.tables import subset, to_table, with_targets, with_text
from graphbench.contracts import GraphTable
from graphbench.data.package_files import file_sha256
from graphbench.data.progress import track
from graphbench.errors import MissingData

MIN_ATOMS, MAX_ATOMS = 6, 38  # ZINC's range
#: NSC numbers of molecules with more bonds at an atom than RDKit 2026.9 allows. Older versions read some of them;
#: without them the split is the same from RDKit 2023.9 to 2026.9.
_HYPERVALENT = frozenset({"2110", "2917", "3249", "3402", "4563", "4650", "4651", "4844"})


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


def nci_file() -> Path:
    """The SMILES file inside the installed RDKit.

    Raises:
        MissingData: this RDKit was packaged without its data folder.
    """
    path = Path(RDConfig.RDDataDir, "NCI", "first_5K.smi")
    if not path.is_file():
        raise MissingData(
            f"RDKit's NCI molecules are missing: {path}. The wheels on PyPI hold them: pip install --force-reinstall "
            "rdkit. Or copy Data/NCI/first_5K.smi of RDKit's source to that place."
        )
    return path


def read_nci(track: Track | None = None) -> dict[str, GraphTable]:
    """Train, validation and test tables: OGB features, penalised logP, texts `smiles` and `id` (NSC number).

    Kept are molecules that RDKit reads, of one fragment and 6 to 38 atoms: 4,712 of 4,999. Some are written down
    twice; equal molecules have equal scaffolds, so they never sit on both sides of the split.
    """
    lines = [line.split() for line in nci_file().read_text(encoding="utf-8").splitlines()]
    lines = [cells for cells in lines if cells[1] not in _HYPERVALENT]
    arrays = read_molecules(
        [cells[0] for cells in lines], Recipe("ogb_cip", "smallest_rings", scaffold=True), track=track
    )
    fits = (arrays.num_fragments == 1) & (arrays.num_nodes >= MIN_ATOMS) & (arrays.num_nodes <= MAX_ATOMS)
    kept = np.flatnonzero(fits)
    cells = [lines[row] for row in arrays.rows[kept]]
    scaffolds = arrays.scaffold_list()
    table = with_targets(subset(to_table(arrays), kept), combine_terms(arrays.terms[kept]))
    table = with_text(table, {"smiles": [cell[0] for cell in cells], "id": [cell[1] for cell in cells]})
    split = scaffold_split([scaffolds[place] for place in kept])
    return {name: subset(table, rows) for name, rows in split.items()}
