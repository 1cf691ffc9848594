"""Peptides as sequences: files, labels, likeness, splits."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from rdkit import Chem

from graphbench.benchmarks.molecules.peptide_sequences import (
    grouped_split,
    likeness_groups,
    merge_labels,
    read_sequences,
    sequence_smiles,
)
from graphbench.errors import BadInput, CorruptData

FRACTIONS = {"train": 0.7, "val": 0.15, "test": 0.15}


def random_sequences(count, seed=0):
    """Sequences, of which many are copies of another with a few changes."""
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


@pytest.mark.parametrize(("sequence", "formula"), [("G", "C2H5NO2"), ("AK", "C9H19N3O3"), ("WFY", "C29H30N4O5")])
def test_molecules_have_the_formula_of_the_peptide(sequence, formula):
    molecule = Chem.MolFromSmiles(sequence_smiles(sequence))
    assert Chem.rdMolDescriptors.CalcMolFormula(molecule) == formula
    assert Chem.MolToSequence(Chem.MolFromSequence(sequence)) == sequence


@pytest.mark.parametrize("sequence", ["", "ABC", "acd"])
def test_other_letters_are_told(sequence):
    with pytest.raises(BadInput, match="20 amino acids"):
        sequence_smiles(sequence)
