"""Ensembles against the answers of their members, in Python and on the command line."""

from __future__ import annotations

import io
import json
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from command_line import SMALL_MODEL
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from graphbench import build
from graphbench.benchmarks import CSL, ZINC, MolHIV, MolPCBA, QM9Contacts
from graphbench.benchmarks.molecules import base as molecules
from graphbench.benchmarks.molecules.chemistry.files import stream_molecules
from graphbench.cli import main
from graphbench.data import progress
from graphbench.encodings import RWSE
from graphbench.errors import BadInput
from graphbench.inference import Ensemble, Predictor
from graphbench.inference.predictor import parts_of_split
from graphbench.nn import RWSEEncoder

SMILES = [ring + chain for chain in ("", "C", "O", "CC", "N") for ring in (f"C1{'C' * size}C1" for size in range(1, 9))]

LEARNING = ("--trainer.max_epochs", "6", "--model.optimizer.lr", "0.01")


def untrained(benchmark, seed, options=None):
    torch.manual_seed(seed)
    module, data = build("GPS", benchmark, model_options={"hidden_dim": 16, "num_layers": 1, **(options or {})})
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    return Predictor(module, data, None, trainer)


@pytest.mark.parametrize(("benchmark", "column"), [(ZINC, "penalized_logp"), (MolHIV, None)])
def test_mean_and_spread_are_those_of_the_members(benchmark, column):
    members = [untrained(benchmark(), seed) for seed in range(3)]
    inputs = ["CCO", "C1CC", "c1ccccc1N"]
    frame = Ensemble(members).predict(inputs)
    told = "prediction" if benchmark is ZINC else "probability"
    column = (
        column
        if benchmark is ZINC
        else next(name for name in members[0].predict("C") if name.startswith("probability_"))[len("probability_") :]
    )
    alone = np.stack([member.predict(inputs)[f"{told}_{column}"].to_numpy(float) for member in members])
    assert np.ptp(alone[:, 0]) > 1e-3
    assert frame[f"{told}_{column}"].to_numpy(float) == pytest.approx(alone.mean(0), abs=1e-6, nan_ok=True)
    spread = np.sqrt(((alone - alone.mean(0)) ** 2).sum(0) / 2)
    assert frame[f"spread_{column}"].to_numpy(float) == pytest.approx(spread, abs=1e-6, nan_ok=True)
    assert frame["problem"][1].startswith("RDKit cannot read")
    assert frame[f"spread_{column}"].isna().tolist() == [False, True, False]


def test_one_member_is_the_predictor_itself():
    member = untrained(ZINC(), 0)
    pd.testing.assert_frame_equal(Ensemble([member]).predict(["CCO", "C1CC"]), member.predict(["CCO", "C1CC"]))


def test_models_that_read_alike_share_a_reader_and_each_encoding(tmp_path, monkeypatch):
    """Three models with one encoding read and encode a file once; the bits are those of separate readers."""
    read, encoded = [], []
    compute, stream = RWSE.compute, stream_molecules
    members = [untrained(ZINC(), seed, {"positional_encoders": [RWSEEncoder(4, 2)]}) for seed in range(3)]
    assert all(isinstance(encoding, RWSE) for member in members for encoding in member.data.encodings)
    monkeypatch.setattr(molecules, "stream_molecules", lambda *words: read.append(words) or stream(*words))
    monkeypatch.setattr(RWSE, "compute", lambda *words: encoded.append(words) or compute(*words))
    (tmp_path / "new.smi").write_text("".join(f"{smiles}\n" for smiles in [*SMILES, "C1CC"]))
    together = Ensemble(members)
    shared = pd.concat(together.predict_input(str(tmp_path / "new.smi")))
    assert (together.readings, len(read), len(encoded)) == (1, 1, 1)
    monkeypatch.setattr(ZINC, "input_recipe", lambda self: None)
    apart = Ensemble(members)
    pd.testing.assert_frame_equal(pd.concat(apart.predict_input(str(tmp_path / "new.smi"))), shared, check_exact=True)
    assert (apart.readings, len(read), len(encoded)) == (3, 4, 4)


def test_a_graph_that_one_encoding_fails_on_is_a_problem_of_its_row(monkeypatch):
    members = [untrained(ZINC(), seed, {"positional_encoders": [RWSEEncoder(4, 2)]}) for seed in range(2)]
    compute = RWSE.compute

    def compute_or_fail(self, graphs):
        if 3 in graphs.num_nodes.tolist():
            raise ValueError("three nodes")
        return compute(self, graphs)

    monkeypatch.setattr(RWSE, "compute", compute_or_fail)
    frame = Ensemble(members).predict(["CCO", "CCCO"])
    assert ["three nodes" in problem for problem in frame["problem"]] == [True, False]
    assert frame["prediction_penalized_logp"].isna().tolist() == [True, False]


def test_what_is_no_member_is_refused():
    with pytest.raises(BadInput, match=r"must come from `graphbench.load`, but got str"):
        Ensemble(["runs/mine"])


def test_a_row_that_one_member_cannot_answer_has_its_problem():
    members = [untrained(ZINC(), seed) for seed in range(2)]
    members[1].module.task.offset.fill_(torch.nan)
    frame = Ensemble(members).predict(["CCO"])
    assert frame["problem"].tolist() == ["the model's answer is not a finite number"]
    assert frame["prediction_penalized_logp"].isna().all()


def test_other_benchmarks_and_tasks_are_refused():
    zinc = untrained(ZINC(), 0)
    with pytest.raises(BadInput, match="one benchmark: R1 has ZINC, R2 has MolHIV"):
        Ensemble([zinc, untrained(MolHIV(), 0)], ["R1", "R2"])
    with pytest.raises(BadInput, match="at least one model"):
        Ensemble([])
    with pytest.raises(BadInput, match="QM9Contacts cannot predict new inputs: link-ranking"):
        Ensemble([untrained(QM9Contacts(), 0)])
    with pytest.raises(BadInput, match="--interval is for regressions and classifications of whole graphs; MolPCBA"):
        Ensemble([untrained(MolPCBA(), 0)]).add_intervals("0.9")
    for members, by in (
        ([untrained(CSL(), 0)], "spread"), ([zinc], "class"), ([zinc], "spread"), ([zinc], "time"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=f"--interval-by.*{by}"):
            Ensemble(members).add_intervals("0.9", [by])
    with pytest.raises(BadInput, match="--calibrate is for classes and labels; ZINC is graph-regression"):
        Ensemble([zinc]).calibrate()
    with pytest.raises(BadInput, match=r"the data of member 0 are not open; call setup\(\)"):
        Ensemble([zinc]).add_intervals(0.9)


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Write `mine.csv` and return a function that fits a run on it and returns its folder."""
    folder = tmp_path_factory.mktemp("together")
    rng = np.random.default_rng(0)
    rows = [f"{s}.{t},{len(s) + rng.normal():.3f},{int(len(s) + rng.normal() * 3 > 9)}" for s in SMILES
            for t in ("CCO", "CCN")]  # fmt: skip
    (folder / "mine.csv").write_text("smiles,y,kind\n" + "\n".join(rows) + "\n")
    done = {}

    def fitted(name, seed, *options, target="y"):
        if name not in done:
            kind = ["--data.task", "classification", "--data.num_classes", "2"] if target == "kind" else []
            data = ["--data", "Molecules", "--data.file", str(folder / "mine.csv"), "--data.target", target, *kind,
                    "--data.root", str(folder / "data"), "--data.fractions", "[0.4, 0.3, 0.3]"]  # fmt: skip
            steps = ["--trainer.max_epochs", "2", "--seed_everything", str(seed), "--run", str(folder / name)]
            assert main(["fit", *data, *SMALL_MODEL, *steps, *options]) == 0
            done[name] = folder / name
        return str(done[name])

    return fitted


def refused(capsys, *arguments):
    """Run a command that must fail and return its one error line."""
    capsys.readouterr()
    assert main(["predict", *map(str, arguments)]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("graphbench: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.slow
def test_runs_answer_a_file_and_standard_input_together(place, tmp_path, monkeypatch):
    runs = [place("a", 0), place("b", 1)]
    (tmp_path / "new.smi").write_text("CCO\nC1CC\nc1ccccc1\n")
    alone = []
    for run in runs:
        assert (
            main(["predict", "--run", run, "--input", str(tmp_path / "new.smi"), "--output", str(tmp_path / "one.csv")])
            == 0
        )
        alone.append(pd.read_csv(tmp_path / "one.csv")["prediction_y"].to_numpy())
    for source in (str(tmp_path / "new.smi"), "-"):
        monkeypatch.setattr("sys.stdin", io.StringIO((tmp_path / "new.smi").read_text()))
        output = tmp_path / "both.csv"
        assert main(["predict", "--run", *runs, "--input", source, "--output", str(output)]) == 0
        frame = pd.read_csv(output)
        assert list(frame)[-4:] == ["prediction_y", "spread_y", "outside_training", "problem"]
        assert frame["prediction_y"].to_numpy() == pytest.approx(np.mean(alone, 0), abs=1e-5, nan_ok=True)
        assert frame["spread_y"].to_numpy() == pytest.approx(np.std(alone, 0, ddof=1), abs=1e-5, nan_ok=True)
        assert frame["problem"].isna().tolist() == [True, False, True]


def test_intervals_have_the_width_of_the_validation_errors(place, tmp_path, monkeypatch, capsys):
    """By hand: k = ceil(0.9 * (24 + 1)) = 23 of the 24 errors of the validation split, for one run and for two."""
    monkeypatch.setattr(progress, "DELAY", -1.0)
    runs = [place("a", 0), place("b", 1)]
    files = []
    for number, run in enumerate(runs):
        files.append(tmp_path / f"val-{number}.csv")
        assert main(["predict", "--run", run, "--split", "val", "--output", str(files[-1])]) == 0
    val = [pd.read_csv(file) for file in files]
    for chosen, shown in ((runs[:1], val[:1]), (runs, val)):
        means = np.mean([frame["prediction_y"] for frame in shown], 0)
        errors = np.sort(np.abs(means - shown[0]["target_y"].to_numpy()))
        assert len(errors) == 24
        output = tmp_path / "test.csv"
        assert main(["predict", "--run", *chosen, "--interval", "0.9", "--output", str(output)]) == 0
        assert "--interval: predicting the validation split: 24 of 24 graphs so far" in capsys.readouterr().err
        frame = pd.read_csv(output)
        extra = ["spread_y"] if len(chosen) > 1 else []
        assert list(frame) == ["id", "smiles", "prediction_y", "target_y", *extra, "y_low", "y_high"]
        assert (frame["prediction_y"] - frame["y_low"]).to_numpy() == pytest.approx(errors[22], abs=1e-4)
        assert (frame["y_high"] - frame["prediction_y"]).to_numpy() == pytest.approx(errors[22], abs=1e-4)
    (tmp_path / "new.smi").write_text("CCO\nC1CC\n")
    new = ["--input", str(tmp_path / "new.smi"), "--output", str(tmp_path / "new.parquet")]
    assert main(["predict", "--run", *runs, "--interval", "0.9", *new]) == 0
    table = pd.read_parquet(tmp_path / "new.parquet")
    assert list(table)[-6:] == ["prediction_y", "spread_y", "y_low", "y_high", "outside_training", "problem"]
    assert table["y_high"][0] - table["y_low"][0] == pytest.approx(2 * errors[22], abs=1e-4)
    assert table["y_low"].isna().tolist() == [False, True]


@pytest.mark.slow
def test_the_run_says_what_its_intervals_state(place, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(place("a", 0), folder)
    assert main(["predict", "--run", str(folder), "--interval", "0.5"]) == 0
    said = json.loads((folder / "results.json").read_text())["intervals"]
    frame = pd.read_csv(folder / "predictions-test.csv")
    assert said["coverage"] == 0.5
    assert said["rows"] == {"y": 24}
    assert (frame["y_high"] - frame["prediction_y"]).iloc[0] == pytest.approx(said["half_widths"]["y"], rel=1e-4)
    assert main(["test", "--run", str(folder)]) == 0
    assert main(["report", str(folder), "--output", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "report.html").read_text()
    inside = int(frame["target_y"].between(frame["y_low"], frame["y_high"]).sum())
    assert f"{inside} of {len(frame)} known test targets are in their intervals" in page
    assert "they state 0.5." in page
    worst = (frame["target_y"] - frame["prediction_y"]).abs().nlargest(6).index
    assert all(f'aria-label="{smiles}"' in page for smiles in frame["smiles"][worst])
    assert main(["predict", "--run", str(folder)]) == 0
    assert "intervals" not in json.loads((folder / "results.json").read_text())
    assert "y_low" not in pd.read_csv(folder / "predictions-test.csv")


@pytest.mark.slow
def test_intervals_by_distance_and_spread_are_those_of_each_bin(place, tmp_path, monkeypatch, capsys):
    """By hand from the predictions and the fingerprints of RDKit: 24 validation rows in two bins."""
    monkeypatch.setattr("graphbench.inference.distance_bins._MIN_ROWS", 8)
    monkeypatch.setattr("graphbench.inference.distance_bins._MAX_BINS", 2)
    monkeypatch.setattr("graphbench.inference.ensemble.parts_of_split", partial(parts_of_split, size=7))
    runs, frames = [place("a", 0), place("b", 1)], {}
    for split in ("train", "val", "test"):
        output = ["--split", split, "--output", str(tmp_path / f"{split}.csv")]
        assert main(["predict", "--run", *runs, *output]) == 0
        frames[split] = pd.read_csv(tmp_path / f"{split}.csv")
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    bits = {
        split: [morgan.GetFingerprint(Chem.MolFromSmiles(s)) for s in frame["smiles"]]
        for split, frame in frames.items()
    }
    far = {split: np.array([1 - max(DataStructs.BulkTanimotoSimilarity(one, bits["train"])) for one in bits[split]])
           for split in bits}  # fmt: skip
    floor = frames["train"]["target_y"].std(ddof=0) / 10
    val, test = frames["val"], frames["test"]
    edge = np.sort(far["val"])[11]
    scores = np.abs(val["target_y"] - val["prediction_y"]) / (val["spread_y"] + floor)
    low = [
        np.sort(scores[mask])[int(np.ceil((mask.sum() + 1) * 0.8)) - 1]
        for mask in (far["val"] <= edge, far["val"] > edge)
    ]
    width = np.where(far["test"] <= edge, *low) * (test["spread_y"] + floor)
    stated = ["--interval", "0.8", "--interval-by", "distance,spread"]
    assert main(["predict", "--run", *runs, *stated, "--output", str(tmp_path / "out.csv")]) == 0
    found = pd.read_csv(tmp_path / "out.csv")
    assert found["distance_to_training"].to_numpy() == pytest.approx(far["test"], abs=1e-6)
    assert (found["y_high"] - found["prediction_y"]).to_numpy() == pytest.approx(width.to_numpy(), rel=1e-3)
    inside = int(((found["y_low"] <= found["target_y"]) & (found["target_y"] <= found["y_high"])).sum())
    assert f"y, the test split: {inside} of {len(found)} known targets are covered" in capsys.readouterr().err
    test[["smiles"]].to_csv(tmp_path / "new.csv", index=False)
    new = ["--input", str(tmp_path / "new.csv"), "--output", str(tmp_path / "new.parquet")]
    assert main(["predict", "--run", *runs, *stated, *new]) == 0
    again = pd.read_parquet(tmp_path / "new.parquet")
    for name in ("y_low", "y_high", "distance_to_training"):
        assert again[name].to_numpy() == pytest.approx(found[name].to_numpy(), rel=1e-3)


@pytest.mark.slow
def test_classes_get_sets(place, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(place("kinds", 0, *LEARNING, target="kind"), folder)
    frames = {}
    for split in ("val", "test"):
        words = ["--split", split] if split == "val" else ["--interval", "0.8"]
        assert main(["predict", "--run", str(folder), *words]) == 0
        frames[split] = pd.read_csv(folder / f"predictions-{split}.csv", keep_default_na=False)
    val, test = frames["val"], frames["test"]
    true = np.where(val["target_kind"] == 1, val["probability_1"], val["probability_0"])
    threshold = np.sort(true)[::-1][20 - 1]  # ceil(0.8 * 25) = 20 of 24
    expected = [
        " | ".join(str(k) for k in (0, 1) if row[f"probability_{k}"] >= threshold) for _, row in test.iterrows()
    ]
    assert test["set_kind"].astype(str).tolist() == expected
    said = json.loads((folder / "results.json").read_text())["intervals"]
    assert said["thresholds"] == pytest.approx({"0": threshold, "1": threshold}, rel=1e-4)
    assert main(["test", "--run", str(folder)]) == 0
    assert main(["report", str(folder), "--output", str(tmp_path / "report")]) == 0


@pytest.mark.slow
def test_a_calibrated_run_says_its_temperature(place, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(place("kinds", 0, *LEARNING, target="kind"), folder)
    frames = []
    for options in ([], ["--calibrate"]):
        assert main(["predict", "--run", str(folder), *options]) == 0
        frames.append(pd.read_csv(folder / "predictions-test.csv"))
    before, after = (np.log(frame["probability_1"] / frame["probability_0"]) for frame in frames)
    said = json.loads((folder / "results.json").read_text())["temperature"]
    assert (before / after).to_numpy() == pytest.approx(said, rel=1e-3)  # logits / T for one T
    assert said != pytest.approx(1, rel=1e-3)


def test_wrong_requests_are_one_line_before_anything_is_written(place, tmp_path, capsys, monkeypatch):
    a, b, kinds = (
        place("a", 0),
        place("b", 1),
        place("kinds", 0, *LEARNING, target="kind"),
    )
    other = place("other", 0, "--data.split_seed", "7")
    output = ["--output", str(tmp_path / "out.csv")]
    (tmp_path / "new.smi").write_text("CCO\n")
    new = ["--input", tmp_path / "new.smi", *output]
    assert "An ensemble needs one task" in refused(capsys, "--run", a, kinds, *new)
    assert f"--run names {a} twice" in refused(capsys, "--run", a, b, a, *new)
    assert "--checkpoint names a file of one run" in refused(capsys, "--run", a, b, "--checkpoint", "c.ckpt", *new)
    assert "is not the folder of a run" in refused(capsys, "--run", a, tmp_path, *new)
    assert "needs the same val split" in refused(capsys, "--run", a, other, "--interval", "0.9", *new)
    assert "--split test of several runs needs the same test split" in refused(capsys, "--run", a, other, *output)
    assert "24 rows with a prediction" in refused(capsys, "--run", a, "--interval", "0.99", *new)
    assert "this coverage needs at least 99" in refused(capsys, "--run", a, "--interval", "0.99", *output)
    assert "need 50 validation rows" in refused(
        capsys, "--run", a, "--interval", "0.9", "--interval-by", "distance", *output
    )
    for module in ("commands.predict", "split_predictions"):  # refused before the data of any run are read
        monkeypatch.setattr(f"graphbench.cli.{module}.open_data", lambda *_: pytest.fail("data were opened"))
    for source in (new, output):
        assert "--interval 90: must be the coverage" in refused(capsys, "--run", a, "--interval", "90", *source)
        assert "needs --interval" in refused(capsys, "--run", a, "--interval-by", "distance", *source)
        assert "--calibrate is for classes" in refused(capsys, "--run", a, b, "--calibrate", *source)
    assert "in one process" in refused(
        capsys, "--run", a, "--interval", "0.9", "--interval-by", "distance", "--trainer.devices", "2", *new
    )
    assert "one model has no spread" in refused(
        capsys, "--run", a, "--interval", "0.9", "--interval-by", "spread", *new
    )
    assert "use distance or class" in refused(
        capsys, "--run", kinds, "--interval", "0.9", "--interval-by", "spread", *new
    )
    assert "--output is missing" in refused(capsys, "--run", a, b)
    assert not (tmp_path / "out.csv").exists()
