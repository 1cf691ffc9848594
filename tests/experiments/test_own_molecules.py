"""The configuration that README recommends for one's own molecules does not lose to the tool's own ridge."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]
MEASURED = ROOT.parent / "shared" / "data" / "aqsol" / "thousand.csv"


@pytest.mark.slow
@pytest.mark.skipif(not MEASURED.is_file(), reason="needs ../shared/data/aqsol")
def test_the_recommended_configuration_is_ahead_of_ridge_on_solubilities(tmp_path):
    script = load_script(ROOT / "experiments" / "own_molecules.py")
    found = [script.score(MEASURED, "logS", f"split_{n}", tmp_path / str(n), []) for n in range(3)]
    for part in (0, 1):  # validation and test
        assert fmean(one.model[part] for one in found) < fmean(one.ridge[part] for one in found)


def test_the_table_has_a_line_for_each_split_and_their_means():
    script = load_script(ROOT / "experiments" / "own_molecules.py")
    scores = [script.Scores("a", (1.0, 2.0), (3.0, 4.0), 7), script.Scores("b", (2.0, 4.0), (5.0, 6.0), 9)]
    *_, last = script.table(scores).splitlines()
    assert last.split() == ["mean", "1.500", "4.000", "3.000", "5.000"]
