"""Every way in which a user says how molecules are split: applied as said, or refused in one line."""

import logging
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

from graphbench.benchmarks import Molecules
from graphbench.contracts import SPLITS
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
    assert opened(write("a.csv", part=column), split="column", split_column="part", fractions=fractions).split_words


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
