"""Metric states that one loop leaves do not affect the next loop, whichever gradient mode either uses."""

from __future__ import annotations

import pytest
import pytorch_lightning as pl
import torch
from tiny_fits import TinyData
from toys import ToyTransformer

from graphbench import BenchmarkModule
from graphbench.contracts import Representation
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.tasks import build_task
from graphbench.training.tasks.scores import Scores

TASKS = (
    "graph-regression", "graph-classification", "graph-multilabel", "node-classification", "node-multilabel",
    "node-regression", "edge-classification", "edge-regression", "link-ranking", "map-recovery",
)  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_scores_of_inference_mode_go_on_without_it(task):
    """Lightning uses inference mode on one process, but not on several over gloo or with shards."""
    spec = tiny_spec(task)
    torch.manual_seed(0)
    metrics = list(build_task(spec, 8, HeadConfig()).named_metrics())
    built = build_task(spec, 8, HeadConfig(), metrics=metrics).eval()
    scores, table = Scores(built).of("val"), tiny_table(spec)
    batch = table.batch(range(len(table)))
    made = Representation(torch.randn(batch.num_nodes, 8), torch.randn(batch.edge_index.shape[1], 8))
    found = []
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with mode():
            scores.update(built, built(made, batch), batch)
            found.append({name: float(value) for name, value in scores.finish().items()})
    assert found[0] == pytest.approx(found[1], nan_ok=True)
    assert found[0] == pytest.approx(found[2], nan_ok=True)


class Interrupt(pl.Callback):
    def on_validation_batch_end(self, *_):
        raise KeyboardInterrupt


def test_rows_of_an_interrupted_loop_do_not_count_in_the_next_one(tmp_path):
    spec = tiny_spec("graph-regression")
    data = TinyData(spec, root=str(tmp_path), batch_size=2)
    module = BenchmarkModule(spec, lambda seen: ToyTransformer(seen, draws=False))

    def validated(*callbacks):
        trainer = pl.Trainer(
            accelerator="cpu", logger=False, callbacks=list(callbacks), enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        return trainer.validate(module, data, verbose=False)

    wanted = validated()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        validated(Interrupt())
    assert validated() == wanted
