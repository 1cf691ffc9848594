"""LRGB's five data sets, from small files in the layout of the published archives."""

import pickle
import zipfile
from collections import Counter

import numpy as np
import pytest
import torch

from graphbench import registry
from graphbench.benchmarks.lrgb.files import COCO_CATEGORIES, address, members
from graphbench.benchmarks.lrgb.molecules import PCQMContact, PeptidesFunc, PeptidesStruct
from graphbench.benchmarks.lrgb.superpixels import COCOSP, PascalVOCSP
from graphbench.contracts import GraphTable
from graphbench.data import download
from graphbench.errors import CorruptData, MissingData
from graphbench.testing import BenchmarkContract

SIZES = {"train": 5, "val": 2, "test": 3}
OGB_ATOMS, OGB_BONDS = (119, 4, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)


def edges_of(rng, nodes):
    ends = rng.integers(0, nodes, (2, 2 * nodes))
    return torch.from_numpy(np.concatenate((ends, ends[::-1]), 1).copy())


def superpixels(rng, categories):
    """Return one graph as LRGB's script writes it: half-precision nodes, float edges, labels as bytes."""
    nodes = int(rng.integers(1, 30))
    edge_index = edges_of(rng, nodes)
    x = torch.from_numpy(rng.random((nodes, 14))).half()
    edge_attr = torch.from_numpy(rng.random((edge_index.shape[1], 2))).float()
    return x, edge_attr, edge_index, rng.choice(categories, nodes).astype(np.uint8)


def atoms_and_bonds(rng):
    nodes = int(rng.integers(3, 30))
    edge_index = edges_of(rng, nodes)
    x = torch.from_numpy(np.stack([rng.integers(0, size, nodes) for size in OGB_ATOMS], 1))
    bonds = np.stack([rng.integers(0, size, edge_index.shape[1]) for size in OGB_BONDS], 1)
    return x, torch.from_numpy(bonds), edge_index


def peptide(rng, targets):
    return (*atoms_and_bonds(rng), targets(rng))


def contacts(rng):
    """Return one molecule with pairs in both directions and two negative pairs of label 0."""
    x, edge_attr, edge_index = atoms_and_bonds(rng)
    pairs = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 2]])
    return x, edge_attr, edge_index, pairs, torch.tensor([1, 1, 0, 0], dtype=torch.int32)


MAKERS = {
    PascalVOCSP: lambda rng: superpixels(rng, range(21)),
    COCOSP: lambda rng: superpixels(rng, COCO_CATEGORIES),
    PCQMContact: contacts,
    PeptidesFunc: lambda rng: peptide(rng, lambda r: torch.from_numpy(r.integers(0, 2, (1, 10))).float()),
    PeptidesStruct: lambda rng: peptide(rng, lambda r: torch.from_numpy(r.standard_normal((1, 11))).float()),
}


def graphs_of(cls):
    rng = np.random.default_rng(0)
    return {split: [MAKERS[cls](rng) for _ in range(size)] for split, size in SIZES.items()}


def write(cls, root):
    """Write the three files of a data set below `root`, where PyG puts them, and return the graphs."""
    graphs = graphs_of(cls)
    raw = root / "LRGB" / cls.published_name / "raw"
    raw.mkdir(parents=True)
    for split, member in members(cls.published_name).items():
        file = raw / member.rpartition("/")[2]
        if file.suffix == ".pickle":
            file.write_bytes(pickle.dumps(graphs[split]))
        else:
            torch.save(graphs[split], file)
    return graphs


def small(cls):
    """Return the class under its own name, with the split sizes of the files written here."""
    spec = cls.spec.__class__(**{**cls.spec.__dict__, "split_sizes": tuple(SIZES.values())})
    return type(cls.__name__, (cls,), {"spec": spec})


def opened(cls, root):
    benchmark = small(cls)(root=str(root), batch_size=2, bucketing=False)
    benchmark.prepare_data()
    benchmark.setup()
    return benchmark


class _Contract(BenchmarkContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        self.root = tmp_path
        write(self.cls, tmp_path)

    def make_benchmark(self):
        return small(self.cls)(root=str(self.root), batch_size=2)

    def test_listed_specification_is_the_real_one(self):
        assert registry.benchmarks()[self.cls.__name__].spec == self.cls.spec


class TestPascalVOCSP(_Contract):
    cls = PascalVOCSP


class TestCOCOSP(_Contract):
    cls = COCOSP


class TestPCQMContact(_Contract):
    cls = PCQMContact


class TestPeptidesFunc(_Contract):
    cls = PeptidesFunc


class TestPeptidesStruct(_Contract):
    cls = PeptidesStruct


@pytest.mark.parametrize("cls", MAKERS)
def test_graphs_are_those_of_the_files(cls, tmp_path):
    graphs = write(cls, tmp_path)
    benchmark = opened(cls, tmp_path)
    categorical = cls not in (PascalVOCSP, COCOSP)
    for split, expected in graphs.items():
        table = benchmark.tables[split]
        assert len(table) == len(expected)
        for number, graph in enumerate(expected):
            found = table.batch([number])
            assert torch.equal(found["x" if categorical else "x_dense"], graph[0] if categorical else graph[0].float())
            assert torch.equal(found["edge_attr" if categorical else "edge_dense"], graph[1])
            assert torch.equal(found.edge_index, graph[2])


@pytest.mark.parametrize(("cls", "relabel"), [(PascalVOCSP, int), (COCOSP, COCO_CATEGORIES.index)])
def test_labels_become_classes(cls, relabel, tmp_path):
    graphs = write(cls, tmp_path)["train"]
    y = opened(cls, tmp_path).tables["train"].columns["y"]
    assert y[:, 0].tolist() == [relabel(int(label)) for graph in graphs for label in graph[3]]


def test_categories_of_coco_are_numbered_as_in_pyg():
    from torch_geometric.datasets import LRGBDataset

    assert LRGBDataset.label_remap_coco(None) == {label: number for number, label in enumerate(COCO_CATEGORIES)}


@pytest.mark.parametrize("cls", [PeptidesFunc, PeptidesStruct])
def test_targets_are_those_of_the_files(cls, tmp_path):
    graphs = write(cls, tmp_path)
    tables = opened(cls, tmp_path).tables
    for split, expected in graphs.items():
        assert torch.equal(tables[split].columns["y"].float(), torch.cat([graph[3] for graph in expected]))


def test_contacts_are_the_pairs_of_label_one(tmp_path):
    write(PCQMContact, tmp_path)
    table: GraphTable = opened(PCQMContact, tmp_path).tables["train"]
    batch = table.batch([1, 3])
    shift = int(batch.ptr[1])
    assert batch.contact_index.tolist() == [[0, 2], [2, 0], [shift, shift + 2], [shift + 2, shift]]
    assert batch.contact_ptr.tolist() == [0, 2, 4]


def test_published_sizes_add_up():
    totals = Counter({cls.__name__: sum(cls.spec.split_sizes) for cls in MAKERS})
    assert totals == {
        "PascalVOCSP": 11_355,
        "COCOSP": 123_286,
        "PCQMContact": 529_434,
        "PeptidesFunc": 15_535,
        "PeptidesStruct": 15_535,
    }


@pytest.mark.parametrize("cls", MAKERS)
def test_archive_put_there_by_hand_needs_no_network(cls, tmp_path, monkeypatch):
    write(cls, tmp_path)
    folder = tmp_path / "LRGB" / cls.published_name
    archive = folder / "raw" / address(cls.published_name).rpartition("/")[2].partition("?")[0]
    with zipfile.ZipFile(archive, "w") as packed:
        for member in members(cls.published_name).values():
            file = folder / "raw" / member.rpartition("/")[2]
            packed.write(file, member)
            file.unlink()
    monkeypatch.setattr(download, "open_url", lambda *_, **__: pytest.fail("asked the network"))
    assert len(opened(cls, tmp_path).tables["test"]) == SIZES["test"]


def test_without_a_network_says_what_to_fetch(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(download, "open_url", refuse)
    with pytest.raises(MissingData) as told:
        PeptidesFunc(root=str(tmp_path)).prepare_data()
    for part in ("peptidesfunc.zip", address("peptides-func"), "train.pt, val.pt, test.pt", "no route", "AMPPeptides"):
        assert part in str(told.value)


def _broken(cls, root, change):
    """Write a data set whose first training graph is changed."""
    graphs = write(cls, root)["train"]
    graphs[0] = change(graphs[0])
    member = members(cls.published_name)["train"].rpartition("/")[2]
    file = root / "LRGB" / cls.published_name / "raw" / member
    if file.suffix == ".pickle":
        file.write_bytes(pickle.dumps(graphs))
    else:
        torch.save(graphs, file)


@pytest.mark.parametrize(
    ("cls", "change", "message"),
    [
        (COCOSP, lambda g: (*g[:3], np.full(len(g[0]), 12, dtype=np.uint8)), "label 12 is not a class"),
        (PascalVOCSP, lambda g: (*g[:3], np.full(len(g[0]), 255, dtype=np.uint8)), "labels reach from"),
        (PascalVOCSP, lambda g: (*g[:3], g[3][:-1]), r"graph 0 of these has \d+ nodes and \d+ labels"),
        (PascalVOCSP, lambda g: (*g[:3], g[3] + 0.5), "not all numbers of labels are whole"),
        (PascalVOCSP, lambda g: (g[0], g[1], g[2] + 0.5, g[3]), "not all numbers of edge_index are whole"),
        (PeptidesFunc, lambda g: (*g[:3], g[3] * torch.nan), "lacks a target"),
        (PCQMContact, lambda g: (*g[:4], g[4] + 1), "label other than 0 and 1"),
        (PascalVOCSP, lambda g: (g[0], g[1], g[2] + 500, g[3]), "nodes that do not exist"),
        (PeptidesFunc, lambda g: (g[0] + 200, *g[1:]), "vocabularies"),
        (PeptidesStruct, lambda g: g[:2], "are not what this set holds"),
        (PCQMContact, lambda g: (*g[:3], g[3] + 100, g[4]), "atoms that do not exist"),
    ],
)
def test_graphs_that_cannot_be_are_told(cls, change, message, tmp_path):
    _broken(cls, tmp_path, change)
    with pytest.raises(CorruptData, match=message):
        opened(cls, tmp_path)


@pytest.mark.parametrize(("cls", "place"), [*((cls, 1) for cls in MAKERS), (PascalVOCSP, 3), (COCOSP, 3)])
def test_rows_that_one_graph_lacks_and_another_has_too_many_are_told(cls, place, tmp_path):
    graphs = write(cls, tmp_path)["train"]
    first, second = list(graphs[0]), list(graphs[1])
    moved = np.concatenate if isinstance(first[place], np.ndarray) else torch.cat
    second[place] = moved([first[place][-1:], second[place]])
    first[place] = first[place][:-1]
    file = tmp_path / "LRGB" / cls.published_name / "raw" / members(cls.published_name)["train"].rpartition("/")[2]
    changed = [tuple(first), tuple(second), *graphs[2:]]
    file.write_bytes(pickle.dumps(changed)) if file.suffix == ".pickle" else torch.save(changed, file)
    with pytest.raises(CorruptData, match=r"graph 0 of these has \d+ (edges|nodes) and"):
        opened(cls, tmp_path)


class _Evil:
    def __reduce__(self):
        return print, ("this must never be printed",)


@pytest.mark.parametrize("cls", [PascalVOCSP, PeptidesFunc])
def test_nothing_in_a_file_runs(cls, tmp_path, capsys):
    _broken(cls, tmp_path, lambda graph: (*graph, _Evil()))
    with pytest.raises(CorruptData):
        opened(cls, tmp_path)
    assert "never" not in capsys.readouterr().out


def test_truncated_file_of_tensors_is_told(tmp_path):
    write(PeptidesFunc, tmp_path)
    file = tmp_path / "LRGB" / "peptides-func" / "raw" / "val.pt"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(CorruptData, match=r"val\.pt cannot be read"):
        opened(PeptidesFunc, tmp_path)


@pytest.mark.parametrize("cls", [PascalVOCSP, COCOSP])
def test_standardised_columns_are_those_of_the_file_less_a_mean_over_a_deviation(cls, tmp_path):
    graphs = write(cls, tmp_path)
    made = {flag: small(cls)(root=str(tmp_path), batch_size=2, standardised=flag) for flag in (False, True)}
    assert made[False].source_key() != made[True].source_key()
    for benchmark in made.values():
        benchmark.prepare_data()
        benchmark.setup()
    for column, place, moments in (("x_dense", 0, cls.node_moments), ("edge_dense", 1, cls.edge_moments)):
        raw = np.concatenate([graph[place].numpy().astype(np.float64) for graph in graphs["val"]])
        expected = (raw - np.array(moments[0])) / np.array(moments[1])
        found = made[True].tables["val"].columns[column]
        np.testing.assert_allclose(found.double().numpy(), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(made[False].tables["val"].columns[column].double().numpy(), raw, rtol=1e-6)
