"""Numbers that belong to a molecule: from the file to the head, in training, prediction and export."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import Descriptors
from sklearn.preprocessing import StandardScaler

from graphbench.benchmarks import Molecules
from graphbench.benchmarks.molecules import base
from graphbench.benchmarks.molecules.chemistry import descriptors, reading
from graphbench.benchmarks.molecules.chemistry.descriptors import descriptor_names
from graphbench.benchmarks.molecules.own_features import MoleculeFeatures
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.inference import load
from graphbench.nn.heads import ScaledNumbers

SMILES = [f"{'C' * length}{end}" for length in range(1, 11) for end in ("O", "N", "Cl", "F")]
OPTIONS = {"features": ["pH", "assay"], "categories": {"assay": ["cell", "enzyme"]}}


@pytest.fixture
def frame():
    random = np.random.default_rng(0)
    table = pd.DataFrame({"smiles": SMILES, "pH": random.uniform(100, 104, len(SMILES)).round(3)})
    table["assay"] = np.where(np.arange(len(SMILES)) % 3 == 0, "cell", "enzyme")
    return table.assign(y=3 * table["pH"] - 300 + 2 * (table["assay"] == "cell"))


@pytest.fixture
def file(frame, tmp_path):
    path = tmp_path / "mine.csv"
    frame.to_csv(path, index=False)
    return path


def opened(file, **options):
    data = Molecules(str(file), "y", store=str(file.parent / "store"), **{**OPTIONS, **options})
    data.setup()
    return data


def rows_of(data, frame, split):
    return frame.iloc[[int(line) - 2 for line in data.ids(split)]]


def test_every_graph_has_the_numbers_of_its_row(file, frame):
    data = opened(file, descriptors="rdkit2d")
    assert data.spec.graph.names[:3] == ("pH", "assay=cell", "assay=enzyme")
    assert data.spec.graph.dense == 3 + len(descriptor_names("rdkit2d"))
    for split in ("train", "val", "test"):
        rows, values = rows_of(data, frame, split), data.tables[split].columns["graph_dense"].numpy()
        np.testing.assert_allclose(values[:, 0], rows["pH"], rtol=1e-6)
        np.testing.assert_array_equal(values[:, 1], rows["assay"] == "cell")
        np.testing.assert_array_equal(values[:, 2], rows["assay"] == "enzyme")
        place = 3 + descriptor_names("rdkit2d").index("TPSA")
        tpsa = [Descriptors.TPSA(Chem.MolFromSmiles(text)) for text in rows["smiles"]]
        np.testing.assert_allclose(values[:, place], tpsa, rtol=1e-5)


@pytest.mark.parametrize("columns", [True, False])
def test_descriptors_of_an_input_are_computed_by_the_processes_that_read_it(file, frame, monkeypatch, columns):
    data = opened(file, descriptors="morgan", **({} if columns else {"features": None, "categories": None}))
    for part in (parts := list(data.read_input(str(file), size=7))):
        values = part.table.columns["graph_dense"].numpy()[:, -descriptors.MORGAN_BITS :]
        np.testing.assert_array_equal(values, descriptors.compute_descriptors("morgan", part.frame["smiles"]))
    assert sum(len(part.rows) for part in parts) == len(frame)
    monkeypatch.setattr(base, "available_cores", lambda: 2)
    numbers = lambda kind, texts, workers: np.full((len(texts), 1), os.getpid(), np.float32)  # noqa: E731
    monkeypatch.setattr(reading, "compute_descriptors", numbers)
    processes = {float(part.table.columns["graph_dense"][0, -1]) for part in data.read_input(str(file), size=7)}
    assert processes
    assert os.getpid() not in processes


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads which files are mapped")
def test_descriptors_of_large_files_stay_on_disk(file, monkeypatch):
    data = Molecules(str(file), "y", store=str(file.parent / "store"), descriptors="morgan")
    monkeypatch.setattr(data.store, "map_above", 0)
    monkeypatch.setattr(descriptors, "_CHUNK", 7)
    data.setup()
    values = data.tables["train"].columns["graph_dense"]
    np.testing.assert_array_equal(values, descriptors.compute_descriptors("morgan", data.smiles("train")))
    spans = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    ends = [[int(end, 16) for end in span[0].split("-")] for span in spans if span[-1].endswith("values.npy")]
    assert any(start <= values.data_ptr() < end for start, end in ends)


def test_numbers_are_measured_some_rows_at_a_time(monkeypatch):
    values = 1e4 + torch.randn(1000, 7, generator=torch.Generator().manual_seed(0))
    values[::3, 2], values[:, 3], values[:, 4] = torch.nan, 5.0, torch.nan
    seen, plain, numbers = [], torch.Tensor.double, ScaledNumbers(7)
    monkeypatch.setattr(torch.Tensor, "double", lambda part: seen.append(part.numel()) or plain(part))
    monkeypatch.setattr(ScaledNumbers, "_MOST_AT_ONCE", 100)
    numbers.measure(values)
    assert max(seen) <= 100
    whole = values.numpy().astype(float)
    np.testing.assert_allclose(numbers.mean, np.nan_to_num(np.ma.masked_invalid(whole).mean(0).filled(0.0)), rtol=1e-6)
    varies = [0, 1, 2, 5, 6]
    np.testing.assert_allclose(numbers.rate[varies], 1 / np.nanstd(whole[:, varies], 0), rtol=1e-5)
    assert not numbers.rate[[3, 4]].any()


@pytest.mark.parametrize(
    ("cell", "column", "says"),
    [
        ("", "pH", "'pH' is missing"),
        ("acid", "pH", "'pH' is not a number"),
        ("soil", "assay", "none of the categories"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named_with_its_row(file, frame, cell, column, says):
    data, broken = opened(file), frame.astype(object)
    broken.loc[4, column] = cell
    other = file.with_name("broken.csv")
    broken.to_csv(other, index=False)
    with pytest.raises(BadInput, match=rf"(?s)broken.csv.*{says}.*6"):
        opened(other)
    (part,) = data.read_input(str(other))
    assert list(part.problems) == [4]
    assert says in part.problems[4]
    assert len(part.table) == len(part.rows) == len(frame) - 1
    np.testing.assert_allclose(part.table.columns["graph_dense"][:, 0], np.delete(frame["pH"], 4), rtol=1e-6)


def test_features_that_float32_rounds_to_one_value_are_told(file, frame, caplog):
    frame.assign(pH=[1_700_000_000_000 + n for n in range(len(frame))]).to_csv(file, index=False)
    data = opened(file)
    assert [text for text in caplog.messages if "mine.csv: features (column 0 of 3)" in text]
    assert data.tables["train"].columns["graph_dense"].dtype == torch.float32


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["101", "1.5", "1,020", "2"], [101, 1.5, None, 2]),  # thousands, since the file has points
        (["101", "1,5", "1,020", "2"], [101, 1.5, 1.02, 2]),
    ],
)
def test_numbers_mean_the_same_in_parts_of_any_size(tmp_path, size, cells, values):
    file, other = tmp_path / "a.tsv", tmp_path / "b.tsv"
    for path, column in ((file, [str(n) for n in range(len(SMILES))]), (other, cells)):
        rows = [f"{text}\t{cell}\t1" for text, cell in zip(SMILES, column, strict=False)]
        path.write_text("\n".join(["smiles\tmass\ty", *rows]))
    data = Molecules(str(file), "y", features=["mass"], store=str(tmp_path))
    parts = list(data.read_input(str(other), size=size))
    found = [number for part in parts for number in part.table.columns["graph_dense"][:, 0].tolist()]
    assert found == pytest.approx([value for value in values if value is not None])
    assert sum(len(part.problems) for part in parts) == values.count(None)


def test_inputs_without_the_columns_are_refused(file, frame):
    data, other = opened(file), file.with_name("other.csv")
    frame.drop(columns="pH").to_csv(other, index=False)
    with pytest.raises(BadInput, match="no column 'pH'"):
        list(data.read_input(str(other)))
    with pytest.raises(BadInput, match="pH, assay"):
        list(data.read_objects(["CCO"]))


@pytest.mark.parametrize(
    "options",
    [
        {"columns": ("a", "a")},
        {"columns": ("a",), "categories": {"b": ["x", "y"]}},
        {"columns": ("a",), "categories": {"a": ["x"]}},
        {"columns": ("a",), "categories": {"a": ["x", "x"]}},
        {"descriptors": "mordred"},
    ],
)
def test_options_that_contradict_each_other_are_refused(options):
    with pytest.raises(BadInput):
        MoleculeFeatures(**options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train a model whose target depends only on the columns."""
    folder = tmp_path_factory.mktemp("beside")
    random = np.random.default_rng(1)
    count = 160
    table = pd.DataFrame({"smiles": [SMILES[n % len(SMILES)] for n in range(count)]})
    table["pH"] = random.uniform(100, 104, count).round(3)
    table["assay"] = random.choice(["cell", "enzyme"], count)
    table["y"] = 3 * (table["pH"] - 102) + 2 * (table["assay"] == "cell")
    table.to_csv(folder / "mine.csv", index=False)
    options = ["--data.features", "[pH, assay]", "--data.categories", "{assay: [cell, enzyme]}"]
    arguments = [
        "fit", "--data", "Molecules", "--data.file", str(folder / "mine.csv"), "--data.target", "y", *options,
        "--data.descriptors", "rdkit2d", "--data.repeats", "apart", "--data.store", str(folder / "store"),
        "--model.architecture", "GCN",
        "--model.architecture.hidden_dim", "16", "--model.architecture.num_layers", "1",
        "--model.optimizer", "Adam", "--model.optimizer.lr", "0.01", "--trainer.max_epochs", "60",
        "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false", "--run", str(folder / "run"),
    ]  # fmt: skip
    assert main(arguments) == 0
    return folder, table


def test_the_head_sees_numbers_scaled_by_training_rows(run):
    loaded = load(run[0] / "run")
    data = loaded.data
    data.setup()
    numbers = loaded.module.task.head.numbers
    train = data.tables["train"].columns["graph_dense"]
    varied = train.double().std(0) > 1e-5 * train.double().mean(0).abs()
    expected = StandardScaler().fit_transform(train[:, varied].double().numpy())
    np.testing.assert_allclose(numbers(train)[:, varied], expected.clip(-10, 10), atol=1e-3)
    assert (numbers(train)[:, ~varied] == 0).all()


def test_a_target_of_the_columns_alone_is_learned_and_predict_gives_the_test_predictions(run):
    folder, table = run
    assert (
        main(["predict", "--run", str(folder / "run"), "--split", "test", "--output", str(folder / "split.csv")]) == 0
    )
    split = pd.read_csv(folder / "split.csv")
    assert (split["prediction_y"] - split["target_y"]).abs().mean() < 0.25 * table["y"].std()
    rows = table.iloc[[int(line) - 2 for line in split["id"]]]
    rows.drop(columns="y").to_csv(folder / "new.csv", index=False)
    new = ["--input", str(folder / "new.csv"), "--output", str(folder / "answers.csv")]
    assert main(["predict", "--run", str(folder / "run"), *new]) == 0
    answers = pd.read_csv(folder / "answers.csv")
    np.testing.assert_allclose(answers["prediction_y"], split["prediction_y"], rtol=1e-5, atol=1e-5)


def test_the_exported_program_takes_the_numbers(run):
    from graphbench.inference.exporting.program import export_program

    module = load(run[0] / "run").module
    _, fields = export_program(module, module.spec)  # compares it with the model
    assert fields.axes["graph_dense"] == "graph"
