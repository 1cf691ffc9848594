"""The table of ranks agrees with the pure functions on the trained model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from graphbench import diagnostics as D
from graphbench.callbacks.probe import choose_graphs
from graphbench.callbacks.rank_progression import RankProgression
from graphbench.training.module import BenchmarkModule

Rows = Callable[..., list[dict[str, str]]]
Fit = Callable[..., tuple[BenchmarkModule, pl.Trainer]]


def test_last_rows_are_the_measures_of_the_trained_model(fit: Fit, rows: Rows) -> None:
    module, trainer = fit(RankProgression(num_graphs=7, batch_size=3))
    last = {(r["layer"], r["measure"]): float(r["value"]) for r in rows("rank_progression") if r["epoch"] == "2"}
    batch = trainer.datamodule.tables["val"].batch(choose_graphs(trainer, "val", 7, seed=0))
    module.eval()
    with torch.no_grad(), D.record(module.architecture) as recording:
        module.represent(batch)
    states = D.token_states(recording)
    assert [state.name for state in states] == ["layers.0", "layers.1", "output"]
    for depth, state in enumerate(states):
        expected = D.effective_rank_per_graph(state.tokens, state.batch).mean().item()
        assert last[str(depth), "effective_rank"] == pytest.approx(expected, rel=1e-5)
        energy = D.dirichlet_energy_per_graph(state.tokens, batch.edge_index, state.batch, relative=True).mean().item()
        assert last[str(depth), "dirichlet_energy"] == pytest.approx(energy, rel=1e-5)
    assert {row["graphs"] for row in rows("rank_progression")} == {"7"}
    logged = trainer.logger.last("rank_progression/effective_rank/layer_2")
    assert logged == pytest.approx(last["2", "effective_rank"])


def test_tensorboard_shows_the_spread_over_graphs(fit: Fit, tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path / "board"), name="", version="")
    fit(RankProgression(num_graphs=6), logger=logger, max_epochs=1)
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "board"), size_guidance={"histograms": 0}).Reload()
    assert sorted(events.Tags()["histograms"]) == [f"rank_progression/effective_rank/layer_{n}" for n in range(3)]
    (before, after) = events.Histograms("rank_progression/effective_rank/layer_2")
    assert (before.step, after.step) == (0, 4)
    assert after.histogram_value.num == 6


def test_tensorboard_has_a_picture_of_all_layers_for_each_measure(fit: Fit, rows: Rows, tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path / "board"), name="", version="")
    fit(RankProgression(num_graphs=6), logger=logger, max_epochs=3)
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "board"), size_guidance={"images": 0}).Reload()
    measures = {f"rank_progression/{row['measure']}" for row in rows("rank_progression")}
    assert set(events.Tags()["images"]) == measures
    assert not [name for name in events.Tags()["scalars"] if "layer_" in name]
    steps = [image.step for image in events.Images("rank_progression/effective_rank")]
    assert steps == [0, 8, 12]  # before training, after epoch 2 and the last
