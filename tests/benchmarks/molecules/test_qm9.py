"""QM9 from small files in both layouts, against PyG's reader, and contacts against a loop over pairs."""

from importlib.util import find_spec

import networkx as nx
import numpy as np
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import AllChem
from torch_geometric.datasets import QM9 as PyGQM9

from graphbench.benchmarks.molecules import qm9
from graphbench.benchmarks.molecules.chemistry.vocabulary import QM9_ATOM_TYPES
from graphbench.benchmarks.molecules.qm9 import QM9, QM9Contacts
from graphbench.benchmarks.molecules.qm9_sources import HARTREE, QM9_TARGETS
from graphbench.errors import BadInput, CorruptData, MissingData

SMILES = ["C", "N", "O", "CC#N", "OCCCCCO", "c1ccoc1", "CC(=O)N", "NCCCCCF", "C1CC1", "C1CCCCCC1", "C1CCCCCCC1"]
LEFT_OUT = 3  # 1-based number of the molecule that the list names
CSV_COLUMNS = (
    *("A", "B", "C", "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv"),
    *("u0_atom", "u298_atom", "h298_atom", "g298_atom"),
)
#: Hartree of free atoms (Ramakrishnan et al., 2014).
FREE_ATOMS = {"H": -0.500273, "C": -37.846772, "N": -54.583861, "O": -75.064579, "F": -99.71873}
needs_pack = pytest.mark.skipif(find_spec("qm9pack") is None, reason="the optional package qm9pack is not installed")


@pytest.fixture(scope="module")
def molecules():
    found = []
    for smiles in SMILES:
        mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
        assert AllChem.EmbedMolecule(mol, randomSeed=7) == 0
        found.append(mol)
    return found


def values(row):
    return [round(0.1 * row + 0.01 * column + 0.5, 4) for column in range(len(CSV_COLUMNS))]


@pytest.fixture
def raw(tmp_path, molecules):
    """Write `gdb9.sdf`, `gdb9.sdf.csv` and `uncharacterized.txt` as published."""
    folder = tmp_path / "QM9" / "raw"
    folder.mkdir(parents=True)
    blocks = [f"gdb_{n + 1}\n" + Chem.MolToMolBlock(mol).split("\n", 1)[1] for n, mol in enumerate(molecules)]
    (folder / "gdb9.sdf").write_text("".join(f"{block}$$$$\n" for block in blocks))
    rows = [",".join(["mol_id", *CSV_COLUMNS])]
    rows += [",".join([f"gdb_{n + 1}", *map(str, values(n))]) for n in range(len(SMILES))]
    (folder / "gdb9.sdf.csv").write_text("\n".join(rows) + "\n")
    (folder / "uncharacterized.txt").write_text("heading\n" * 9 + f"{LEFT_OUT} O 1 2\n" + "closing line\n")
    return folder


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(qm9, "_SIZES", {"standard": (6, 2, 2), "electric-flow": (8, 1, 1)})


def by_name(benchmark):
    """Return name of a molecule -> its graph as a batch of one."""
    found = {}
    for split in ("train", "val", "test"):
        table = benchmark.tables[split]
        found |= {name: table.batch([row]) for row, name in enumerate(benchmark.ids(split))}
    return found


def test_published_files_are_read_as_pyg_reads_them(tmp_path, raw, small, molecules):
    data = QM9(target=list(QM9_TARGETS), positions=True, root=str(tmp_path))
    data.setup()
    ours, theirs = by_name(data), PyGQM9(str(tmp_path / "QM9"))
    assert ours.keys() == {graph.name for graph in theirs} == {f"gdb_{n}" for n in range(1, 12) if n != LEFT_OUT}
    for graph in theirs:
        batch = ours[graph.name]
        np.testing.assert_allclose(batch.y, graph.y, rtol=1e-5)
        np.testing.assert_allclose(batch.pos, graph.pos, atol=1e-4)
        assert sorted(batch.edge_index.t().tolist()) == sorted(graph.edge_index.t().tolist())
        assert (batch.x[:, 0] + 1).tolist() == graph.z.tolist()


def test_pack_rows_are_the_same_molecules(tmp_path, molecules, monkeypatch):
    """The file has qm9pack's columns; one row lists its atoms in another order than its SMILES."""
    path, lines = tmp_path / "part.csv", ["Index,SMILES,Elements,XYZ_Ang,HOMO_LUMO_gap_au,InternalEnergy_0K_au"]
    for number, (smiles, mol) in enumerate(zip(SMILES, molecules, strict=True)):
        order = list(range(mol.GetNumAtoms()))
        if number == 3:
            order.reverse()
        positions = mol.GetConformer().GetPositions()[order].tolist()
        elements = ",".join(f"'{mol.GetAtomWithIdx(n).GetSymbol()}'" for n in order)
        lines.append(f'{number + 1},{smiles},"[{elements}]","{positions}",0.25,-40.5')
    path.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(qm9, "pack_paths", lambda: [path])
    monkeypatch.setattr(qm9, "_SIZES", {"standard": (7, 2, 2), "electric-flow": (8, 1, 1)})
    data = QM9(target=["gap", "u0_atom"], source="qm9pack", positions=True, root=str(tmp_path))
    data.setup()
    for name, batch in by_name(data).items():
        mol = molecules[int(name.removeprefix("gdb_")) - 1]
        symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
        free = sum(FREE_ATOMS[symbol] for symbol in symbols)
        np.testing.assert_allclose(batch.y[0], [0.25 * HARTREE, (-40.5 - free) * HARTREE], rtol=1e-5)
        ends = [sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())) for bond in mol.GetBonds()]
        assert sorted(sorted(e) for e in batch.edge_index.t().tolist())[::2] == sorted(ends)
        own = torch.tensor(mol.GetConformer().GetPositions())
        for a, b in ends:  # hydrogens of one atom may be swapped, which hardly changes bond lengths
            length, expected = ((place[a] - place[b]).norm() for place in (batch.pos, own))
            assert float(length) == pytest.approx(float(expected), abs=0.05)


def test_constrained_solubility_is_normalised_over_training_molecules(tmp_path, raw, small):
    data = QM9(target="constrained_solubility", hydrogens=False, root=str(tmp_path))
    data.setup()
    assert data.spec.split_sizes == (8, 1, 1)
    train = data.tables["train"].columns["y"]
    assert float(train.mean()) == pytest.approx(0, abs=1e-5)
    assert data.tables["test"].columns["x"].shape[1] == 9
    assert max(int(t.num_nodes.max()) for t in data.tables.values()) <= 9


def named_bonds(batch, numbers):
    """Return (smaller atom, larger atom, type) of every bond; both directions must agree."""
    rows = zip(*batch.edge_index.tolist(), batch.edge_attr[:, 0].tolist(), strict=True)
    bonds = [(numbers[a], numbers[b], kind) for a, b, kind in rows]
    assert sorted(bonds) == sorted((b, a, kind) for a, b, kind in bonds)
    return sorted(bond for bond in bonds if bond[0] < bond[1])


def kekule_bonds(mol):
    """Return the same for a molecule, from RDKit's bond types in the Kekulé form."""
    kekule = Chem.RemoveHs(mol)
    Chem.Kekulize(kekule, clearAromaticFlags=True)
    ends = (
        (*sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx())), int(b.GetBondTypeAsDouble())) for b in kekule.GetBonds()
    )
    return sorted(ends)


def test_types_of_published_files_are_elements_and_kekule_bonds(tmp_path, raw, small, molecules):
    data = QM9(hydrogens=False, features="types", root=str(tmp_path))
    data.setup()
    assert data.spec.node.vocabularies == (15,)
    assert data.spec.edge.vocabularies == (4,)
    for name, batch in by_name(data).items():
        mol = Chem.RemoveHs(molecules[int(name.removeprefix("gdb_")) - 1])
        assert [QM9_ATOM_TYPES[row[0]] for row in batch.x.tolist()] == [atom.GetSymbol() for atom in mol.GetAtoms()]
        bonds = named_bonds(batch, range(batch.num_nodes))
        kinds = {kind: sum(bond[2] == kind for bond in bonds) for kind in (1, 2, 3)}
        expected = {kind: sum(bond[2] == kind for bond in kekule_bonds(mol)) for kind in (1, 2, 3)}
        assert kinds == expected  # double bonds of a ring may alternate the other way
        assert [bond[:2] for bond in bonds] == [bond[:2] for bond in kekule_bonds(mol)]


ZWITTERIONS = ["[NH3+]CCC([O-])=O", "[NH2+]=C1[CH-]C(=O)C=CN1", "CC#N", "O=CC=C"]


@pytest.fixture
def pack(tmp_path, monkeypatch):
    """Return a function that writes molecules in qm9pack's columns and returns options of `QM9`."""

    def write(smiles):
        path = tmp_path / "part.csv"
        rows = [f"{number + 1},{text},\"['C']\"" for number, text in enumerate(smiles)]
        path.write_text("\n".join(["Index,SMILES,Elements", *rows]) + "\n")
        monkeypatch.setattr(qm9, "pack_paths", lambda: [path])
        sizes = (len(smiles) - 2, 1, 1)
        monkeypatch.setattr(qm9, "_SIZES", {"standard": sizes, "electric-flow": sizes})
        target = {"target": "constrained_solubility", "constants": "zinc-full"}  # two molecules have no spread
        return target | {"source": "qm9pack", "hydrogens": False, "root": str(tmp_path)}

    return write


def test_types_of_pack_rows_name_charges(pack):
    data = QM9(features="types", **pack(ZWITTERIONS))
    data.setup()
    found = by_name(data)
    named = {name: [QM9_ATOM_TYPES[row[0]] for row in batch.x.tolist()] for name, batch in found.items()}
    assert named == {
        "gdb_1": ["N H3 +", "C", "C", "C", "O -", "O"],
        "gdb_2": ["N H2 +", "C", "C H1 -", "C", "O", "C", "C", "N"],
        "gdb_3": ["C", "C", "N"],
        "gdb_4": ["O", "C", "C", "C"],
    }
    assert named_bonds(found["gdb_3"], range(3)) == [(0, 1, 1), (1, 2, 3)]
    assert named_bonds(found["gdb_4"], range(4)) == [(0, 1, 2), (1, 2, 1), (2, 3, 2)]


def test_types_change_features_alone(pack):
    options = pack(ZWITTERIONS)
    tables = []
    for features in ("ogb", "types"):
        data = QM9(features=features, **options)
        data.setup()
        tables.append(by_name(data))
    for name, batch in tables[0].items():
        assert torch.equal(batch.y, tables[1][name].y)
        assert torch.equal(batch.edge_index, tables[1][name].edge_index)


def test_molecules_without_a_type_are_named_with_the_way_out(pack):
    with pytest.raises(BadInput, match=r"(?s)none of QM9's 15 types: molecule 2 \('CS': S\).*Use features=ogb"):
        QM9(features="types", **pack([ZWITTERIONS[0], "CS", "CC", "CO"])).setup()


def test_store_keys_name_features_only_where_they_were_chosen():
    ogb, types = (QM9(hydrogens=False, features=features).source_key() for features in ("ogb", "types"))
    assert "features" not in ogb
    assert types == ogb | {"features": "types"}


def test_contacts_are_close_in_space_and_five_bonds_apart(tmp_path, raw, molecules, monkeypatch):
    monkeypatch.setattr(qm9, "contact_split", lambda counts: dict.fromkeys(qm9.SPLITS, np.flatnonzero(counts)))
    data = QM9Contacts(source="pyg", root=str(tmp_path))
    data.setup()
    found = by_name(data)
    for name, mol in ((f"gdb_{n + 1}", mol) for n, mol in enumerate(molecules) if n + 1 != LEFT_OUT):
        net = nx.Graph([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()])
        bonds, place = dict(nx.all_pairs_shortest_path_length(net)), mol.GetConformer().GetPositions()
        expected = {
            (a, b) for a in net for b in net if a < b and bonds[a][b] >= 5 and np.linalg.norm(place[a] - place[b]) < 3.5
        }
        pairs = {tuple(pair) for pair in found[name].contact_index.tolist()} if name in found else set()
        assert pairs == expected
    assert any("contact_index" in batch for batch in found.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "colour"}, "target must be one of mu, alpha"),
        ({"target": ["gap", "gap"]}, "distinct targets"),
        ({"target": ["gap", "constrained_solubility"]}, "must be the only target"),
        ({"constants": "train"}, "constants belongs to target=constrained_solubility"),
        ({"source": "web"}, "source must be one of pyg, qm9pack"),
        ({"split": "random"}, "split must be one of None, standard, electric-flow"),
        ({"features": "zinc"}, "features must be one of ogb, types"),
        ({"features": "types"}, "set hydrogens=false, or use features=ogb"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(BadInput, match=message):
        QM9(**options)


def test_units_stand_in_the_specification():
    spec = QM9(target=["mu", "gap", "cv"]).spec
    assert spec.target_units == ("D", "eV", "cal/(mol K)")
    assert spec.num_targets == 3


def test_damaged_files_are_refused(tmp_path, raw, small):
    sdf = raw / "gdb9.sdf"
    whole = sdf.read_text()
    sdf.write_text(whole[: len(whole) // 2])
    with pytest.raises(CorruptData, match=r"gdb9\.sdf .*(ends inside the record|holds)"):
        QM9(root=str(tmp_path)).setup()
    sdf.write_text(whole)
    (raw / "uncharacterized.txt").write_text("heading\n" * 9 + "99 x\nclosing\n")
    with pytest.raises(CorruptData, match="is not the list of inconsistent molecules"):
        QM9(root=str(tmp_path)).setup()


def test_no_network_says_what_to_fetch(tmp_path, monkeypatch):
    def unreachable(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("graphbench.data.download.open_url", unreachable)
    with pytest.raises(MissingData, match="source=qm9pack"):
        QM9(root=str(tmp_path)).setup()


@needs_pack
@pytest.mark.slow
def test_pack_meets_the_published_sizes(tmp_path):
    data = QM9(source="qm9pack", root=str(tmp_path))
    data.setup()
    nodes = torch.cat([table.num_nodes for table in data.tables.values()]).double()
    assert (len(nodes), int(nodes.max())) == (130_831, 29)
    assert float(nodes.mean()) == pytest.approx(18.03, abs=0.01)
    y = torch.cat([table.columns["y"] for table in data.tables.values()])
    assert (float(y.mean()), float(y.std())) == pytest.approx((6.86, 1.28), abs=0.01)


@needs_pack
@pytest.mark.slow
def test_every_molecule_of_the_pack_has_types(tmp_path):
    data = QM9(source="qm9pack", hydrogens=False, features="types", root=str(tmp_path))
    columns = data.table(rows := data.rows(), data.structures(rows)).columns
    counts = torch.bincount(columns["x"].flatten().long(), minlength=15)
    assert counts.tolist() == [831_828, 182_854, 131_842, 3_036, 411, 245, 139, 123, 78, 75, 74, 19, 0, 0, 0]
    bonds = torch.bincount(columns["edge_attr"].flatten().long(), minlength=4)
    assert bonds.tolist() == [0, 2 * 1_057_256, 2 * 137_973, 2 * 36_645]
