"""The comparison with and without starting weights: drawn parts of a file, and the table."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]
SCRIPT = load_script(ROOT / "experiments" / "starting_weights.py")
MEASURED = ROOT.parent / "shared" / "data" / "aqsol" / "thousand.csv"


@pytest.mark.slow
@pytest.mark.skipif(not MEASURED.is_file(), reason="needs ../shared/data/aqsol")
def test_the_configuration_molecules_is_ahead_of_ridge_on_solubilities(tmp_path):
    splits = [SCRIPT.score(MEASURED, "logS", f"split_{n}", tmp_path / str(n), []) for n in range(3)]
    for place in (1, 2):  # validation and test
        model, ridge = (fmean(one[name][place] for one in splits) for name in ("model", "ridge on Morgan counts"))
        assert model < ridge


def test_training_molecules_are_drawn_and_the_others_stay(tmp_path):
    split = ["train"] * 30 + ["val"] * 5 + ["test"] * 5
    frame = pd.DataFrame({"smiles": [f"C{n}" for n in range(40)], "y": range(40), "s": split})
    frame.to_csv(tmp_path / "all.csv", index=False)
    small, large = (pd.read_csv(SCRIPT.draw(tmp_path / "all.csv", "s", size, tmp_path / "parts")) for size in (8, 20))
    for drawn, size in ((small, 8), (large, 20)):
        assert drawn["s"].value_counts().to_dict() == {"train": size, "val": 5, "test": 5}
        assert drawn.merge(frame).shape == drawn.shape  # rows of the file
    assert set(small["smiles"]) <= set(large["smiles"])


def test_scaffolds_are_in_one_part_each_and_unreadable_molecules_in_none(tmp_path):
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "c1ccoc1", "C1CCNC1", "C1CC1", "c1ccsc1", "C1CCOC1"]
    smiles = [chain + ring for ring in rings for chain in ("C", "CC", "O", "N", "CO")]
    pd.DataFrame({"smiles": [*smiles, "C1CC", "x"], "y": range(42)}).to_csv(tmp_path / "all.csv", index=False)
    drawn = pd.read_csv(SCRIPT.draw(tmp_path / "all.csv", "scaffold_1", 1000, tmp_path / "parts"))
    assert list(drawn["y"]) == list(range(40))
    assert set(drawn["scaffold_1"]) == {"train", "val", "test"}
    assert (drawn.groupby(drawn["y"] // 5)["scaffold_1"].nunique() == 1).all()


def test_the_table_has_means_over_splits():
    rows = [
        {"size": 80, "split": split, "model": "whole", "epoch": 3, "val": val, "test": 2 * val, "seconds": 10}
        for split, val in (("a", 1.0), ("b", 2.0))
    ]
    assert SCRIPT.table(rows).splitlines()[-1].split() == ["80", "whole", "2", "1.500", "3.000", "10.0"]
