"""The table of capacities agrees with the pure functions; all models share one vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import pytorch_lightning as pl
import torch

from graphbench import diagnostics as D
from graphbench.callbacks.attention_capacity import AttentionCapacity
from graphbench.callbacks.probe import choose_graphs
from graphbench.encodings import RWSE, Substructures
from graphbench.errors import BadInput
from graphbench.testing.tiny import encode
from graphbench.training.module import BenchmarkModule

Rows = Callable[..., list[dict[str, str]]]
Fit = Callable[..., tuple[BenchmarkModule, pl.Trainer]]


def test_last_rows_are_the_measures_of_the_trained_model(fit: Fit, rows: Rows) -> None:
    vocabulary = Substructures(cycles=(3,), paths=(4,), stars=(2,), hops=(1,))
    module, trainer = fit(AttentionCapacity(vocabulary, num_graphs=7, batch_size=3))
    last = {(r["layer"], r["measure"]): float(r["value"]) for r in rows("attention_capacity") if r["epoch"] == "2"}
    chosen = choose_graphs(trainer, "val", 7, seed=0)
    batch = encode(trainer.datamodule.tables["val"].select(chosen), [vocabulary]).batch(range(7))
    patterns = D.Patterns.uniform(
        batch.member_node, batch.member_substructure, batch.substructure_batch, batch.ptr.diff()
    )
    module.eval()
    with torch.no_grad(), D.record(module.architecture) as recording:
        module.represent(batch)
    for number, trace in enumerate(recording):
        layer = str(number)
        together = D.attention_capacity_per_graph(trace.values.sum(1), patterns)
        heads = D.attention_capacity_per_graph(trace.values, patterns)
        assert last[layer, "capacity"] == pytest.approx(together.mean().item(), rel=1e-5)
        assert last[layer, "capacity_head1"] == pytest.approx(heads[:, 1].mean().item(), rel=1e-5)
        assert last[layer, "row_sum"] == pytest.approx(1, rel=1e-5)
        assert last[layer, "capacity"] <= last[layer, "capacity_bound"]
    assert trainer.logger.last("attention_capacity/capacity/layer_1") == pytest.approx(last["1", "capacity"])
    assert not any("_head" in name for _, values in trainer.logger.rows for name in values)


def test_large_graphs_are_left_out(
    fit: Fit, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The spectral norm of the patterns alone takes time with the cube of the nodes."""
    vocabulary = Substructures(cycles=(3,), paths=(4,), stars=(2,), hops=(1,))
    _, trainer = fit(AttentionCapacity(vocabulary, num_graphs=7))
    table = trainer.datamodule.tables["val"]
    sizes = table.num_nodes[choose_graphs(trainer, "val", 7, seed=0)]
    monkeypatch.setattr(AttentionCapacity, "largest", int(sizes.sort().values[2]))
    kept = int((sizes <= AttentionCapacity.largest).sum())
    fit(AttentionCapacity(vocabulary, num_graphs=7, batch_size=2))
    last = [row for row in rows("attention_capacity") if row["epoch"] == "2" and row["measure"] == "row_sum"]
    assert [int(row["graphs"]) for row in last] == [kept] * len(last)
    assert f"AttentionCapacity leaves out {7 - kept} of 7 graphs of the val split" in caplog.text
    monkeypatch.setattr(AttentionCapacity, "largest", 0)
    caplog.clear()
    fit(AttentionCapacity(vocabulary, num_graphs=7))
    assert "leaves out 7 of 7" in caplog.text
    assert "no attention layer" not in caplog.text


def test_default_vocabulary_and_other_encodings() -> None:
    assert AttentionCapacity().substructures == Substructures(max_per_pattern=200)
    with pytest.raises(BadInput, match="fields member_node and member_substructure, but RWSE has"):
        AttentionCapacity(RWSE())


def test_graphs_of_equal_tokens_are_counted_as_left_out(fit: Fit, rows: Rows) -> None:
    """Half of the probe graphs have equal features on all nodes and therefore no spread in the first layer."""

    class HalfEqual(AttentionCapacity):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            table = trainer.datamodule.tables["val"]
            features, ptr = table.columns["x_dense"].clone(), table.ptr["node"].tolist()
            for graph in range(0, 10, 2):
                features[ptr[graph] : ptr[graph + 1]] = 0.3
            table.columns["x_dense"] = features
            super().on_train_start(trainer, pl_module)

    fit(HalfEqual(num_graphs=10), max_epochs=1)
    table = rows("attention_capacity")
    assert {row["value"] for row in table}.isdisjoint({"inf", "-inf"})
    first = {row["measure"]: row for row in table if (row["epoch"], row["layer"]) == ("0", "0")}
    for measure in ("alpha", "lambda", "gamma", "value_gain"):
        assert (first[measure]["graphs"], first[measure]["left_out"]) == ("5", "5"), measure
    for measure in ("spread", "row_sum"):
        assert (first[measure]["graphs"], first[measure]["left_out"]) == ("10", "0"), measure


def test_a_measure_that_no_graph_has_is_a_row_and_not_logged(fit: Fit, rows: Rows) -> None:
    vocabulary = Substructures(cycles=(30,), paths=(), stars=(), hops=())
    _, trainer = fit(AttentionCapacity(vocabulary, num_graphs=4), max_epochs=1)
    (row, *_) = [row for row in rows("attention_capacity") if row["measure"] == "capacity"]
    assert (row["value"], row["graphs"], row["left_out"]) == ("nan", "0", "4")
    assert not any("attention_capacity/capacity/" in name for _, values in trainer.logger.rows for name in values)
