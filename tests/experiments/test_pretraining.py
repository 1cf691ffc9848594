"""Labels for pre-training, and the exported file of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scripts import load_script

from graphbench.runs.weights import read_weights

FOLDER = Path(__file__).parents[2] / "experiments" / "pretraining"
LABELS, EXPORT = (load_script(FOLDER / f"{name}.py") for name in ("labels", "export"))


def test_labels_have_the_scale_of_the_training_rows_and_an_end():
    values = np.array([[1.0], [3.0], [5.0], [1000.0]], dtype=np.float32)
    train = np.array([True, True, True, False])
    scaled = LABELS.standardise(values, train)
    assert scaled[:3, 0] == pytest.approx([-(1.5**0.5), 0, 1.5**0.5])  # the deviation of 1, 3, 5 is the root of 8/3
    assert scaled[3, 0] == 6


def test_undefined_and_nearly_constant_columns_are_left_out():
    rows = 2000
    varies, constant, rare, often, undefined = (np.zeros(rows, np.float32) for _ in range(5))
    varies[:] = np.arange(rows)
    rare[:1], often[:2] = 1, 1
    undefined[:] = varies
    undefined[7] = np.nan
    assert LABELS.choose_columns(np.stack([varies, constant, rare, often, undefined], 1)).tolist() == [0, 3]


def test_parts_are_computed_once(tmp_path, monkeypatch):
    asked = []

    def compute(kind, smiles, workers):
        asked.append(list(smiles))
        return np.array([[len(text)] for text in smiles], dtype=np.float32)

    monkeypatch.setattr(LABELS, "PART", 2)
    monkeypatch.setattr(LABELS, "compute_descriptors", compute)
    smiles = np.array(["C", "CC", "CCC"], dtype=object)
    assert LABELS.compute_parts(tmp_path, smiles, 1).tolist() == [[1], [2], [3]]
    (tmp_path / "raw-000002.npy").unlink()
    assert LABELS.compute_parts(tmp_path, smiles, 1).tolist() == [[1], [2], [3]]
    assert asked == [["C", "CC"], ["CCC"], ["CCC"]]


def test_weights_of_the_architecture_alone_are_written_in_half_precision(tmp_path, monkeypatch):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    state = {"architecture.a": torch.tensor([0.1, -2.0]), "architecture.n": torch.tensor(7), "task.b": torch.ones(1)}
    torch.save({"state_dict": state}, tmp_path / "run" / "checkpoints" / "best.ckpt")
    monkeypatch.setattr("sys.argv", ["export.py", str(tmp_path / "run"), str(tmp_path / "w.safetensors")])
    EXPORT.main()
    written = read_weights(tmp_path / "w.safetensors")
    assert written.keys() == {"architecture.a", "architecture.n"}
    assert torch.equal(written["architecture.a"], torch.tensor([0.1, -2.0], dtype=torch.float16))
    assert written["architecture.n"] == 7
