"""Several files of molecules with different targets as one training set."""

from contextlib import nullcontext

import numpy as np
import pytest

from graphbench.benchmarks.molecules.chemistry import several_files
from graphbench.benchmarks.molecules.chemistry.problems import Repeats, find_repeats
from graphbench.benchmarks.molecules.own_file import Molecules
from graphbench.contracts import SPLITS
from graphbench.errors import BadInput

CHAINS = [f"{'C' * size}{end}" for size in range(2, 14) for end in ("O", "N")]


@pytest.fixture
def files(tmp_path):
    """Write two files with half of the molecules in common, spelled differently, and a third with neither target."""
    ring = [(number, text) for number, text in enumerate(CHAINS)]
    solubility = "smiles,logS,set\n" + "".join(f"{text},{n},{n % 3}\n" for n, text in ring if n % 4 != 3)
    acidity = "pKa,SMILES,set\n" + "".join(f">{100 + n},{text[::-1]},{n % 3}\n" for n, text in ring if n % 4 != 0)
    (tmp_path / "solubility.csv").write_text(solubility)
    (tmp_path / "acidity.csv").write_text(acidity)
    (tmp_path / "neither.csv").write_text("smiles,other\nCCO,1\n")
    return tmp_path


def _opened(files, *names, **options):
    data = Molecules([str(files / name) for name in names], ["logS", "pKa"], store=str(files / "store"), **options)
    data.setup()
    return data


def test_files_are_joined_with_gaps_and_molecules_stay_together(files, caplog):
    with caplog.at_level("INFO"):
        data = _opened(files, "solubility.csv", "acidity.csv", split_seed=3)
    assert "12 molecules are in several files" in caplog.text
    seen = {}
    for split in SPLITS:
        columns = data.tables[split].columns
        rows = zip(data.ids(split), data.smiles(split), columns["y"], columns["y_lower"], strict=True)
        for name, smiles, y, lower in rows:
            file, _, line = name.partition(":")
            source = (files / file).read_text().splitlines()[int(line) - 1].split(",")
            assert smiles in source
            expected = [float(source[1]), np.nan] if file == "solubility.csv" else [np.nan, np.nan]
            bounds = [np.nan, np.nan] if file == "solubility.csv" else [np.nan, float(source[0][1:])]
            np.testing.assert_array_equal(y.numpy(), expected)
            np.testing.assert_array_equal(lower.numpy(), bounds)
            molecule = smiles if smiles in CHAINS else smiles[::-1]
            assert seen.setdefault(molecule, split) == split
    assert len(seen) == len(CHAINS)
    assert data.spec.source == "the files solubility.csv, acidity.csv"


def test_a_test_file_may_lack_a_target(files):
    (files / "late.csv").write_text("smiles,logS\n" + "".join(f"C{text},7\n" for text in CHAINS[:6]))
    data = _opened(files, "solubility.csv", "acidity.csv", test_file=str(files / "late.csv"))
    assert data.tables["test"].columns["y"][:, 0].tolist() == [7] * 6
    assert data.tables["test"].columns["y"][:, 1].isnan().all()


@pytest.mark.parametrize(
    ("names", "target", "options", "missing"),
    [
        (["solubility.csv"], "logS", {}, ""),
        (["solubility.csv"], "logs ", {}, "logs "),
        (["solubility.csv"], "logS", {"weight": "wieght"}, "wieght"),
        (["solubility.csv"], "logS", {"test": "acidity.csv"}, "logS"),
        (["solubility.csv", "acidity.csv"], ["logS", "pKa"], {"test": "late.csv"}, ""),
        (["solubility.csv", "acidity.csv"], ["logS", "pK"], {}, "pK"),
        (["solubility.csv", "acidity.csv"], ["logS", "pKa"], {"id_column": "name"}, "name"),
        (["solubility.csv", "acidity.csv"], ["logS", "pKa"], {"test": "neither.csv"}, "logS, pKa"),
    ],
)
def test_a_header_tells_whether_the_named_columns_are_there(files, names, target, options, missing):
    (files / "late.csv").write_text("smiles,logS\nCCO,1\n")
    options = dict(options)
    if test := options.pop("test", None):
        options["test_file"] = str(files / test)
    data = Molecules([str(files / name) for name in names], target, store=str(files / "store"), **options)
    if missing:
        with pytest.raises(BadInput, match=missing):
            data.check_source()
    else:
        data.check_source()
    for path in files.glob("*.csv"):  # unreadable rows change nothing
        path.write_text(path.read_text().partition("\n")[0] + "\nno molecule,x,x\n")
    with pytest.raises(BadInput, match=missing) if missing else nullcontext():
        data.check_source()


def test_folds_of_a_column_are_those_of_all_files(files):
    data = _opened(files, "solubility.csv", "acidity.csv", split="column", split_column="set", fold=1)
    assert len(data.fold_options(3)) == 3
    lines = [name.partition(":") for name in data.ids("test")]
    assert all((files / file).read_text().splitlines()[int(line) - 1].endswith(",1") for file, _, line in lines)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{year}", "{year}-03-01"),  # whole years and dates: as one file would be read
        ("{year}-03-01", "{year}"),
        ("{year}", "{year}"),
        ("{year}.5", "{year}"),
    ],
)
def test_times_of_all_files_are_one_column(tmp_path, first, second):
    for name, form, rows in (("new.csv", first, CHAINS[:8]), ("old.csv", second, CHAINS[8:])):
        years = [2023 - CHAINS.index(text) for text in rows]
        lines = [f"{text},{year},{form.format(year=year)}\n" for text, year in zip(rows, years, strict=True)]
        (tmp_path / name).write_text("smiles,logS,day\n" + "".join(lines))
    names = [str(tmp_path / name) for name in ("new.csv", "old.csv")]
    data = Molecules(names, "logS", split="time", time_column="day", store=str(tmp_path), fractions=(0.5, 0.25, 0.25))
    data.setup()
    years = [data.tables[split].columns["y"].flatten().tolist() for split in SPLITS]
    assert [len(part) for part in years] == [12, 6, 6]
    assert max(years[0]) < min(years[1]) <= max(years[1]) < min(years[2])


def test_numbers_and_dates_or_folds_and_words_cannot_be_one_column(files):
    for name, day in (("a.csv", "43831"), ("b.csv", "2021-03-01")):
        lines = [f"{text},1,{day},{'train' if name == 'a.csv' else n % 3}\n" for n, text in enumerate(CHAINS)]
        (files / name).write_text("smiles,logS,day,set\n" + "".join(lines))
    names = [str(files / name) for name in ("a.csv", "b.csv")]
    for options, said in (
        ({"split": "time", "time_column": "day"}, "'2021-03-01' is neither before nor after '43831'"),
        ({"split": "column", "split_column": "set"}, "others fold numbers such as 0"),
    ):
        with pytest.raises(BadInput, match=said):
            Molecules(names, "logS", store=str(files / "store"), **options).setup()


def test_a_molecule_with_many_differing_rows_is_named_with_the_first_ones(files, caplog, monkeypatch):
    class Unsearched(list):
        def __contains__(self, item):
            raise AssertionError("a list is searched for each molecule")

    def found(canonical, y):
        repeats = find_repeats(canonical, y)
        return Repeats(repeats.rows, Unsearched(repeats.contradicting))

    monkeypatch.setattr(several_files, "find_repeats", found)
    for name in ("a", "b"):
        rows = "".join(f"{text},{row},{row}\n" for row, text in enumerate([*["CCO"] * 30, *CHAINS[2:9]]))
        (files / f"{name}.csv").write_text(f"smiles,logS,pKa\n{rows}")
    _opened(files, "a.csv", "b.csv")
    assert (
        "8 molecules are in several files; 1 of them with different targets: 'CCO' (a.csv:2, a.csv:3, " in caplog.text
    )
    assert "a.csv:9, and 52 more)" in caplog.text


def test_differing_values_of_a_molecule_in_two_files_are_named(files, caplog):
    (files / "again.csv").write_text(f"smiles,logS\n{CHAINS[5][::-1]},99\n")
    _opened(files, "solubility.csv", "acidity.csv", "again.csv")
    assert "1 of them with different targets" in caplog.text
    assert "again.csv:2" in caplog.text


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (["solubility.csv", "neither.csv"], {}, r"neither\.csv.*logS, pKa"),
        (["solubility.csv", "solubility.csv"], {}, "distinct"),
        ([], {}, "distinct"),
        (["acidity.csv", "acidity2.csv"], {}, "logS"),
        (["solubility.csv", "acidity.csv"], {"weight": "trust"}, r"solubility\.csv.*trust"),
    ],
)
def test_files_without_a_column_are_named(files, names, options, words):
    (files / "acidity2.csv").write_text((files / "acidity.csv").read_text())
    with pytest.raises(BadInput, match=words):
        _opened(files, *names, **options)
