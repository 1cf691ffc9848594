"""Every way in which a user can split molecules: applied as given, or refused with a message."""

import logging
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

from graphbench.benchmarks import Molecules
from graphbench.benchmarks.molecules import own_splits
from graphbench.benchmarks.molecules.chemistry import clusters, user_file
from graphbench.benchmarks.molecules.chemistry.clusters import (
    butina_clusters,
    leader_clusters,
    maxmin_picks,
    morgan_bits,
)
from graphbench.contracts import SPLITS
from graphbench.data.splits import permutation
from graphbench.errors import BadInput

#: Chains, rings and rings with chains: 30 molecules of 13 scaffolds.
SMILES = [*("C" * n for n in range(2, 14)), *(f"C1{'C' * n}C1" for n in range(1, 10)), *(f"c1ccccc1{'C' * n}" for n in
          range(1, 6)), *(f"C1{'C' * n}N1" for n in range(1, 5))]  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def write(name, smiles=SMILES, **columns):
        header = ["smiles", "value", *columns]
        lines = [",".join(map(str, [text, len(text), *rest])) for text, *rest in zip(smiles, *columns.values(),
                 strict=True)]  # fmt: skip
        path = tmp_path / name
        path.write_text("\n".join([",".join(header), *lines]) + "\n")
        return str(path)

    return write


@pytest.fixture
def opened(tmp_path):
    def opened(file, **options):
        data = Molecules(file, "value", store=str(tmp_path / "store"), **options)
        data.setup()
        return data

    return opened


def smiles_of(data):
    return {split: data.smiles(split) for split in SPLITS}


@pytest.mark.parametrize("kind", ["random", "scaffold", "scaffold_balanced"])
@pytest.mark.parametrize("fractions", [(0.9, 0.1, 0), (0.9, 0, 0.1), (1, 0, 0), (0.5, 0.25, 0.25)])
def test_shares_may_be_zero(write, opened, kind, fractions):
    data = opened(write("a.csv"), split=kind, fractions=fractions)
    sizes = [len(data.tables[split]) for split in SPLITS]
    assert sum(sizes) == len(SMILES)
    assert [size > 0 for size in sizes] == [share > 0 for share in fractions]
    assert [data.is_empty(split) for split in SPLITS] == [share == 0 for share in fractions]
    if kind == "random":
        assert np.allclose(sizes, np.array(fractions) * len(SMILES), atol=1)
    if fractions == (1, 0, 0):
        assert sorted(data.smiles("train")) == sorted(SMILES)
    for split, share in zip(SPLITS, fractions, strict=True):
        if not share:
            with pytest.raises(BadInput, match="fractions"):
                data.require_rows(split)


def test_repeats_stay_together_beside_an_empty_part(write, opened):
    smiles = [text for text in SMILES[:12] for _ in range(3)]
    for fractions in ((0.7, 0.3, 0), (0.7, 0, 0.3)):
        parts = [set(found) for found in smiles_of(opened(write("a.csv", smiles), fractions=fractions)).values()]
        assert not any(one & two for one, two in pairwise([part for part in parts if part]))


@pytest.mark.parametrize(
    ("words", "fractions", "expected"),
    [
        (("train", "test"), (0.8, 0.1, 0.1), "val is cut from train"),
        (("training", "dev"), (0.8, 0.1, 0.1), "test is cut from train"),
        (("train", "test"), (0.8, 0, 0.2), "no val"),
        (("train", "test"), (0.5, 0.5, 0), "val is cut from train"),
        (("train", "train"), (0.8, 0.1, 0.1), "val and test are cut from train"),
        (("train", "train"), (1, 0, 0), "no val and no test"),
    ],
)
def test_a_column_of_some_splits_is_completed_from_training(write, opened, words, fractions, expected, caplog):
    column = [words[number % 3 == 0] for number in range(len(SMILES))]
    with caplog.at_level(logging.INFO, "graphbench"):
        data = opened(write("a.csv", part=column), split="column", split_column="part", fractions=fractions)
    found = smiles_of(data)
    named = {"train": "train", "training": "train", "test": "test", "dev": "val"}
    given = {named[word]: {s for s, w in zip(SMILES, column, strict=True) if w == word} for word in words}
    for split, chosen in given.items():
        assert (set(found[split]) <= chosen) if split == "train" else (set(found[split]) == chosen)
    assert sum(map(len, found.values())) == len(SMILES)
    share = dict(zip(SPLITS, fractions, strict=True))
    missing = [split for split in SPLITS if split not in given]
    assert all((len(found[split]) > 0) == (share[split] > 0) for split in missing)
    assert data.split_words.endswith(expected)
    assert expected in caplog.text
    again = opened(write("a.csv", part=column), split="column", split_column="part", fractions=fractions)
    assert again.split_words == data.split_words


def test_fold_numbers_of_a_column_are_the_folds(write, opened):
    column = [number % 4 for number in range(len(SMILES))]
    file = write("a.csv", part=column)
    data = Molecules(file, "value", split="column", split_column="part")
    tested = []
    for fold, options in enumerate(data.fold_options(4)):
        found = smiles_of(opened(file, split="column", split_column="part", **options))
        where = dict(zip(SMILES, column, strict=True))
        assert {where[text] for text in found["test"]} == {fold}
        assert {where[text] for text in found["val"]} == {(fold + 1) % 4}
        assert len(found["train"]) + len(found["val"]) + len(found["test"]) == len(SMILES)
        tested += found["test"]
    assert sorted(tested) == sorted(SMILES)
    with pytest.raises(BadInput, match=r"--folds 5.* 4 folds"):
        data.fold_options(5)
    gap = opened(write("c.csv", part=["", *column[1:]]), split="column", split_column="part", on_error="skip")
    assert (gap.left_out, len(gap.fold_options(4))) == (1, 4)
    words = write("b.csv", part=[SPLITS[number % 3] for number in column])
    with pytest.raises(BadInput, match=r"--folds 3.*fixes the split"):
        Molecules(words, "value", split="column", split_column="part").fold_options(3)
    first = opened(file, split="column", split_column="part")
    assert {where[text] for text in first.smiles("test")} == {0}


@pytest.mark.parametrize(
    ("column", "options", "said"),
    [
        ([1, 2, 3], {}, "part"),
        ([0, 1], {}, "part"),
        ([0, 1, 3], {}, "part"),
        ([0, 1, 2], {"folds": 5, "fold": 0}, "folds=5"),
        ([0, 1, 2], {"fold": 3}, "fold"),
        (["train", "val", "test"], {"folds": 3, "fold": 0}, "folds=3"),
        (["train", "val", "test"], {"fold": 1}, "fold=1"),
        (["train", "val", "later"], {}, "later"),
        ([0, 1, "test"], {}, "line"),
    ],
)
def test_columns_that_say_no_split_are_refused_with_their_name(write, opened, column, options, said):
    values = [column[number % len(column)] for number in range(len(SMILES))]
    with pytest.raises(BadInput, match=said):
        opened(write("a.csv", part=values), split="column", split_column="part", **options)


@pytest.mark.parametrize("kind", ["random", "scaffold"])
@pytest.mark.parametrize("files", [("test",), ("val",), ("val", "test")])
def test_files_of_splits_are_taken_whole_and_the_rest_is_cut_from_training(write, opened, kind, files, caplog):
    written = {"val": SMILES[20:25], "test": [*SMILES[25:], SMILES[0]]}
    options = {f"{name}_file": write(f"{name}.csv", written[name]) for name in files}
    with caplog.at_level(logging.INFO, "graphbench"):
        data = opened(write("a.csv", SMILES[:20]), split=kind, **options)
    found = smiles_of(data)
    assert all(found[name] == written[name] for name in files)
    cut = [text for split in SPLITS if split not in files for text in found[split]]
    assert sorted(cut) == sorted(SMILES[:20])
    assert all(found.values())
    missing = [name for name in ("val", "test") if name not in files]
    assert all(f"{name} is cut from train" in data.split_words for name in missing)
    leaks = [record.getMessage() for record in caplog.records if "several splits" in record.getMessage()]
    assert len(leaks) == ("test" in files)
    assert all("'CC'" in said for said in leaks)
    with pytest.raises(BadInput, match="test_file") if "test" in files else nullcontext():
        data.fold_options(5)


def test_a_file_of_its_own_changes_what_is_stored(write, opened):
    file, other = write("a.csv", SMILES[:20]), write("t.csv", SMILES[20:])
    before = opened(file, test_file=other).fingerprint()["splits"]["test"]
    other = write("t.csv", SMILES[21:])
    assert opened(file, test_file=other).fingerprint()["splits"]["test"] != before


def test_no_validation_beside_a_test_file(write, opened):
    data = opened(write("a.csv", SMILES[:20]), test_file=write("t.csv", SMILES[20:]), fractions=(1, 0, 0))
    assert [len(data.tables[split]) for split in SPLITS] == [20, 0, 10]


def test_shares_and_seeds_that_decide_nothing_are_told(write, opened):
    column = [SPLITS[number % 3] for number in range(len(SMILES))]
    file = write("a.csv", part=column, fold=[number % 3 for number in range(len(SMILES))])
    usual = {"split": "column", "split_column": "part"}
    assert opened(file, **usual).split_words == "as part says"
    for options in (usual, {"split": "column", "split_column": "fold"}, {"folds": 3, "fold": 1}):
        assert opened(file, fractions=(0.6, 0.2, 0.2), **options).split_words.endswith("; fractions are not used")
    with pytest.raises(BadInput, match="split_seed=3"):
        Molecules(file, "value", split="scaffold", split_seed=3)


# -- clusters, diverse molecules, time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["butina", "leader"])
@pytest.mark.parametrize("options", [{}, {"fractions": (0.6, 0.2, 0.2), "split_seed": 3}, {"cluster_distance": 0.3}])
def test_no_cluster_is_in_two_parts(write, opened, kind, options):
    smiles = [text for text in SMILES for _ in range(2)]
    found = smiles_of(opened(write("a.csv", smiles), split=kind, **options))
    assert sorted(text for part in found.values() for text in part) == sorted(smiles)
    find = {"butina": butina_clusters, "leader": leader_clusters}[kind]
    cluster = dict(zip(smiles, find(morgan_bits(smiles), options.get("cluster_distance", 0.65)), strict=True))
    parts = [{cluster[text] for text in part} for part in found.values()]
    assert all(parts)
    assert sum(map(len, parts)) == len(set(cluster.values()))


@pytest.mark.parametrize("kind", ["butina", "leader"])
def test_folds_leave_whole_clusters_out_and_test_each_molecule_once(write, opened, kind):
    file, find = write("a.csv"), {"butina": butina_clusters, "leader": leader_clusters}[kind]
    cluster = dict(zip(SMILES, find(morgan_bits(SMILES), 0.4), strict=True))
    tested = []
    for options in Molecules(file, "value", split=kind, cluster_distance=0.4).fold_options(4):
        found = smiles_of(opened(file, split=kind, cluster_distance=0.4, **options))
        assert not {cluster[text] for text in found["test"]} & {cluster[text] for text in found["train"] + found["val"]}
        assert not {cluster[text] for text in found["val"]} & {cluster[text] for text in found["train"]}
        tested += found["test"]
    assert sorted(tested) == sorted(SMILES)
    seeds = [
        smiles_of(opened(file, split=kind, cluster_distance=0.1, folds=4, fold=3, split_seed=seed))["test"]
        for seed in (0, 1)
    ]
    assert seeds[0] != seeds[1], "--split-seeds repeats the folds"


def test_clusters_that_fill_no_part_are_refused(write, opened):
    with pytest.raises(BadInput, match=r"cluster split leaves .* empty"):
        opened(write("a.csv", ["C" * n for n in range(6, 20)]), split="butina", cluster_distance=0.99)
    with pytest.raises(BadInput, match="folds=5"):
        opened(write("a.csv", ["C" * n for n in range(6, 20)]), split="butina", cluster_distance=0.99, folds=5, fold=0)


def test_leaders_are_compared_once_for_each_molecule(write, opened, monkeypatch):
    counts, plain = [], own_splits.leader_clusters
    monkeypatch.setattr(
        own_splits, "leader_clusters", lambda bits, radius: counts.append(len(bits)) or plain(bits, radius)
    )
    opened(write("a.csv", SMILES * 5), split="leader")
    assert counts == [len(SMILES)]


def test_too_many_molecules_for_all_pairs_are_refused_before_they_are_read(write, opened, monkeypatch):
    monkeypatch.setattr(clusters, "MOST_OF_BUTINA", len(SMILES) - 1)
    file, other = write("a.csv"), write("b.csv", SMILES[:-1])
    assert len(opened(other, split="butina", test_file=file).tables["test"]) == len(SMILES)
    monkeypatch.setattr(user_file, "read_kept", lambda *_: pytest.fail("RDKit read the molecules"))
    with pytest.raises(BadInput, match=f"each pair of {len(SMILES)} molecules"):
        opened(file, split="butina")


@pytest.mark.parametrize("repeats", ["together", "apart"])
def test_picks_test_and_then_validate(write, opened, repeats):
    smiles = SMILES if repeats == "apart" else [text for text in SMILES for _ in range(3)]
    found = smiles_of(opened(write("a.csv", smiles), split="maxmin", split_seed=4, repeats=repeats))
    assert [len(found[split]) for split in SPLITS] == [len(smiles) * share // 10 for share in (8, 1, 1)]
    parts = [list(dict.fromkeys(found[split])) for split in ("test", "val", "train")]
    assert sum(map(len, parts)) == len(SMILES), "a repeated molecule is in one part"
    order = [SMILES.index(text) for part in parts[:2] for text in part]
    picks = maxmin_picks(morgan_bits(SMILES), len(order), int(permutation(len(SMILES), 4)[0]))
    assert [set(picks[: len(parts[0])]), set(picks)] == [{*order[: len(parts[0])]}, set(order)]


def test_picks_are_refused_where_a_part_would_be_empty(write, opened):
    with pytest.raises(BadInput, match=r"maxmin leaves .*val"):
        opened(write("a.csv", ["CCO", "CCN", "CCC", "CCCC"]), split="maxmin")
    assert not smiles_of(opened(write("a.csv"), split="maxmin", fractions=(1, 0, 0)))["test"]


def test_the_oldest_train_and_the_newest_test(write, opened):
    days = [f"20{10 + number * 7 % 13:02}-0{1 + number % 9}-1{number % 3}" for number in range(len(SMILES))]
    data = opened(write("a.csv", day=days), split="time", time_column="day", fractions=(0.6, 0.2, 0.2))
    when = dict(zip(SMILES, days, strict=True))
    train, val, test = ([when[text] for text in smiles_of(data)[split]] for split in SPLITS)
    assert (max(train) < min(val), max(val) < min(test)) == (True, True)
    assert [len(train), len(val), len(test)] == [18, 6, 6]
    assert data.split_words == (
        f"by day: train {min(train)} to {max(train)}, val {min(val)} to {max(val)}, test {min(test)} to {max(test)}"
    )


def test_one_time_stays_in_one_part_and_the_cut_moves_to_the_nearest_boundary(write, opened):
    years = [2015] * 11 + [2016] * 12 + [2017] * 2 + [2018] * 5  # cuts at 24 and 27 of 30: ends are 11, 23, 25, 30
    found = smiles_of(opened(write("a.csv", year=years), split="time", time_column="year"))
    assert [len(found[split]) for split in SPLITS] == [23, 2, 5]
    found = smiles_of(opened(write("a.csv", year=[1999] * 28 + [2000, 2001]), split="time", time_column="year"))
    assert [len(found[split]) for split in SPLITS] == [28, 1, 1]
    with pytest.raises(BadInput, match=r"time_column=year: 2 different values cannot be cut into 3 parts"):
        opened(write("a.csv", year=[1999] * 29 + [2000]), split="time", time_column="year")
    found = smiles_of(
        opened(write("a.csv", year=[1] * 29 + [2]), split="time", time_column="year", fractions=(0.9, 0, 0.1))
    )
    assert [len(found[split]) for split in SPLITS] == [29, 0, 1]


def test_a_repeated_molecule_counts_with_its_first_time(write, opened):
    smiles, years = [*SMILES[:20], SMILES[0]], [*range(2000, 2020), 2030]
    file = write("a.csv", smiles, year=years)
    together = opened(file, split="time", time_column="year")
    assert together.smiles("train").count(SMILES[0]) == 2
    assert "first time" in together.split_words
    apart = smiles_of(opened(file, split="time", time_column="year", repeats="apart"))
    assert (apart["train"][0], apart["test"][-1]) == (SMILES[0], SMILES[0])


def test_a_time_that_cannot_be_read_is_named_with_its_line(write, opened):
    days = [f"0{1 + number % 9}/12/20{10 + number % 9}" for number in range(len(SMILES))]
    file = write("a.csv", day=[*days[:-1], ""])
    with pytest.raises(BadInput, match=r"(?s)is missing: line 31.*time_format.*: line 2 "):
        opened(file, split="time", time_column="day")
    with pytest.raises(BadInput, match="line 31"):
        opened(file, split="time", time_column="day", time_format="%d/%m/%Y")
    kept = opened(file, split="time", time_column="day", time_format="%d/%m/%Y", on_error="skip")
    assert sum(len(kept.smiles(split)) for split in SPLITS) == len(SMILES) - 1
    when = {text: (day[6:], day[:2]) for text, day in zip(SMILES, days, strict=True)}
    found = [[when[text] for text in part] for part in smiles_of(kept).values()]
    assert max(found[0]) < min(found[1]) <= max(found[1]) < min(found[2])


def test_validation_by_time_is_cut_from_training_beside_a_test_file_without_times(write, opened):
    file, other = write("a.csv", SMILES[:20], year=range(1980, 2000)), write("t.csv", SMILES[20:])
    found = smiles_of(opened(file, test_file=other, split="time", time_column="year"))
    assert found == {"train": SMILES[:18], "val": SMILES[18:20], "test": SMILES[20:]}
