"""Train a task on the CPU and on a pretended Apple GPU, in the only process that registers the device."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy
from tiny_fits import TinyData

from graphbench import BenchmarkModule, registry
from graphbench.callbacks import AttentionCapacity, GradientFlow, InfluenceRange, RankProgression, TrainTestGap
from graphbench.inference import TrainingFacts
from graphbench.inference.attributions.attribution import Method, attribute
from graphbench.nn import HeadConfig
from graphbench.testing import tiny_spec
from graphbench.testing.pretend import on_pretended_device, pretended_device
from graphbench.training.tasks import build_task


class _Accelerator(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        """There is nothing to set up."""


def _plain_descent(parameters: Any) -> torch.optim.Optimizer:
    """Return SGD: Adam divides by gradients close to zero, which magnifies rounding."""
    return torch.optim.SGD(parameters, lr=0.05)


def attributions(module: BenchmarkModule, data: TinyData, device: torch.device) -> dict[str, float]:
    """Return the sum of squares of the node attributions of a test graph, for each method."""
    module, table = module.to(device).eval(), data.tables["test"]
    facts = TrainingFacts.of(data.tables["train"], data)
    copies = lambda count: table.batch([0] * count).to(device)  # noqa: E731
    found = {method: attribute(module, copies, facts, 0, method, samples=10) for method in get_args(Method)}
    return {f"attributions/{method}": float(one.nodes.square().sum()) for method, one in found.items()}


def train(task: Any, folder: Path, apple: bool) -> dict[str, float]:
    """Train two epochs, validate, test and explain; return all logged values."""
    spec = tiny_spec(task)
    with on_pretended_device(apple=True) if apple else nullcontext():
        pl.seed_everything(0)
        named = list(build_task(spec, 8, HeadConfig()).named_metrics())
        gps = registry.load("architectures", "GPS")
        small = partial(gps, hidden_dim=8, num_layers=2, num_heads=2, attention_dropout=0.0)
        module = BenchmarkModule(spec, small, optimizer=_plain_descent, metrics=named)
        device = pretended_device() if apple else torch.device("cpu")
        trainer = pl.Trainer(
            strategy=SingleDeviceStrategy(device=device, accelerator=_Accelerator()), inference_mode=False,
            max_epochs=2, default_root_dir=folder, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
            callbacks=[AttentionCapacity(), GradientFlow(), InfluenceRange(), RankProgression(), TrainTestGap()],
        )  # fmt: skip
        data = TinyData(spec, root=folder, batch_size=4)
        trainer.fit(module, data)
        logged = dict(trainer.callback_metrics)
        logged |= trainer.test(module, data, verbose=False)[0]
        predictions = trainer.predict(module, data.test_dataloader())
        logged["predicted"] = torch.cat([batch["prediction"].double().sum()[None] for batch in predictions]).sum()
        if task.startswith("graph-"):
            logged |= attributions(module, data, device)
    return {name: float(value) for name, value in logged.items()}


if __name__ == "__main__":
    folder, *tasks = sys.argv[1:]
    pretended_device()  # before the first backward pass of the process
    for task in tasks:
        for device in ("cpu", "apple"):
            place = Path(folder, task, device)
            scores = train(task, place, apple=device == "apple")
            (place / "scores.json").write_text(json.dumps(scores))
