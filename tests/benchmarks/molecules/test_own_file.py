"""A user's molecules as a benchmark: options, tasks, splits and the contract."""

from typing import ClassVar

import pytest
import torch
from rdkit import Chem
from ring_molecules import SMILES

from graphbench.benchmarks.molecules.chemistry.baselines import ridge_baseline
from graphbench.benchmarks.molecules.chemistry.scaffolds import SPLITS
from graphbench.benchmarks.molecules.own_file import Molecules
from graphbench.contracts import BenchmarkSpec
from graphbench.errors import BadInput, MissingData, MissingExtra
from graphbench.testing.benchmarks import BenchmarkContract


@pytest.fixture
def opened(file, tmp_path):
    """Build and open a benchmark on the file."""

    def opened(**options):
        benchmark = Molecules(str(file), store=str(tmp_path / "store"), **options)
        benchmark.setup()
        return benchmark

    return opened


class _Contract(BenchmarkContract):
    options: ClassVar[dict] = {}

    @pytest.fixture(autouse=True)
    def _place(self, file, tmp_path):
        self.place = {"file": str(file), "store": str(tmp_path / "store")}

    def make_benchmark(self):
        return Molecules(**self.place, **self.options)


class TestRegression(_Contract):
    options: ClassVar[dict] = {"target": "value", "split": "scaffold", "fractions": (0.5, 0.25, 0.25), "batch_size": 4}


class TestClassification(_Contract):
    options: ClassVar[dict] = {"target": "kind", "task": "classification", "num_classes": 3, "metric": "macro_F1"}


class TestMultilabel(_Contract):
    options: ClassVar[dict] = {"target": ["hot", "cold"], "task": "multilabel"}


class TestComputedTarget(_Contract):
    options: ClassVar[dict] = {"target": "penalized_logp"}


def test_given_split_is_followed(opened):
    benchmark = opened(target="value", split="column", split_column="fold", id_column="name")
    assert [len(benchmark.tables[split]) for split in SPLITS] == [20, 5, 5]
    assert benchmark.ids("val") == [f"m{number}" for number in range(20, 25)]
    assert benchmark.smiles("test") == SMILES[25:]
    assert benchmark.tables["test"].columns["y"][:, 0].tolist() == pytest.approx([n / 3 for n in range(25, 30)])


def test_scaffold_split_keeps_rings_apart(opened):
    benchmark = opened(target="value", split="scaffold", fractions=(0.5, 0.25, 0.25))
    rings = [{smiles.rstrip("CNO") for smiles in benchmark.smiles(split)} for split in SPLITS]
    assert sum(map(len, rings)) == len(set.union(*rings)) == 6


def test_random_split_depends_on_its_seed_alone(opened):
    ids = {seed: opened(target="value", split_seed=seed).ids("test") for seed in (0, 1)}
    assert ids[0] != ids[1]
    assert opened(target="value", split_seed=0, seed=5, batch_size=3).ids("test") == ids[0]


def test_every_molecule_is_tested_in_one_fold_and_no_ring_on_two_sides(opened):
    tested = []
    for fold in range(3):
        benchmark = opened(target="value", split="scaffold", folds=3, fold=fold)
        rings = [{smiles.rstrip("CNO") for smiles in benchmark.smiles(split)} for split in SPLITS]
        assert sum(map(len, rings)) == len(set.union(*rings)) == 6
        tested += benchmark.ids("test")
    assert len(tested) == len(set(tested)) == len(SMILES)


def test_folds_are_further_splits_and_no_change_of_the_others(file):
    key = Molecules(str(file), "value").source_key()
    assert "folds" not in key, "the store of earlier versions stays in use"
    keys = [Molecules(str(file), "value", folds=5, fold=fold).source_key() for fold in (0, 1)]
    assert keys[0] != keys[1]
    assert key not in keys


def test_missing_labels_are_nan(opened):
    benchmark = opened(target=["hot", "cold"], task="multilabel")
    y = torch.cat([benchmark.tables[split].columns["y"] for split in SPLITS])
    assert int(y.isnan().sum()) == 30
    assert bool((y.isnan().sum(1) == 1).all())


def test_cells_without_a_target_cost_no_row_that_has_another(tmp_path):
    lines = ["smiles,a,b", *(f"{text},{n},{2 * n}" for n, text in enumerate(SMILES))]
    cells = {3: "#N/A,1", 4: "1,ND", 5: "-,-", 6: "pending,1", 7: "inf,1", 8: "pending,pending"}
    lines = [f"{SMILES[n]},{cells[n]}" if (n := place - 1) in cells else line for place, line in enumerate(lines)]
    (tmp_path / "gaps.csv").write_text("\n".join(lines))
    options = {"file": str(tmp_path / "gaps.csv"), "target": ["a", "b"], "store": str(tmp_path / "store")}
    with pytest.raises(
        BadInput, match=r"target 'a' is not a number: line 8 \('pending'\)(.|\n)*data.missing '\[\"pending"
    ):
        Molecules(**options).prepare_data()

    def known(**more):
        data = Molecules(**options, **more)
        data.setup()
        y = torch.cat([data.tables[split].columns["y"] for split in SPLITS])
        return data.left_out, len(y), y.isfinite().sum(0).tolist()

    assert known(on_error="skip") == (2, 28, [25, 27])
    assert known(on_error="skip", missing=["pending"]) == (2, 28, [25, 27])
    assert known(on_error="skip", missing=[0, "pending"]) == (3, 27, [24, 26])


@pytest.mark.parametrize("missing", [None, [-999], ["lost", -999], []])
def test_labels_of_new_inputs_lack_the_same_cells_as_those_of_training(tmp_path, missing):
    cells = {3: "", 4: "NaN", 7: "ND", 8: "-999", 9: "-999.0", 12: "lost", 13: ">5"}
    lines = [f"{text},{cells.get(n, n)},{n}" for n, text in enumerate(SMILES)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles,a,b", *lines]))
    data = Molecules(str(tmp_path / "a.csv"), ["a", "b"], missing=missing, on_error="skip", store=str(tmp_path))
    data.setup()
    trained = {text: row for split in SPLITS
               for text, row in zip(data.smiles(split), data.tables[split].columns["y"], strict=True)}  # fmt: skip
    (part,) = data.read_labelled(str(tmp_path / "a.csv"))
    expected = torch.stack([trained[text] for text in data.input_texts(part)])
    torch.testing.assert_close(part.table.columns["y"], expected, rtol=0, atol=0, equal_nan=True)
    assert bool((part.table.columns["y"] == -999).any()) is not bool(missing)


def test_specification_follows_the_options(file):
    several = Molecules(str(file), ["hot", "cold"], task="multilabel").spec
    assert (several.task, several.num_targets, several.metric, several.loss) == ("graph-multilabel", 2, "AP", "BCE")
    assert (several.target_names, several.higher_is_better) == (("hot", "cold"), True)
    classes = Molecules(str(file), "kind", task="classification", num_classes=3).spec
    assert (classes.num_classes, classes.output_dim, classes.metric) == (3, 3, "accuracy")
    assert isinstance(Molecules.spec, BenchmarkSpec)
    assert Molecules.spec.task == "graph-regression"


def test_specification_needs_no_file():
    assert Molecules("absent.csv", "y").spec.target_names == ("y",)
    with pytest.raises(MissingData, match=r"absent\.csv: there is no such file"):
        Molecules("absent.csv", "y").prepare_data()


def test_other_content_or_options_are_other_data(file):
    first = Molecules(str(file), "value").source_key()
    assert Molecules(str(file), "value", batch_size=7, metric="RMSE").source_key() == first
    assert Molecules(str(file), "value", on_error="skip").source_key() != first
    assert Molecules(str(file), "kind").source_key() != first
    file.write_text(file.read_text() + "\n")
    assert Molecules(str(file), "value").source_key() != first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "a", "task": "ranking"}, "task must be one of regression, classification, multilabel"),
        ({"target": "a", "split": "umap"}, "split must be one of random, scaffold, scaffold_balanced"),
        ({"target": "a", "split": "time"}, "time_column"),
        ({"target": "a", "time_column": "a"}, "time_column"),
        ({"target": "a", "time_format": "%Y"}, "time_format"),
        ({"target": "a", "split": "time", "time_column": "a", "split_seed": 1}, "split_seed=1"),
        ({"target": "a", "split": "time", "time_column": "a", "folds": 3, "fold": 0}, "folds=3"),
        ({"target": "a", "split": "maxmin", "folds": 3, "fold": 0}, "folds=3"),
        ({"target": "a", "cluster_distance": 0.5}, "cluster_distance=0.5"),
        ({"target": "a", "split": "butina", "cluster_distance": 1.0}, "cluster_distance"),
        ({"target": "a", "on_error": "ignore"}, "on_error must be one of stop, skip"),
        ({"target": []}, "one or several distinct columns"),
        ({"target": ["a", "a"]}, "one or several distinct columns"),
        ({"target": ["penalized_logp", "a"]}, "must be the only target"),
        ({"target": "a", "task": "classification"}, "num_classes of 2 or more"),
        ({"target": ["a", "b"], "task": "classification", "num_classes": 2}, "one target column"),
        ({"target": "a", "num_classes": 2}, "num_classes belongs to task=classification"),
        ({"target": "a", "classes": ["no", "yes"]}, "classes belongs to task=classification"),
        ({"target": "a", "task": "classification", "classes": ["no", "no"]}, "classes: expected distinct names"),
        ({"target": "a", "task": "classification", "classes": ["no"]}, "num_classes of 2 or more"),
        ({"target": "a", "task": "classification", "classes": ["n", "y"], "num_classes": 3}, "give one of the two"),
        ({"target": "a", "split": "column"}, "belong together"),
        ({"target": "a", "split_column": "fold"}, "belong together"),
        ({"target": "a", "fractions": (0.9, 0.1, 0.1)}, "add up to 1"),
        ({"target": "a", "metric": "AP"}, "scored by MAE, RMSE"),
        ({"target": "a", "folds": 5}, "belong together"),
        ({"target": "a", "folds": 2, "fold": 0}, "folds must be an integer of at least 3, but got 2"),
        ({"target": "a", "folds": 5, "fold": 5}, "fold must be an integer of at least 0 and below 5, but got 5"),
        ({"target": "a", "split": "column", "split_column": "b", "test_file": "t.csv"}, "test_file=t.csv"),
        ({"target": "a", "folds": 5, "fold": 0, "val_file": "v.csv"}, "val_file=v.csv"),
        ({"target": "a", "test_file": "absent.csv"}, "`file` itself"),
        ({"target": "a", "test_file": "t.csv", "val_file": "t.csv"}, "both t.csv"),
        ({"target": "a", "fractions": (0, 0.5, 0.5)}, "fractions"),
        ({"target": "a", "task": "classification", "num_classes": 3, "metric": "AUROC"}, "needs num_classes=2"),
    ],
)
def test_contradicting_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        Molecules("absent.csv", **options)


def test_bad_rows_stop_before_anything_is_stored(file, tmp_path):
    file.write_text(file.read_text() + "\nC1CC,1,1,1,1,train,open\n")
    with pytest.raises(BadInput, match=r"1 of 31 rows cannot be used.(.|\n)*line 32 \('C1CC'"):
        Molecules(str(file), "value", store=str(tmp_path / "store")).prepare_data()
    skipping = Molecules(str(file), "value", on_error="skip", store=str(tmp_path / "store"))
    skipping.setup()
    assert sum(len(skipping.ids(split)) for split in SPLITS) == 30


@pytest.mark.parametrize(("atoms", "split"), [(19_998, "random"), (3_000, "scaffold")])
def test_molecules_that_would_take_minutes_are_named(file, tmp_path, atoms, split):
    file.write_text(file.read_text() + "\n" + "c1ccccc1" * (atoms // 6) + ",1,1,1,1,train,polymer\n")
    with pytest.raises(BadInput, match=rf"the molecule is too large: line 32 \('c1ccccc1.*{atoms} atoms"):
        Molecules(str(file), "value", split=split, store=str(tmp_path / "store")).prepare_data()


@pytest.mark.parametrize("smiles", ["c1ccccc1" * 500, "C" * 3000, "C(O)" * 1499 + "CC", "[CH2]" * 3000])
def test_molecules_of_three_thousand_atoms_are_read(file, tmp_path, smiles):
    file.write_text(file.read_text() + f"\n{smiles},1,1,1,1,train,polymer\n")
    benchmark = Molecules(str(file), "value", split="column", split_column="fold", store=str(tmp_path / "store"))
    benchmark.setup()
    assert int(benchmark.tables["train"].num_nodes.max()) == 3000


def test_baselines_are_fitted_on_the_molecules_that_the_model_trains_on(opened):
    part = opened(target="value", split="column", split_column="fold", train_fraction=0.5)
    rows = part.tables["train"].graph_ids.tolist()
    assert len(rows) == 10
    train, val = [part.tables[split].columns["y"].flatten().tolist() for split in ("train", "val")]
    assert train == pytest.approx([row / 3 for row in rows])
    mean = sum(train) / len(train)
    baselines = part.baseline_predictions()
    assert baselines["training mean"].predictions["val"][:, 0].tolist() == pytest.approx([mean] * len(val), rel=1e-6)
    smiles = [[SMILES[row] for row in rows], part.smiles("val"), part.smiles("test")]
    _, alone = ridge_baseline(smiles, [part.tables[split].columns["y"].numpy() for split in ("train", "val")])
    assert baselines["ridge on Morgan counts"].predictions["test"].tolist() == alone.tolist()


@pytest.fixture
def repeated(tmp_path):
    """Write every molecule of `SMILES` twice, in two spellings, with a weight."""
    spelled = [*SMILES, *(Chem.MolToSmiles(Chem.MolFromSmiles(text), doRandom=True) for text in SMILES)]
    rows = ["smiles,value,weight", *(f"{text},{n % 30},{1 + n % 2}" for n, text in enumerate(spelled))]
    (tmp_path / "repeated.csv").write_text("\n".join(rows))
    return str(tmp_path / "repeated.csv")


@pytest.mark.parametrize("options", [{}, {"split_seed": 4}, {"folds": 4, "fold": 1}])
def test_rows_of_one_molecule_are_in_one_split(repeated, tmp_path, options):
    def split(repeats):
        data = Molecules(repeated, "value", repeats=repeats, store=str(tmp_path / "store"), **options)
        data.setup()
        return {name: {int(row) - 2 for row in data.ids(name)} for name in SPLITS}

    together, apart = split("together"), split("apart")
    for name, rows in together.items():
        assert {row % 30 for row in rows if row < 30} == {row % 30 for row in rows if row >= 30}, name
        assert abs(len(rows) - len(apart[name])) <= 1
    assert set.union(*together.values()) == set.union(*apart.values()) == set(range(60))
    shared = [{row % 30 for row in rows} for rows in apart.values()]
    assert set.intersection(shared[0], shared[1]), "repeats=apart separates equal molecules"


def test_files_without_repeats_are_split_as_ever(opened):
    for options in ({}, {"folds": 3, "fold": 0}):
        assert all(
            opened(target="value", **options).ids(name) == opened(target="value", repeats="apart", **options).ids(name)
            for name in SPLITS
        )


def test_weights_have_mean_one_in_training(repeated, tmp_path):
    data = Molecules(repeated, "value", weight="Weight", store=str(tmp_path / "store"))
    data.setup()
    weights = data.tables["train"].columns["weight"]
    assert float(weights.mean()) == pytest.approx(1)
    odd = torch.tensor([int(row) % 2 for row in data.ids("train")])  # line 2 is row 0, of weight 1
    assert torch.allclose(weights[odd == 1] / weights[odd == 0][0], torch.tensor(2.0))
    assert data.tables["train"].batch([0, 1]).weight.tolist() == weights[:2].tolist()


def test_workbooks_are_refused_before_a_model_is_built(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'graphbench-lightning\[excel\]'"):
        Molecules("own.xlsx", "value")
    with pytest.raises(BadInput, match=r"not from a file that ends in '\.xls'"):
        Molecules("own.xls", "value")


# -- bounds, logarithms and weights of single targets ------------------------------------------------------------------


@pytest.fixture
def assays(tmp_path):
    """Write thirty molecules with a concentration, in part as bounds, and a number with gaps."""
    rows = ["smiles,IC50,logS,trust"]
    for number, smiles in enumerate(SMILES):
        sign = {0: ">", 1: "<= ", 2: "\u2265"}.get(number % 10, "")
        rows.append(f"{smiles},{sign}{10.0 ** (number % 4)},{'' if number % 3 else number},{1 + number % 2}")
    path = tmp_path / "assays.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_bounds_are_no_targets_and_keep_their_numbers(assays, tmp_path):
    data = Molecules(str(assays), ["IC50", "logS"], store=str(tmp_path / "store"), repeats="apart", weight="trust")
    data.setup()
    for split in SPLITS:
        columns = data.tables[split].columns
        for place, name in enumerate(data.ids(split)):
            number = int(name) - 2
            expected = [float("nan")] * 3
            expected[{0: 1, 1: 2, 2: 1}.get(number % 10, 0)] = 10.0 ** (number % 4)
            found = [float(columns[one][place, 0]) for one in ("y", "y_lower", "y_upper")]
            assert found == pytest.approx(expected, nan_ok=True)
            assert columns["y_lower"][place, 1].isnan()
    weights = data.tables["train"].columns["weight"]
    assert float(weights.mean()) == pytest.approx(1)  # rows with bounds are also trained on


def test_logarithms_decide_scores_baselines_and_metric(assays, tmp_path):
    data = Molecules(str(assays), "IC50", log10="IC50", store=str(tmp_path / "store"))
    data.setup()
    assert (data.spec.log10_targets, data.spec.metric) == ((True,), "scaled_MAE")
    y = data.tables["train"].columns["y"].double()
    predictions = data.baseline_predictions()
    geometric = 10 ** float(y.log10().nanmean())
    assert predictions["training mean"].predictions["test"][:, 0].tolist() == pytest.approx([geometric] * 3)
    smiles = [data.smiles(split) for split in SPLITS]
    targets = [data.tables[split].columns["y"].log10().numpy() for split in ("train", "val")]
    expected = 10 ** ridge_baseline(smiles, targets)[1]
    assert predictions["ridge on Morgan counts"].predictions["test"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cell", "words"), [("0", "log10"), ("-3", "log10"), (">0", "log10"), (">high", "not a number"), ("~3", "number")]
)
def test_cells_without_a_logarithm_or_number_are_named_with_their_line(tmp_path, cell, words):
    path = tmp_path / "wrong.csv"
    path.write_text("smiles,IC50,logS\n" + "".join(f"{s},3,1\n" for s in SMILES[:12]) + f"CCO,{cell},2\n")
    with pytest.raises(BadInput, match=rf"wrong\.csv.*\n.*'IC50'.*{words}.*line 14"):
        Molecules(str(path), ["IC50", "logS"], log10=["IC50"], store=str(tmp_path / "store")).setup()
    data = Molecules(str(path), ["IC50", "logS"], log10=["IC50"], on_error="skip", store=str(tmp_path / "store"))
    data.setup()
    assert sum(int(data.tables[split].columns["y"][:, 0].isnan().sum()) for split in SPLITS) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"log10": "other"},
        {"target": "kind", "task": "classification", "num_classes": 3, "log10": "kind"},
        {"target": ["hot", "cold"], "task": "multilabel", "log10": "hot"},
        {"target": "penalized_logp", "log10": "penalized_logp"},
        {"target_weights": [1.0]},
        {"target": ["value", "fold"], "target_weights": [1.0, -1.0]},
        {"target": ["value", "fold"], "target_weights": [0.0, 0.0]},
        {"target": ["value", "fold"], "target_weights": [1.0]},
        {"target": ["value", "fold"], "target_weights": {"other": 1.0}},
    ],
)
def test_options_of_single_targets_that_fit_nothing_are_refused(file, options):
    with pytest.raises(BadInput, match=next(name for name in ("log10", "target_weights") if name in options)):
        Molecules(str(file), **{"target": "value", **options})


def test_weights_of_targets_have_mean_one(file):
    data = Molecules(str(file), ["hot", "cold"], task="multilabel", target_weights={"cold": 3})
    assert data.spec.target_weights == (0.5, 1.5)


def test_bounds_of_a_labelled_file_are_not_scored(assays, tmp_path, caplog):
    data = Molecules(str(assays), ["IC50", "logS"], log10="IC50", store=str(tmp_path / "store"))
    with caplog.at_level("INFO"):
        (part,) = data.read_labelled(str(assays))
    y = part.table.columns["y"]
    assert y[:, 0].isnan().tolist() == [number % 10 < 3 for number in range(30)]
    assert "9 targets are bounds" in caplog.text
