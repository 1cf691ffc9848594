"""The scaffold split: whole groups, largest first, nothing lost."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from graphbench.benchmarks.molecules.chemistry.scaffolds import SPLITS, murcko_scaffold, scaffold_split
from graphbench.data.splits import check_fractions
from graphbench.errors import BadInput


@pytest.mark.parametrize(
    ("smiles", "scaffold"),
    [("CCO", ""), ("Cc1ccccc1", "c1ccccc1"), ("C[C@H]1CCCCC1", "C1CCCCC1"), ("c1ccccc1CCC1CCO1", "c1ccc(CCC2CCO2)cc1")],
)
def test_scaffold_is_the_ring_systems(smiles, scaffold):
    assert murcko_scaffold(Chem.MolFromSmiles(smiles)) == scaffold
    assert scaffold == MurckoScaffold.MurckoScaffoldSmiles(smiles)


def test_groups_go_by_size_then_by_first_row():
    scaffolds = ["b", "a", "a", "c", "a", "b", "d", "a", "a", "a"]  # a: 6, b: 2, c: 1, d: 1
    split = {name: rows.tolist() for name, rows in scaffold_split(scaffolds, (0.6, 0.2, 0.2)).items()}
    assert split == {"train": [1, 2, 4, 7, 8, 9], "val": [0, 5], "test": [3, 6]}
    apart = scaffold_split("abcdefghij", (0.7, 0.1, 0.2))  # 0.7 + 0.1 is a little less than 0.8
    assert [len(rows) for rows in apart.values()] == [7, 1, 2]


@given(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=40, max_size=200))
def test_every_row_once_and_no_scaffold_on_two_sides(scaffolds):
    counts = Counter(scaffolds)
    try:
        split = scaffold_split(scaffolds, (0.6, 0.2, 0.2))
    except BadInput:
        assert counts.most_common(1)[0][1] > 0.1 * len(scaffolds)
        return
    assert sorted(np.concatenate([split[name] for name in SPLITS]).tolist()) == list(range(len(scaffolds)))
    groups = [{scaffolds[row] for row in rows.tolist()} for rows in split.values()]
    assert sum(map(len, groups)) == len(counts)
    assert len(split["train"]) <= 0.6 * len(scaffolds)


def test_a_seed_shuffles_the_small_scaffolds_and_keeps_the_large_in_training():
    scaffolds = [letter for letter, count in zip("abcdefghijklmnopqrstuvwxyz", [30] + [2] * 25, strict=True)
                 for _ in range(count)]  # fmt: skip
    splits = [scaffold_split(scaffolds, (0.6, 0.2, 0.2), seed) for seed in range(5)]
    for split in splits:
        groups = [{scaffolds[row] for row in rows.tolist()} for rows in split.values()]
        assert sum(map(len, groups)) == 26, "no scaffold is in two splits"
        assert [len(rows) for rows in split.values()] == [48, 16, 16]
        assert "a" in groups[0]
    assert len({tuple(split["test"].tolist()) for split in splits}) == 5
    again = scaffold_split(scaffolds, (0.6, 0.2, 0.2), 3)
    assert all(np.array_equal(again[name], splits[3][name]) for name in SPLITS)


def test_one_scaffold_cannot_be_split():
    with pytest.raises(BadInput, match=r"leaves .* empty .* 'c1ccccc1' has 30 molecules"):
        scaffold_split(["c1ccccc1"] * 30)


@pytest.mark.parametrize("fractions", [(0.8, 0.1), (0.0, 0.5, 0.5), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1)])
def test_bad_fractions_are_refused(fractions):
    with pytest.raises(BadInput, match="that add up to 1"):
        check_fractions(fractions)
