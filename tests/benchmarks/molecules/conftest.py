"""A user's file of molecules."""

from __future__ import annotations

import pytest
from ring_molecules import SMILES


@pytest.fixture
def file(tmp_path):
    """Write thirty molecules with a number, a class, two labels and a fold."""
    rows = ["smiles,value,kind,hot,cold,fold,name"]
    for number, smiles in enumerate(SMILES):
        hot, cold = ("", 1) if number % 4 == 0 else (number % 2, "")
        fold = "train" if number < 20 else "Validation" if number < 25 else "test"
        rows.append(f"{smiles},{number / 3},{number % 3},{hot},{cold},{fold},m{number}")
    path = tmp_path / "own.csv"
    path.write_text("\n".join(rows))
    return path
