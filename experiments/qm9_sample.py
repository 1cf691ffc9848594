"""Write 2,000 molecules of QM9 with their HOMO-LUMO gap [eV] and dipole [D], in three random splits, as a CSV file.

    pip install 'graphbench-lightning[qm9]'
    python experiments/qm9_sample.py qm9_2000.csv

For `experiments/starting_weights.py`: quantum-chemical quantities, which no graph descriptor contains. A split is a
column: 1,600 molecules for training, 200 for validation and 200 for testing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rdkit import Chem, RDLogger

from graphbench.benchmarks.molecules.qm9_sources import HARTREE, PACK_FILES
from graphbench.data.package_files import package_file

COLUMNS = {"SMILES": "smiles", "Dipole_debye": "dipole", "HOMO_LUMO_gap_au": "gap"}
SIZE, HELD_OUT, SPARE = 2_000, 200, 300


def sample(frame: pd.DataFrame) -> pd.DataFrame:
    """Draw molecules of two or more atoms with a fixed seed, and assign them to sets in three splits."""
    drawn = frame.iloc[np.random.RandomState(0).permutation(len(frame))[: SIZE + SPARE]].rename(columns=COLUMNS)
    molecules = [Chem.MolFromSmiles(str(smiles)) for smiles in drawn["smiles"]]
    drawn = drawn[[one is not None and one.GetNumAtoms() > 1 for one in molecules]]
    drawn = drawn.drop_duplicates("smiles").iloc[:SIZE].reset_index(drop=True)
    drawn["gap"] = drawn["gap"] * HARTREE
    for number in range(3):
        order = np.random.RandomState(100 + number).permutation(len(drawn))
        split = np.full(len(drawn), "train", dtype=object)
        split[order[:HELD_OUT]], split[order[HELD_OUT : 2 * HELD_OUT]] = "val", "test"
        drawn[f"split_{number}"] = split
    return drawn


if __name__ == "__main__":
    RDLogger.DisableLog("rdApp.*")
    files = [package_file("qm9pack", f"data/{name}", extra="qm9") for name in PACK_FILES]
    sample(pd.concat([pd.read_csv(path, usecols=list(COLUMNS)) for path in files])).to_csv(
        Path(sys.argv[1]), index=False
    )
