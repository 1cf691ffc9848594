"""The tables of ranks and of influence agree with the pure functions on the trained model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from scipy.sparse.csgraph import shortest_path
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch_geometric.utils import to_dense_adj

from graphbench import GraphBatch
from graphbench import diagnostics as D
from graphbench.callbacks import rank_progression
from graphbench.callbacks.probe import choose_graphs
from graphbench.callbacks.rank_progression import GradientFlow, InfluenceRange, RankProgression
from graphbench.errors import BadInput
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


@pytest.mark.parametrize(
    ("callback", "summarise"),
    [
        (RankProgression, "summarise_ranks"),
        (InfluenceRange, "summarise_influence"),
        (GradientFlow, "summarise_gradients"),
    ],
)
def test_no_attention_is_kept_for_measures_of_tokens(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, callback: type[pl.Callback], summarise: str
) -> None:
    kept: list[object] = []
    measure = getattr(rank_progression, summarise)

    def watch(recording: D.Recording, *given: object) -> D.Summary:
        kept.extend(value for trace in recording for value in (trace.attention, trace.values))
        return measure(recording, *given)

    monkeypatch.setattr(rank_progression, summarise, watch)
    fit(callback(num_graphs=3), max_epochs=1)
    assert len(kept) == 8  # two fields of two layers, before and after the epoch
    assert kept == [None] * 8


def test_tensorboard_shows_the_spread_over_graphs(fit: Fit, tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path / "board"), name="", version="")
    fit(RankProgression(num_graphs=6), logger=logger, max_epochs=1)
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "board"), size_guidance={"histograms": 0}).Reload()
    assert sorted(events.Tags()["histograms"]) == [f"rank_progression/effective_rank/layer_{n}" for n in range(3)]
    (before, after) = events.Histograms("rank_progression/effective_rank/layer_2")
    assert (before.step, after.step) == (0, 3)
    assert after.histogram_value.num == 6


def test_a_continued_run_keeps_what_tensorboard_got_at_its_last_checkpoint(fit: Fit, tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path / "board"), name="", version="")
    _, trainer = fit(RankProgression(num_graphs=6), logger=logger, max_epochs=1)
    logger.experiment.close()
    continued = TensorBoardLogger(str(tmp_path / "board"), name="", version="", purge_step=trainer.global_step)
    continued.experiment.close()
    events = EventAccumulator(str(tmp_path / "board"), size_guidance={"histograms": 0, "images": 0}).Reload()
    assert len(events.Histograms("rank_progression/effective_rank/layer_2")) == 2
    assert len(events.Images("rank_progression/effective_rank")) == 2


def test_tensorboard_has_a_picture_of_all_layers_for_each_measure(fit: Fit, rows: Rows, tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path / "board"), name="", version="")
    fit(RankProgression(num_graphs=6), logger=logger, max_epochs=3)
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "board"), size_guidance={"images": 0}).Reload()
    measures = {f"rank_progression/{row['measure']}" for row in rows("rank_progression")}
    assert set(events.Tags()["images"]) == measures
    assert not [name for name in events.Tags()["scalars"] if "layer_" in name]
    steps = [image.step for image in events.Images("rank_progression/effective_rank")]
    assert steps == [0, 7, 11]  # before training, after epoch 2 and the last


def test_range_is_that_of_the_whole_jacobian(fit: Fit, rows: Rows) -> None:
    """All nodes of all graphs are targets, so nothing is sampled; torch computes the Jacobian graph by graph."""
    module, trainer = fit(InfluenceRange(num_graphs=5, num_targets=9, num_probes=None, batch_size=2, max_distance=3))
    last = {(r["layer"], r["measure"]): r for r in rows("range") if r["epoch"] == "2"}
    model, table = module.architecture.eval(), trainer.datamodule.tables["val"]
    ranges, shares, totals = [], [], []
    for row in choose_graphs(trainer, "val", 5, seed=0).tolist():
        batch = table.batch([row])

        def nodes(x: torch.Tensor, batch: GraphBatch = batch) -> torch.Tensor:
            batch.x_dense = x
            return model(batch).node

        jacobian = torch.autograd.functional.jacobian(nodes, batch.x_dense.clone()).abs().sum((1, 3)).double()
        against = to_dense_adj(batch.edge_index, max_num_nodes=len(jacobian))[0].t().contiguous().numpy()
        distance = torch.from_numpy(shortest_path(against, unweighted=True))
        near = distance.isfinite()
        weights, steps = jacobian.where(near, 0.0), distance.where(near, 0.0)
        ranges.append(((weights * steps).sum(1) / weights.sum(1)).mean())
        shares.append(((weights * (distance == 1)).sum(1) / jacobian.sum(1)).mean())
        totals.append(jacobian.sum(1).mean())
    assert float(last["2", "range"]["value"]) == pytest.approx(float(sum(ranges)) / 5, rel=1e-4)
    assert float(last["2", "share_1"]["value"]) == pytest.approx(float(sum(shares)) / 5, rel=1e-4)
    assert float(last["2", "influence"]["value"]) == pytest.approx(float(sum(totals)) / 5, rel=1e-4)
    assert trainer.logger.last("range/range/layer_2") == pytest.approx(float(last["2", "range"]["value"]))
    assert not any("share_" in name for _, values in trainer.logger.rows for name in values)
    assert {r["module"] for r in rows("range")} == {"layers.0", "layers.1", "output"}


def test_looking_at_the_range_changes_no_training(fit: Fit) -> None:
    watched, _ = fit(InfluenceRange(every_n_epochs=1), run="watched")
    alone, _ = fit(run="alone")
    for name, value in alone.state_dict().items():
        assert torch.equal(watched.state_dict()[name], value), name


def test_a_test_looks_at_the_range_too_and_so_does_a_model_without_attention(fit: Fit, rows: Rows) -> None:
    module, trainer = fit(InfluenceRange(), attention=False)
    before = [r for r in rows("range") if r["epoch"] == "2"]
    trainer.test(module, datamodule=trainer.datamodule, verbose=False)  # in inference mode, where nothing has gradients
    assert [r for r in rows("range") if r["epoch"] == "2"] == before
    values = {r["measure"]: r["value"] for r in before}
    assert {r["module"] for r in before} == {"output"}
    assert (float(values["range"]), float(values["share_0"])) == (0.0, 1.0)  # each node depends on itself only


def test_options_of_the_range_are_checked() -> None:
    for options in ({"num_targets": 0}, {"num_probes": 0}, {"max_distance": 0}, {"norm": "l2"}):
        with pytest.raises(BadInput, match=next(iter(options))):
            InfluenceRange(**options)


def test_gradients_are_those_of_the_training_loss(fit: Fit, rows: Rows) -> None:
    """The norm after the last layer is that of the head, by central differences of the loss of each graph."""
    module, trainer = fit(GradientFlow(num_graphs=5, batch_size=2))
    last = {(r["layer"], r["measure"]): float(r["value"]) for r in rows("gradients") if r["epoch"] == "2"}
    assert {r["module"] for r in rows("gradients")} == {"layers.0", "layers.1", "output"}
    table = trainer.datamodule.tables["val"]
    module.double().eval()
    norms = []
    for row in choose_graphs(trainer, "val", 5, seed=0).tolist():
        batch = table.batch([row])
        for name, value in batch.to_dict().items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                batch[name] = value.double()
        with torch.no_grad():
            representation = module.represent(batch)
            node, slopes = representation.node, []
            for place in range(node.numel()):
                step = torch.zeros(node.numel(), dtype=torch.float64)
                step[place] = 1e-5
                losses = []
                for sign in (1, -1):
                    representation.node = node + sign * step.view_as(node)
                    losses.append(float(module.task.terms(module.task(representation, batch), batch)[0].sum()))
                slopes.append((losses[0] - losses[1]) / 2e-5)
        norms.append(sum(slope**2 for slope in slopes) ** 0.5)
    assert last["2", "gradient_norm"] == pytest.approx(sum(norms) / 5, rel=1e-3)
    for layer in (0, 1):
        weights = [w for w in module.architecture.layers[layer].parameters() if w.dim() == 2]
        expected = max(float(torch.linalg.cond(weight)) for weight in weights)
        assert last[str(layer), "condition"] == pytest.approx(expected, rel=1e-3)


def test_looking_at_gradients_changes_no_training(fit: Fit) -> None:
    watched, _ = fit(GradientFlow(every_n_epochs=1), run="watched")
    bare, _ = fit(run="bare")
    assert all(torch.equal(a, b) for a, b in zip(watched.parameters(), bare.parameters(), strict=True))
