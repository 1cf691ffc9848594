"""The sample of QM9 that starting weights are tried on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scripts import load_script

SCRIPT = load_script(Path(__file__).parents[2] / "experiments" / "qm9_sample.py")


@pytest.fixture
def frame():
    """Return ethers, methane three times, and a line that is not a molecule."""
    smiles = ["C", "C", "C", "no molecule", *(f"{'C' * (n % 40 + 1)}O{'C' * (n // 40 + 1)}" for n in range(2_600))]
    return pd.DataFrame({"SMILES": smiles, "HOMO_LUMO_gap_au": np.arange(len(smiles)) / 1000, "Dipole_debye": 1.0})


def test_each_molecule_is_there_once_in_electron_volts(frame):
    drawn = SCRIPT.sample(frame)
    assert len(drawn) == 2_000
    assert drawn["smiles"].is_unique
    assert not {"C", "no molecule"} & set(drawn["smiles"])
    hartree = frame.set_index("SMILES")["HOMO_LUMO_gap_au"]
    expected = [27.211386246 * hartree[smiles] for smiles in drawn["smiles"]]
    assert drawn["gap"].to_numpy() == pytest.approx(expected)


def test_splits_have_their_sizes_and_differ(frame):
    drawn = SCRIPT.sample(frame)
    for number in range(3):
        counts = drawn[f"split_{number}"].value_counts()
        assert counts.to_dict() == {"train": 1_600, "val": 200, "test": 200}
    assert (drawn["split_0"] != drawn["split_1"]).any()
    pd.testing.assert_frame_equal(drawn, SCRIPT.sample(frame))
