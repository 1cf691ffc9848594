"""Fits without a validation part run to the end; what needs its scores is left out with a message or refused."""

import json

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from own_graphs import make_graphs

from graphbench.benchmarks import Graphs
from graphbench.cli import main

MODEL = [
    "--model.architecture", "GPS",
    "--model.architecture.hidden_dim", "8",
    "--model.architecture.num_layers", "1",
    "--trainer.accelerator", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "graphs.pt"
    torch.save(make_graphs(30), path)
    return path


@pytest.fixture
def fit(graphs, tmp_path):
    def fit(fractions, *options, epochs=3):
        data = ["--data", "Graphs", "--data.source", str(graphs), "--data.target", "y", "--data.root", str(tmp_path)]
        words = [*data, "--data.fractions", str(list(fractions)), *MODEL, "--trainer.max_epochs", str(epochs)]
        return main(["fit", *words, *options, "--run", str(tmp_path / "run")]), tmp_path / "run"

    return fit


def test_a_final_model_trains_on_everything_to_the_last_epoch(fit, graphs, tmp_path, capsys):
    stop = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/accuracy",
            "--trainer.callbacks.patience=1"]  # fmt: skip
    code, run = fit((1, 0, 0), *stop, "--trainer.max_steps", "5000")  # the first of two limits ends it
    said = capsys.readouterr().err
    assert code == 0
    assert "EarlyStopping on val/accuracy" in said
    assert "3 epochs" in said
    assert "No test part" in said
    results = json.loads((run / "results.json").read_text())
    assert results["epochs"] == 3
    assert "val" not in results
    assert "best_epoch" not in results
    assert not (run / "checkpoints" / "best.ckpt").exists()
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 2
    output = tmp_path / "p.csv"
    assert main(["predict", "--run", str(run), "--input", str(graphs), "--output", str(output)]) == 0
    assert len(pd.read_csv(output)) == 30
    assert main(["report", str(run)]) == 0
    for command in (["test"], ["validate"], ["predict", "--output", str(output)]):
        capsys.readouterr()
        assert main([*command, "--run", str(run)]) == 1
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("graphbench:")]
        assert len(lines) == 1
        assert "fractions" in lines[0]
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "4"]) == 0
    assert json.loads((run / "results.json").read_text())["epochs"] == 4


@pytest.mark.parametrize("limit", [("limit_val_batches", "0"), ("check_val_every_n_epoch", "3")])
def test_a_fit_that_validates_nothing_says_so_and_is_tested(fit, capsys, limit):
    stop = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/accuracy"]
    code, run = fit((0.6, 0.2, 0.2), *stop, f"--trainer.{limit[0]}", limit[1], epochs=2)
    said = capsys.readouterr().err
    assert code == 0
    assert limit[0] in said
    assert "EarlyStopping on val/accuracy" in said
    assert "val" not in json.loads((run / "results.json").read_text())
    assert main(["test", "--run", str(run)]) == 0
    assert "DIFFER" not in capsys.readouterr().err
    assert "test/accuracy" in json.loads((run / "results.json").read_text())["test"]


def test_all_rows_are_trained_on(graphs, tmp_path):
    data = Graphs(str(graphs), target="y", fractions=(1, 0, 0), root=str(tmp_path))
    data.prepare_data()
    data.setup()
    seen = sorted(torch.cat([batch.graph_id for batch in data.train_dataloader()]).tolist())
    assert seen == list(range(30))
    assert data.val_dataloader() == []


def test_a_run_without_validation_is_tested(fit, capsys):
    code, run = fit((0.8, 0, 0.2), epochs=1)
    assert code == 0
    assert main(["test", "--run", str(run)]) == 0
    results = json.loads((run / "results.json").read_text())
    assert "test/accuracy" in results["test"]
    assert "val" not in results
    assert "majority class" in results["baselines"]


def test_a_run_without_test_part_validates(fit, capsys):
    code, run = fit((0.8, 0.2, 0), epochs=1)
    assert code == 0
    assert "No test part" in capsys.readouterr().err
    assert (run / "checkpoints" / "best.ckpt").is_file()
    assert main(["validate", "--run", str(run)]) == 0
    assert main(["test", "--run", str(run)]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model.schedule.name", "plateau"], "plateau"),
        (["--trainer.callbacks+=TrainTestGap"], "TrainTestGap"),
    ],
)
def test_what_needs_validation_scores_is_refused(fit, capsys, options, said):
    code, run = fit((1, 0, 0), *options, epochs=1)
    assert code == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("graphbench:")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (run / "config.yaml").exists()


def test_nodes_may_all_train(tmp_path):
    graph = make_graphs(1, 0)[0]
    graph.y = torch.arange(graph.num_nodes) % 2
    data = Graphs([graph] * 12, split_level="node", fractions=(1, 0, 0), root=str(tmp_path))
    data.prepare_data()
    data.setup()
    assert [data.is_empty(split) for split in ("train", "val", "test")] == [False, True, True]
    assert data.val_dataloader() == []


def test_lightning_alone_trains_without_validation(graphs, tmp_path):
    from graphbench import build

    data = Graphs(str(graphs), target="y", fractions=(1, 0, 0), root=str(tmp_path))
    module, data = build("GPS", data, model_options={"hidden_dim": 8, "num_layers": 1})
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(module, datamodule=data)
    assert trainer.current_epoch == 1
