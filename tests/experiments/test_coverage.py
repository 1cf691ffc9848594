"""The table of measured coverages: means and deviations over splits, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripts import load_script

SCRIPT = Path(__file__).parents[2] / "experiments" / "coverage.py"


def test_shares_of_splits_are_averaged():
    script = load_script(SCRIPT)
    splits = [[script.Measured(("distance", "spread"), 0.9, whole, 1.0, 0.5, 2.0)] for whole in (0.8, 0.9)]
    heading, row = script.table(splits).splitlines()
    shares = ["85.0", "+-", "7.1", "100.0", "+-", "0.0", "50.0", "+-", "0.0"]
    assert row.split() == ["distance", "+", "spread", "90.0", *shares, "2.000"]
    assert script.table(splits[:1]).splitlines()[1].split()[3:5] == ["90.0", "80.0"]
    assert heading.split()[:2] == ["by", "stated"]


@pytest.mark.slow
def test_a_split_is_trained_and_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("graphbench.inference.distance_bins._MIN_ROWS", 4)
    script, rng = load_script(SCRIPT), np.random.default_rng(0)
    smiles = [ring + chain for ring in ("C1CC1", "C1CCC1", "c1ccccc1", "C1CCNCC1", "c1ccncc1") for chain in
              ("", "C", "CC", "CCC", "CO", "CCO", "N", "CN", "CCN", "F", "CF", "O")]  # fmt: skip
    lines = [f"{text},{len(text) + rng.normal():.3f}" for text in smiles]
    (tmp_path / "mine.csv").write_text("smiles,y\n" + "\n".join(lines) + "\n")
    small = ["hidden_dim", "32", "num_layers", "1", "num_heads", "2"]
    options = [word if number % 2 else f"--model.architecture.init_args.{word}" for number, word in enumerate(small)]
    words = [str(tmp_path / "mine.csv"), "--target", "y", "--split", "random", "--split-seeds", "0", "--seeds", "0",
             "1", "--stated", "0.7", "--output", str(tmp_path / "runs"), "--", *options, "--trainer.max_epochs", "1",
             "--data.root", str(tmp_path / "data")]  # fmt: skip
    assert script.main(words) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "70.0" in line]
    assert [row[0] for row in rows[:4]] == ["one", "distance", "spread", "distance"]
    for row in rows:
        shares = [float(cell) for cell in row[-4:-1]]
        assert all(0 <= share <= 100 for share in shares)
        assert float(row[-1]) > 0
