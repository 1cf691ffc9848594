from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbench.data.splits import check_split, given_split, index_split, k_fold_split, permutation, random_split
from graphbench.errors import BadInput


def test_permutation_is_the_same_for_ever():
    assert permutation(8, 0).tolist() == np.random.RandomState([0]).permutation(8).tolist()
    assert permutation(8, 3, 1).tolist() == [1, 3, 6, 0, 7, 2, 4, 5]
    assert permutation(8, -1).tolist() == permutation(8, (1 << 32) - 1).tolist()


@pytest.mark.parametrize(
    ("parts", "sizes"),
    [
        ({"train": 0.8, "val": 0.1, "test": 0.1}, (82, 10, 11)),
        (dict.fromkeys(("train", "val", "test"), 0.3333333), (34, 34, 35)),
        ({"train": 50, "val": 20, "test": 33}, (50, 20, 33)),
        ({"train": 0.5, "val": 3, "test": 4}, (51, 3, 4)),
    ],
)
def test_random_split_has_the_sizes_asked_for(parts, sizes):
    total = 103
    split = random_split(total, parts, seed=0)
    assert tuple(map(len, split.values())) == sizes
    check_split(split, total, complete=sum(sizes) == total)


def test_random_split_depends_on_the_seed_alone():
    parts = {"train": 0.8, "val": 0.1, "test": 0.1}
    first = random_split(100, parts, seed=1)
    np.random.seed(5)
    torch.manual_seed(5)
    again, other = random_split(100, parts, seed=1), random_split(100, parts, seed=2)
    assert all(torch.equal(first[name], again[name]) for name in parts)
    assert not torch.equal(first["train"], other["train"])


@pytest.mark.parametrize(
    "parts", [{"train": 0.9, "val": 0.2}, {"train": 8, "val": 3}, {"train": 0.99, "val": 0.005, "test": 0.005}]
)
def test_impossible_random_splits(parts):
    with pytest.raises(BadInput, match="Cannot split 10 graphs"):
        random_split(10, parts, seed=0)


@pytest.mark.parametrize("groups", [None, [f"g{n % 17 if n < 60 else 0}" for n in range(103)]])
def test_folds_test_every_graph_once(groups):
    splits = [k_fold_split(103, 5, fold, 4, groups) for fold in range(5)]
    for fold, split in enumerate(splits):
        check_split(split, 103, complete=True)
        assert torch.equal(split["val"], splits[(fold + 1) % 5]["test"]), "the next part is the validation split"
    assert sorted(torch.cat([split["test"] for split in splits]).tolist()) == list(range(103))
    assert not torch.equal(k_fold_split(103, 5, 1, 5, groups)["test"], splits[1]["test"])


def test_random_folds_are_of_one_size_and_groups_stay_whole():
    assert sorted(len(k_fold_split(103, 5, fold, 0)["test"]) for fold in range(5)) == [20, 20, 21, 21, 21]
    groups = ["large"] * 40 + [f"g{n // 3}" for n in range(60)]
    parts = [{groups[row] for row in k_fold_split(100, 4, fold, 0, groups)["test"].tolist()} for fold in range(4)]
    assert sum(map(len, parts)) == len(set(groups)) == 21
    sizes = sorted(sum(group in part for group in groups) for part in parts)
    assert sizes == [18, 21, 21, 40], "twenty groups of three fill the other parts evenly"


def test_more_folds_than_groups_are_refused():
    with pytest.raises(BadInput, match=r"folds=3: 10 graphs in 2 groups cannot be cut into 3 parts; use fewer"):
        k_fold_split(10, 3, 0, 0, ["a", "b"] * 5)
    with pytest.raises(BadInput, match=r"folds=5: 4 graphs cannot"):
        k_fold_split(4, 5, 0, 0)


def test_index_split_keeps_order():
    split = index_split({"train": [4, 0], "val": np.array([2]), "test": torch.tensor([3])}, 5)
    assert {name: rows.tolist() for name, rows in split.items()} == {"train": [4, 0], "val": [2], "test": [3]}


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ({"train": [0, 5]}, "train split has row 5, but rows go from 0 to 4"),
        ({"train": [-1]}, "row -1"),
        ({"train": [0, 1], "val": [1]}, "Row 1 is in the train split and in the val split"),
        ({"train": [0, 1, 0]}, "lists row 0 more than once"),
        ({"train": []}, "must be a list|is empty"),
        ({"train": [0.5]}, "must be a list of row numbers"),
        ({"train": [False, True]}, "must be a list of row numbers, got torch.bool"),
    ],
)
def test_wrong_indices_are_named(indices, message):
    with pytest.raises(BadInput, match=message):
        index_split(indices, 5)


def test_given_split_follows_labels():
    split = given_split(["train", "valid", "test", "train"])
    assert {name: rows.tolist() for name, rows in split.items()} == {"train": [0, 3], "val": [1], "test": [2]}
    chosen = given_split(["a", "b", "c"], {"a": "train", "c": "test"})
    assert {name: rows.tolist() for name, rows in chosen.items()} == {"train": [0], "test": [2]}


def test_unknown_labels_are_named():
    with pytest.raises(BadInput, match="'holdout'"):
        given_split(["train", "holdout"])


def test_incomplete_split_is_named_only_if_asked():
    split = {"train": torch.tensor([0, 2])}
    check_split(split, 3)
    with pytest.raises(BadInput, match="Row 1 is in no split"):
        check_split(split, 3, complete=True)


def test_random_groups_stay_whole_and_single_rows_change_nothing():
    parts = {"train": 0.6, "val": 0.2, "test": 0.2}
    plain, single = random_split(50, parts, 3), random_split(50, parts, 3, [str(n) for n in range(50)])
    assert all(torch.equal(plain[name], single[name]) for name in parts)
    groups = [f"g{n // 3}" for n in range(50)]
    split = random_split(50, parts, 3, groups)
    check_split(split, 50, complete=True)
    owners = [{groups[row] for row in rows.tolist()} for rows in split.values()]
    assert sum(map(len, owners)) == len(set(groups))
    assert all(abs(len(split[name]) - len(plain[name])) <= 2 for name in parts)
    few = random_split(30, {"train": 0.4, "val": 0.05, "test": 0.55}, 0, "abcdef" * 5)
    assert {name: len(rows) for name, rows in few.items()} == {"train": 15, "val": 5, "test": 10}
    with pytest.raises(BadInput, match=r"in 2 groups .* no group is left for val and test"):
        random_split(10, parts, 0, "aaaaabbbbb")


def _members(order, groups):
    members = {}
    for row in order.tolist():
        members.setdefault(groups[row], []).append(row)
    return list(members.values())


@pytest.mark.parametrize("seed", range(8))
def test_groups_go_where_a_dictionary_of_lists_sends_them(seed):
    rng = np.random.default_rng(seed)
    groups = [f"g{n}" for n in rng.zipf(1.6, 200) % 60]
    order = permutation(200, seed)
    filled = [[] for _ in range(4)]
    for rows in sorted(_members(order, groups), key=len, reverse=True):
        min(filled, key=len).extend(rows)
    split = k_fold_split(200, 4, 0, seed, groups)
    assert sorted(split["test"].tolist()) == sorted(filled[0])
    assert sorted(split["val"].tolist()) == sorted(filled[1])
    ends, parts, placed = [100, 150, 200], [[], [], []], 0
    for rows in _members(order, groups):
        due = sum(end <= placed for end in ends)
        part = next((earlier for earlier in range(due) if not parts[earlier]), due)
        parts[part].extend(rows)
        placed += len(rows)
    found = random_split(200, {"train": 100, "val": 50, "test": 50}, seed, groups)
    assert [rows.tolist() for rows in found.values()] == parts
