"""NCI: 4,712 small molecules shipped with RDKit's wheel, with a computed target."""

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
#: NSC numbers of molecules with an atom that has more bonds than RDKit 2026.9 allows. Older versions read some of them;
#: without them the split is the same from RDKit 2023.9 to 2026.9.
_HYPERVALENT = frozenset({"2110", "2917", "3249", "3402", "4563", "4650", "4651", "4844"})


class NCI(MoleculeBenchmark):
    """4,712 molecules of the NCI open database, penalised logP, scaffold split; nothing to download.

    RDKit's wheel ships the first 5,000 molecules of the database. Those with one fragment and 6 to 38 atoms are used.
    The target is that of ZINC, with the constants of ZINC-full and the smallest rings; features are those of OGB. Each
    Murcko scaffold is in one split, so the test set has new ring systems. The mean of the training targets has a test
    MAE of 1.92, ridge regression on Morgan counts one of 0.87 (`graphbench.benchmarks.molecules.chemistry.baselines`).
    """

    spec = specs.NCI

    def source_key(self) -> dict[str, Any]:
        """Return the checksum of the shipped file and the version of RDKit."""
        return {"file": file_sha256(nci_file()), "rdkit": rdBase.rdkitVersion}

    def read(self) -> dict[str, GraphTable]:
        """Parse the file, compute the target and split."""
        return read_nci(track)


def nci_file() -> Path:
    """Return the path of the SMILES file in the installed RDKit; some RDKit packages lack it."""
    path = Path(RDConfig.RDDataDir, "NCI", "first_5K.smi")
    if not path.is_file():
        raise MissingData(
            f"RDKit's NCI molecules are missing: {path}. The wheels on PyPI have them: pip install --force-reinstall "
            "rdkit. Or copy Data/NCI/first_5K.smi of RDKit's source to that place."
        )
    return path


def read_nci(track: Track | None = None) -> dict[str, GraphTable]:
    """Read train, validation and test tables: OGB features, penalised logP, texts `smiles` and `id` (NSC number).

    Some molecules are listed twice; they have equal scaffolds and so are in the same split.
    """
    lines = [line.split() for line in nci_file().read_text(encoding="utf-8").splitlines()]
    lines = [cells for cells in lines if cells[1] not in _HYPERVALENT]
    arrays = read_molecules(
        [cells[0] for cells in lines], Recipe("ogb_cip", "smallest_rings", scaffold=True), track=track
    )
    fits = (arrays.num_fragments == 1) & (arrays.num_nodes >= MIN_ATOMS) & (arrays.num_nodes <= MAX_ATOMS)
    chosen = np.flatnonzero(fits)
    smiles, names = zip(*(lines[row] for row in arrays.rows[chosen]), strict=True)
    table = with_targets(subset(to_table(arrays), chosen), combine_terms(arrays.terms[chosen]))
    table = with_text(table, {"smiles": smiles, "id": names})
    split = scaffold_split([arrays.scaffolds[place] for place in chosen.tolist()])
    return {name: subset(table, rows) for name, rows in split.items()}
