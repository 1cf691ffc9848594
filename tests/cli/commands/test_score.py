"""`graphbench test` and `predict` on a finished run, against each other and against NumPy."""

from __future__ import annotations

import json
import os
import re
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from sklearn.metrics import mean_absolute_error

from graphbench.cli import console, main
from graphbench.cli.split_predictions import KeepPredictions


@pytest.mark.usefixtures("with_report")
def test_test_reproduces_the_stored_validation_score_exactly(finished_run, caplog):
    stored = json.loads((finished_run / "results.json").read_text())["val"]
    assert main(["test", "--run", str(finished_run)]) == 0
    results = json.loads((finished_run / "results.json").read_text())
    assert results["val"] == stored
    assert set(results["test"]) == {"test/loss", "test/MAE", "test/RMSE"}
    assert (finished_run / "report.html").is_file()


def test_many_scores_get_a_row_each_and_none_is_cut(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    metrics = ["R2", "Pearson", "Spearman", "MSE", "explained_variance"]
    assert main(["test", "--run", str(run), "--model.metrics", json.dumps(metrics)]) == 0
    results = json.loads((run / "results.json").read_text())
    shown = capsys.readouterr().out
    assert "…" not in shown
    rows = {line[1].strip(): line[2].strip() for line in (line.split("│") for line in shown.splitlines()) if line[1:]}
    expected = {key.replace("/", " "): f"{value:#.4g}" for key, value in results["test"].items() if key != "test/loss"}
    assert len(expected) == 2 + len(metrics)
    assert expected.items() <= rows.items()
    assert {name.replace("test", "val") for name in expected} <= rows.keys()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_rows_and_columns_change_places_where_a_line_is_too_short(width, monkeypatch, capsys):
    monkeypatch.setattr(console, "console", lambda: Console(width=width, highlight=False))
    header = ["model", *(f"{split} some_metric_{number}" for split in ("val", "test") for number in range(4))]
    rows = [["Mine", *(f"{number}.1234" for number in range(8))], ["median", *["-"] * 8]]
    console.show_table("scores", header, rows, corner="score")
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    wide = width == 200
    assert lines == (rows if wide else [list(line) for line in zip(header, *rows, strict=True)][1:])
    assert ("score" in shown.split("\n")[2]) == (not wide)
    console.show_table("scores", header, rows)
    assert "…" not in capsys.readouterr().out


def test_predictions_give_the_test_score(finished_run, tmp_path):
    main(["test", "--run", str(finished_run)])
    results = json.loads((finished_run / "results.json").read_text())["test"]
    for name in ("p.csv", "p.parquet"):
        assert main(["predict", "--run", str(finished_run), "--output", str(tmp_path / name)]) == 0
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns) == ["id", "smiles", "prediction_length", "target_length"]
    assert len(table) == 12
    error = (table["prediction_length"] - table["target_length"]).to_numpy()
    assert np.abs(error).mean() == pytest.approx(results["test/MAE"], rel=1e-5)
    assert np.sqrt((error**2).mean()) == pytest.approx(results["test/RMSE"], rel=1e-5)
    columnar = pd.read_parquet(tmp_path / "p.parquet")
    assert columnar["prediction_length"].to_numpy() == pytest.approx(table["prediction_length"].to_numpy(), rel=1e-5)


def test_test_keeps_what_it_predicted(finished_run, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    assert main(["test", "--run", str(run)]) == 0
    results = json.loads((run / "results.json").read_text())
    for split in ("val", "test"):
        kept = pd.read_csv(run / f"predictions-{split}.csv")
        assert mean_absolute_error(kept["target_length"], kept["prediction_length"]) == pytest.approx(
            results[split][f"{split}/MAE"]
        )
        assert main(["predict", "--run", str(run), "--split", split, "--output", str(tmp_path / "p.csv")]) == 0
        pd.testing.assert_frame_equal(kept, pd.read_csv(tmp_path / "p.csv"))


def test_intervals_stay_until_the_weights_change(finished_run, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    predictions = run / "predictions-test.csv"
    assert main(["predict", "--run", str(run), "--interval", "0.5"]) == 0
    before, best = predictions.read_bytes(), run / "checkpoints" / "best.ckpt"
    assert b"_low" in before
    later = predictions.stat().st_mtime + 3600
    os.utime(best, (later, later))  # as by a clock set back since, or in a copy
    assert main(["test", "--run", str(run)]) == 0
    assert predictions.read_bytes() == before
    other = torch.load(best, weights_only=True)
    other["state_dict"] = {name: 1.01 * values for name, values in other["state_dict"].items()}
    torch.save(other, best)
    os.utime(best, (later - 9999, later - 9999))
    assert main(["test", "--run", str(run)]) == 0
    assert b"_low" not in predictions.read_bytes()
    assert not {"intervals", "predicted_by"} & json.loads((run / "results.json").read_text()).keys()


def test_intervals_of_an_earlier_version_stay_by_the_time_of_the_weights(finished_run, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    assert main(["predict", "--run", str(run), "--interval", "0.5"]) == 0
    results = json.loads((run / "results.json").read_text())
    del results["predicted_by"]
    (run / "results.json").write_text(json.dumps(results))
    later = (run / "predictions-test.csv").stat().st_mtime + 10
    for time, stays in ((later - 99, True), (later, False)):
        os.utime(run / "checkpoints" / "best.ckpt", (time, time))
        assert main(["test", "--run", str(run)]) == 0
        assert (b"_low" in (run / "predictions-test.csv").read_bytes()) == stays


def test_a_process_without_a_batch_of_a_split_takes_part(monkeypatch):
    """With one graph on two processes, the second has no predictions and must still gather."""
    batch = {"graph": torch.tensor([0]), "prediction": torch.zeros(1, 1)}
    gathered = []

    def gather(parts, own):
        gathered.append(own)
        parts[:] = [[batch], own]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    monkeypatch.setattr(
        "graphbench.cli.split_predictions.table", lambda data, columns, split: columns["graph"].tolist()
    )
    assert KeepPredictions().tables(None, ["val", "test"], 2) == {"val": [0], "test": [0]}
    assert gathered == [[], []]
    assert KeepPredictions().tables(None, ["test"], 1) == {}


def test_too_many_predictions_are_not_kept(finished_run, tmp_path, monkeypatch):
    run = shutil.copytree(finished_run, tmp_path / "run", ignore=shutil.ignore_patterns("predictions-*"))
    monkeypatch.setattr("graphbench.cli.commands.score.KeepPredictions", partial(KeepPredictions, most=30))
    assert main(["test", "--run", str(run)]) == 0
    assert not list(run.glob("predictions-*"))


def test_batch_size_does_not_change_a_score(finished_run, tmp_path):
    tables = []
    for size in ("1", "50"):
        path = tmp_path / f"{size}.csv"
        assert main(["predict", "--run", str(finished_run), "--data.eval_batch_size", size, "--output", str(path)]) == 0
        tables.append(pd.read_csv(path))
    assert list(tables[0]["id"]) == list(tables[1]["id"])
    assert tables[0]["prediction_length"].to_numpy() == pytest.approx(
        tables[1]["prediction_length"].to_numpy(), abs=1e-4
    )


def test_any_split_can_be_predicted_and_others_are_refused(finished_run, tmp_path, capsys):
    assert main(["predict", "--run", str(finished_run), "--split", "train", "--output", str(tmp_path / "t.csv")]) == 0
    assert len(pd.read_csv(tmp_path / "t.csv")) == 96
    assert main(["predict", "--run", str(finished_run), "--split", "holdout"]) == 1
    assert "must be one of train, val, test" in capsys.readouterr().err
    assert main(["predict", "--run", str(finished_run), "--output", "p.xlsx"]) == 1
    assert ".csv or .parquet" in capsys.readouterr().err


def test_a_run_without_checkpoint_says_so(finished_run, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text((finished_run / "config.yaml").read_text())
    assert main(["test", "--run", str(tmp_path)]) == 1
    assert "There is no checkpoint" in capsys.readouterr().err


def test_a_truncated_checkpoint_is_named(finished_run, tmp_path, capsys):
    torn = tmp_path / "torn.ckpt"
    whole = (finished_run / "checkpoints" / "best.ckpt").read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])
    assert main(["test", "--run", str(finished_run), "--checkpoint", str(torn)]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.usefixtures("with_report")
def test_scores_stand_beside_what_the_configuration_expects(finished_run, capsys):
    """The stored length tells whether the run is complete; another checkpoint than the run's has none."""
    expected = ["--expected.metric", "test/MAE", "--expected.value", "9.5", "--expected.sd", "1.5"]
    assert main(["test", "--run", str(finished_run), *expected, "--expected.epochs", "3"]) == 0
    score = json.loads((finished_run / "results.json").read_text())["test"]["test/MAE"]
    stored = json.loads((finished_run / "results.json").read_text())["expected"]
    assert stored["obtained"] == score
    assert stored["better"] == pytest.approx(9.5 - score)
    out = capsys.readouterr().out
    assert f"test/MAE {score:.4f}, expected 9.5000 ± 1.5000: {stored['verdict']}." in out
    row = next(line for line in out.splitlines() if line.startswith("│ expected"))
    assert [cell.strip() for cell in row.split("│")[2:-1]] == ["-", "-", "9.5000 ± 1.5000", "-", "-"]
    assert "Compared with what the configuration expects" in (finished_run / "report.html").read_text()
    other = ["--model.metrics", "[R2]", "--expected.metric", "test/R2", "--expected.value", "-99"]
    assert main(["test", "--run", str(finished_run), *other]) == 0
    assert re.search(r"test/R2 \S+, expected -99\.0000: \S+ better; no standard deviation", capsys.readouterr().out)
    options = [*expected, "--expected.epochs", "200", "--expected.data", "published"]
    assert main(["test", "--run", str(finished_run), *options]) == 0
    assert "not comparable: 3 of 200 epochs; local data where published ones are expected." in capsys.readouterr().out
    last = str(finished_run / "checkpoints" / "last.ckpt")
    assert main(["test", "--run", str(finished_run), "--checkpoint", last, *options]) == 0
    assert "the number of epochs is not recorded, 200 are expected" in capsys.readouterr().out
    assert main(["test", "--run", str(finished_run)]) == 0
    assert "expected" not in json.loads((finished_run / "results.json").read_text())
