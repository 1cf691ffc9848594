"""MolHIV and MolPCBA from small files in OGB's layout, and their scores against OGB's evaluator."""

import gzip
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from ogb.graphproppred import Evaluator
from ogb.utils import smiles2graph

from graphbench.benchmarks.molecules.ogb import MolHIV, MolPCBA
from graphbench.errors import CorruptData
from graphbench.training.tasks.metrics import TaskAUROC, TaskAveragePrecision

SMILES = ["CCO", "c1ccccc1O", "[Na+].[Cl-]", "CN", "O"]
SPLIT = {"train": [4, 0, 2], "valid": [1], "test": [3]}


def write_csv(path, rows):
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def write_raw(folder, labels):
    """Write the files of OGB's archive in one folder: each bond once, in the order of OGB's reader."""
    folder.mkdir(parents=True, exist_ok=True)
    graphs = [smiles2graph(smiles) for smiles in SMILES]
    write_csv(folder / "num-node-list.csv.gz", [[g["num_nodes"]] for g in graphs])
    write_csv(folder / "num-edge-list.csv.gz", [[g["edge_index"].shape[1] // 2] for g in graphs])
    write_csv(folder / "node-feat.csv.gz", np.concatenate([g["node_feat"] for g in graphs]))
    write_csv(folder / "edge.csv.gz", np.concatenate([g["edge_index"].T[::2] for g in graphs]))
    write_csv(folder / "edge-feat.csv.gz", np.concatenate([g["edge_feat"][::2] for g in graphs]))
    write_csv(folder / "graph-label.csv.gz", [["" if np.isnan(v) else v for v in row] for row in labels])
    for name, rows in SPLIT.items():
        write_csv(folder / f"{name}.csv.gz", [[row] for row in rows])
    lines = [["HIV_active", "smiles", "mol_id"], *([0, smiles, f"M{n}"] for n, smiles in enumerate(SMILES))]
    write_csv(folder / "mol.csv.gz", lines)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(MolHIV, "spec", replace(MolHIV.spec, split_sizes=(3, 1, 1)))
    monkeypatch.setattr(MolPCBA, "spec", replace(MolPCBA.spec, split_sizes=(3, 1, 1), num_targets=3))


def test_graphs_labels_and_splits_are_the_published_ones(tmp_path, small):
    labels = np.array([[0, 1, np.nan], [1, 0, 0], [np.nan, np.nan, 1], [1, 1, 1], [0, 0, np.nan]])
    write_raw(tmp_path / "MolPCBA", labels)
    data = MolPCBA(root=str(tmp_path))
    data.setup()
    assert data.ids("train") == ["M4", "M0", "M2"]
    assert data.smiles("test") == ["CN"]
    for split, file in (("train", "train"), ("val", "valid"), ("test", "test")):
        batch = data.tables[split].batch(range(len(SPLIT[file])))
        np.testing.assert_array_equal(batch.y, labels[SPLIT[file]].astype(np.float32))
        for row, number in enumerate(SPLIT[file]):
            expected = smiles2graph(SMILES[number])
            first, last = int(batch.ptr[row]), int(batch.ptr[row + 1])
            np.testing.assert_array_equal(batch.x[first:last], expected["node_feat"])
            own = (batch.edge_index[0] >= first) & (batch.edge_index[0] < last)
            np.testing.assert_array_equal(batch.edge_index[:, own] - first, expected["edge_index"])
            np.testing.assert_array_equal(batch.edge_attr[own], expected["edge_feat"])


def test_archive_put_there_by_hand_is_used(tmp_path, small):
    write_raw(tmp_path / "raw", np.array([[0], [1], [0], [1], [1]]))
    folder = tmp_path / "MolHIV"
    folder.mkdir()
    with zipfile.ZipFile(folder / "hiv.zip", "w") as archive:
        for file in (tmp_path / "raw").iterdir():
            name = file.name.removesuffix(".csv.gz")
            inside = "split/scaffold" if name in SPLIT else "mapping" if name == "mol" else "raw"
            archive.write(file, f"hiv/{inside}/{file.name}")
    data = MolHIV(root=str(tmp_path))
    data.setup()
    assert data.tables["train"].columns["y"].flatten().tolist() == [1, 0, 0]


def test_names_of_molecules_are_texts(tmp_path, small):
    write_raw(tmp_path / "MolHIV", np.array([[0], [1], [0], [1], [1]]))
    names = ["007", "NA", "null", "1e3", "5"]
    lines = [
        ["HIV_active", "smiles", "mol_id"],
        *([0, smiles, name] for smiles, name in zip(SMILES, names, strict=True)),
    ]
    write_csv(tmp_path / "MolHIV" / "mol.csv.gz", lines)
    data = MolHIV(root=str(tmp_path))
    data.setup()
    assert [data.ids(split) for split in ("train", "val", "test")] == [["5", "007", "null"], ["NA"], ["1e3"]]


def test_files_that_do_not_fit_each_other_are_refused(tmp_path, small):
    write_raw(tmp_path / "MolHIV", np.array([[0], [1], [0], [1], [1]]))
    write_csv(tmp_path / "MolHIV" / "num-edge-list.csv.gz", [[1]] * 5)
    with pytest.raises(CorruptData, match="rows of atoms, bonds"):
        MolHIV(root=str(tmp_path)).setup()
    write_raw(tmp_path / "MolHIV", np.array([[0], [1], [0], [1], [1]]))
    write_csv(tmp_path / "MolHIV" / "num-node-list.csv.gz", [[11], [-1], [2], [2], [1]])  # the same sum
    with pytest.raises(CorruptData, match="fewer than 0 atoms"):
        MolHIV(root=str(tmp_path)).setup()
    write_raw(tmp_path / "MolHIV", np.array([[0], [1], [0], [1], [1]]))
    write_csv(tmp_path / "MolHIV" / "valid.csv.gz", [[0]])
    with pytest.raises(CorruptData, match="do not hold every molecule once"):
        MolHIV(root=str(tmp_path)).setup()
    for name, rows in (("node-feat", [[""] + [0] * 8] * 13), ("edge", [[0, ""]] * 10)):
        write_raw(tmp_path / "MolHIV", np.array([[0], [1], [0], [1], [1]]))
        write_csv(tmp_path / "MolHIV" / f"{name}.csv.gz", rows)
        with pytest.raises(CorruptData, match=rf"{name}\.csv\.gz should hold . columns of u?int"):
            MolHIV(root=str(tmp_path)).setup()
    write_csv(tmp_path / "MolHIV" / "edge.csv.gz", [["a", "b"]])
    with pytest.raises(CorruptData, match=r"edge\.csv\.gz cannot be read"):
        MolHIV(root=str(tmp_path)).setup()


@pytest.mark.parametrize(
    ("name", "metric", "tasks"), [("ogbg-molhiv", TaskAUROC, 1), ("ogbg-molpcba", TaskAveragePrecision, 128)]
)
def test_scores_are_those_of_ogbs_evaluator(name, metric, tasks):
    generator = torch.Generator().manual_seed(0)
    truth = (torch.rand(60, tasks, generator=generator) < 0.3).float()
    if tasks > 1:
        truth[torch.rand(60, tasks, generator=generator) < 0.6] = torch.nan
        truth[:, 5] = torch.nan  # a task without labels
        truth[:, 6] = 0.0
    scores = torch.randn(60, tasks, generator=generator)
    ours = metric()
    for part in range(0, 60, 17):
        ours.update(scores[part : part + 17], truth[part : part + 17])
    theirs = Evaluator(name).eval({"y_true": truth.numpy(), "y_pred": scores.numpy()})
    assert float(ours.compute()) == pytest.approx(next(iter(theirs.values())), abs=1e-6)
