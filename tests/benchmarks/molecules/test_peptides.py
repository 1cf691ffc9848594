"""Peptides from modlamp's files: labels, sizes, and a split without leakage."""

from importlib.util import find_spec
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from rdkit import Chem

from graphbench import registry
from graphbench.benchmarks.molecules import peptides
from graphbench.benchmarks.molecules.peptides import (
    AMPPeptides,
    grouped_split,
    likeness_groups,
    merge_labels,
    read_sequences,
    sequence_smiles,
)
from graphbench.errors import BadInput, CorruptData, MissingExtra
from graphbench.testing import BenchmarkContract

NAN = float("nan")
needs_modlamp = pytest.mark.skipif(find_spec("modlamp") is None, reason="the optional package modlamp is not there")


def sequences(count, seed, length=8):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), length)) for _ in range(count)]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write files in modlamp's format: 20 sequences of each class, some of them in two files or twice."""
    amp, other, acp, membrane, chance = (sequences(20, seed) for seed in range(5))
    both = amp[:2]  # antimicrobial and anticancer
    files = {
        "AMPvsUniProt.csv": [(s, 1) for s in [*amp, amp[3]]] + [(s, 0) for s in [*other, amp[4]]],  # amp[4] is both
        "AMPvsTMset.csv": [(s, 0) for s in membrane] + [(s, 1) for s in amp[:5]],
        "ACP_CancPPD_vs_TM.csv": [(s, 1) for s in acp + both] + [(s, 0) for s in membrane],
        "ACP_CancPPD_vs_Random.csv": [(s, 1) for s in acp] + [(s, 0) for s in [*chance, "A" * 31]],
    }
    for name, rows in files.items():
        lines = [f"{len(rows)},1,zero,one", *(f"{sequence}, {label}" for sequence, label in rows)]
        (tmp_path / name).write_text("\n".join(lines))
    monkeypatch.setattr(peptides, "_packaged", lambda name: tmp_path / name)
    return {"amp": amp, "other": other, "acp": acp, "membrane": membrane, "chance": chance}


def small(**options):
    """Return the benchmark with another `max_length`, so that the split sizes of the real files do not apply."""
    return AMPPeptides(max_length=options.pop("max_length", 29), batch_size=16, **options)


class TestAMPPeptides(BenchmarkContract):
    @pytest.fixture(autouse=True)
    def _files(self, package, tmp_path):
        self.root = tmp_path

    def make_benchmark(self):
        return small(root=str(self.root))

    def test_listed_specification_is_the_real_one(self):
        assert registry.benchmarks()["AMPPeptides"].spec == AMPPeptides.spec


class TestAntimicrobialPeptides(TestAMPPeptides):
    def make_benchmark(self):
        return small(labels="antimicrobial", root=str(self.root))


def test_each_source_tells_its_labels(package, tmp_path):
    found = small(root=str(tmp_path)).peptides()
    labels = dict(zip(found.sequences, found.labels, strict=True))
    assert found.contradictory == (package["amp"][4],)
    assert len(labels) == 20 - 1 + 4 * 20
    expected = {
        package["amp"][0]: [1, 1, 0],
        package["amp"][2]: [1, NAN, 0],
        package["amp"][9]: [1, NAN, NAN],
        package["other"][0]: [0, NAN, NAN],
        package["acp"][0]: [NAN, 1, 0],
        package["membrane"][0]: [0, 0, 1],
        package["chance"][0]: [NAN, 0, NAN],
    }
    for sequence, values in expected.items():
        np.testing.assert_array_equal(labels[sequence], values)


def test_two_classes_come_from_one_file(package, tmp_path):
    found = small(labels="antimicrobial", root=str(tmp_path)).peptides()
    assert set(found.sequences) == set(package["amp"] + package["other"]) - {package["amp"][4]}
    assert found.labels.sum() == 19


def test_longer_peptides_are_left_out(package, tmp_path):
    with_all = small(max_length=None, root=str(tmp_path)).peptides().sequences
    assert set(with_all) - set(small(root=str(tmp_path)).peptides().sequences) == {"A" * 31}


def test_molecules_belong_to_their_sequences(package, tmp_path):
    benchmark = small(root=str(tmp_path))
    benchmark.prepare_data()
    benchmark.setup()
    labels = dict(zip(*((found := benchmark.peptides()).sequences, found.labels), strict=True))
    seen = []
    for split, table in benchmark.tables.items():
        names = benchmark.ids(split)
        expected = torch.from_numpy(np.stack([labels[name] for name in names])).float()
        torch.testing.assert_close(table.columns["y"], expected, equal_nan=True)
        sulphurs = [int((table.batch([row]).x[:, 0] == 15).sum()) for row in range(len(table))]
        assert sulphurs == [name.count("C") + name.count("M") for name in names]
        seen += names
    assert sorted(seen) == sorted(labels)


def test_wrong_options_are_told():
    with pytest.raises(BadInput, match="labels"):
        AMPPeptides(labels="toxic")
    with pytest.raises(BadInput, match="max_length"):
        AMPPeptides(max_length=0)


@needs_modlamp
def test_real_files_have_the_counts_that_were_published():
    every = AMPPeptides(max_length=None).peptides()
    assert (len(every.sequences), len(every.contradictory)) == (5_996, 22)
    binary = AMPPeptides("antimicrobial", max_length=None).peptides()
    assert (len(binary.sequences), len(binary.contradictory)) == (4_620, 22)


@needs_modlamp
def test_real_split_has_the_sizes_of_the_specification_and_no_leak(monkeypatch):
    benchmark = AMPPeptides()
    found = benchmark.peptides()
    groups = likeness_groups(found.sequences)
    split = peptides.grouped_split(groups, found.labels, {"train": 0.7, "val": 0.15, "test": 0.15}, 0)
    assert tuple(len(rows) for rows in split.values()) == AMPPeptides.spec.split_sizes
    parts = [{found.sequences[row][i : i + 12] for row in rows for i in range(19)} for rows in split.values()]
    whole = [{text for text in part if len(text) == 12} for part in parts]
    shared = [len(a & b) / len(b) for a, b in combinations(whole, 2)]
    assert max(shared) < 0.02  # windows of twelve residues that two splits share


def test_absent_package_is_told(tmp_path, monkeypatch):
    def absent(package, *_, extra, purpose):
        raise MissingExtra(package, extra, purpose)

    monkeypatch.setattr(peptides, "package_file", absent)
    with pytest.raises(MissingExtra, match=r"AMPPeptides needs .*modlamp.*graphbench-lightning\[peptides\]"):
        AMPPeptides(root=str(tmp_path)).prepare_data()


FRACTIONS = {"train": 0.7, "val": 0.15, "test": 0.15}


def random_sequences(count, seed=0):
    """Return sequences, many of which are copies of another with a few changes."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    found = []
    while len(found) < count:
        new = rng.choice(letters, rng.integers(3, 25))
        if found and rng.random() < 0.5:
            new = np.array(list(found[rng.integers(len(found))]))
            places = rng.random(len(new)) < 0.15
            new[places] = rng.choice(letters, places.sum())
        found.append("".join(new))
    return found


def test_rows_are_read_with_and_without_blanks(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("3,1,UniProt,AMP\nACD,1\nKLM, 0\r\nWY,1\n")
    assert read_sequences(file) == [("ACD", 1), ("KLM", 0), ("WY", 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "announces no sequences"),
        ("2,1,A,B\nACD,1\n", "announces 2 sequences and holds 1"),
        ("1,1,A,B\nACB,1\n", "20 amino acids"),
        ("1,1,A,B\nACD,2\n", "0 or 1"),
        ("1,1,A,B\nACD\n", "0 or 1"),
    ],
)
def test_damaged_files_of_sequences_are_told(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(CorruptData, match=message):
        read_sequences(tmp_path / "a.csv")


def test_labels_of_several_sources_meet():
    found = merge_labels([("B", 0, 1), ("A", 0, 0), ("A", 1, 1), ("B", 0, 1), ("C", 1, 1), ("C", 1, 0), ("C", 0, 1)], 2)
    assert found.sequences == ("A", "B")
    np.testing.assert_array_equal(found.labels, [[0, 1], [1, np.nan]])
    assert found.contradictory == ("C",)


@pytest.mark.parametrize(("word", "share"), [(4, 0.3), (3, 0.5), (2, 1.0)])
def test_groups_are_chains_of_like_sequences(word, share):
    sequences = random_sequences(120)
    words = [{s[i : i + word] for i in range(max(len(s) - word + 1, 1))} for s in sequences]
    links = nx.Graph()
    links.add_nodes_from(range(len(sequences)))
    for a, b in combinations(range(len(sequences)), 2):
        if len(words[a] & words[b]) >= share * min(len(words[a]), len(words[b])):
            links.add_edge(a, b)
    expected = {frozenset(part) for part in nx.connected_components(links)}
    groups = likeness_groups(sequences, word, share)
    assert {frozenset(np.flatnonzero(groups == g).tolist()) for g in np.unique(groups)} == expected
    assert 1 < len(expected) < len(sequences)


def test_split_keeps_groups_whole_and_labels_balanced():
    sequences = random_sequences(600)
    rng = np.random.default_rng(1)
    labels = (rng.random((600, 2)) < [0.5, 0.2]).astype(float)
    labels[rng.random(600) < 0.3, 1] = np.nan
    groups = likeness_groups(sequences)
    split = grouped_split(groups, labels, FRACTIONS, seed=0)
    rows = np.concatenate(list(split.values()))
    assert sorted(rows.tolist()) == list(range(600))
    owners = [set(groups[part].tolist()) for part in split.values()]
    assert not any(a & b for a, b in combinations(owners, 2))
    for part, fraction in zip(split.values(), FRACTIONS.values(), strict=True):
        assert len(part) / 600 == pytest.approx(fraction, abs=0.03)
        for label in range(2):
            share = np.nansum(labels[part, label]) / np.nansum(labels[:, label])
            assert share == pytest.approx(fraction, abs=0.06)
    again = grouped_split(groups, labels, FRACTIONS, seed=0)
    assert all(np.array_equal(split[name], again[name]) for name in FRACTIONS)


def test_splits_that_cannot_be_filled_are_told():
    with pytest.raises(BadInput, match="cannot fill the split"):
        grouped_split(np.zeros(5, dtype=int), np.ones((5, 1)), FRACTIONS, 0)
    with pytest.raises(BadInput, match="add up to 1"):
        grouped_split(np.arange(5), np.ones((5, 1)), {"train": 0.7, "test": 0.7}, 0)


@pytest.mark.parametrize(("word", "share"), [(0, 0.3), (4, 0.0), (4, 1.5)])
def test_likeness_out_of_range_is_told(word, share):
    with pytest.raises(
        BadInput, match="word must be an integer of at least 1" if word < 1 else "share must be above 0"
    ):
        likeness_groups(["ACD"], word, share)


@pytest.mark.parametrize(
    ("sequence", "formula", "smiles"),
    [
        ("G", "C2H5NO2", "NCC(=O)O"),
        ("AK", "C9H19N3O3", "C[C@H](N)C(=O)N[C@@H](CCCCN)C(=O)O"),
        ("WFY", "C29H30N4O5", "N[C@@H](Cc1c[nH]c2ccccc12)C(=O)N[C@@H](Cc1ccccc1)C(=O)N[C@@H](Cc1ccc(O)cc1)C(=O)O"),
    ],
)
def test_molecules_are_chains_of_l_amino_acids_from_the_amine_to_the_acid(sequence, formula, smiles):
    molecule = Chem.MolFromSmiles(sequence_smiles(sequence))
    assert Chem.rdMolDescriptors.CalcMolFormula(molecule) == formula
    assert Chem.MolToSmiles(molecule) == Chem.CanonSmiles(smiles)


@pytest.mark.parametrize("sequence", ["", "ABC", "acd"])
def test_other_letters_are_told(sequence):
    with pytest.raises(BadInput, match="20 amino acids"):
        sequence_smiles(sequence)
