"""A whole training step on the pretended card, held against a budget of waits and launches."""

from __future__ import annotations

import json

import torch
from torch import nn
from torch.optim import Optimizer

from graphbench.contracts import Architecture, GraphBatch
from graphbench.nn import HeadConfig
from graphbench.testing.pretend import counted_work, in_fork, on_pretended_device
from graphbench.training.tasks import Task, build_task


def step_work(model: Architecture, batch: GraphBatch) -> tuple[dict[str, int], dict[str, int]]:
    """Count the waits and launches of one training step: model, head, loss, backward, clipping and AdamW.

    The step runs twice, and the second one is counted: in the first one, state is made that stays.

    Args:
        model: in float32; it is copied.
        batch: any graphs, on the CPU.

    Returns:
        Lines that wait for the device -> how often, and operations that it computes -> how often.

    Raises:
        AssertionError: the step failed on the device, as where a tensor was left on the CPU; with its traceback.
    """

    def run() -> str:
        with on_pretended_device() as device:
            task = build_task(model.spec, model.dim, HeadConfig(), edge_dim=model.edge_dim)
            parts = nn.ModuleList([model, task]).train().to(device)
            graphs = batch.to(device)
            optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-3, fused=True)
            _step(model, task, graphs, optimizer)
            with counted_work() as work:
                _step(model, task, graphs, optimizer)
        return json.dumps([work.waits, work.launches])

    text = in_fork(run)
    assert text.startswith("["), f"a step on a pretended card failed:\n{text}"
    waits, launches = json.loads(text)
    return waits, launches


def _step(model: Architecture, task: Task, batch: GraphBatch, optimizer: Optimizer) -> None:
    optimizer.zero_grad()
    task.loss(task(model(batch), batch), batch).backward()
    nn.utils.clip_grad_norm_([*model.parameters(), *task.parameters()], 1.0, foreach=True)
    optimizer.step()
