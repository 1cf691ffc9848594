"""Count waits and launches of a whole training step on the pretended GPU, for contracts to compare with a budget.

A device can be registered with PyTorch only once per process, before its first backward pass. So the steps of all
classes in a test file are counted in a separate process, forked from one that has imported PyTorch and computed
nothing. `python -m graphbench.testing.budget FILE` prints them as JSON.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphbench.contracts import Architecture, GraphBatch
from graphbench.nn import HeadConfig
from graphbench.testing.pretend import Work, counted_work, on_pretended_device
from graphbench.training.tasks import build_task

#: A budget must be lowered if a step uses less than this share of it; torch versions differ by less.
_SLACK = 0.8


@cache
def counted_steps(file: str) -> dict[str, Any]:
    """Count one training step for every architecture contract that a test file defines, by the name of the class.

    `waits` and `launches` map a line or operation to a count; `failed` is the traceback of a step that failed on the
    device, for example because a tensor was on the CPU, and `failed_on_apple` that of a step on an Apple GPU, else "".
    """
    can_fork = "forkserver" in multiprocessing.get_all_start_methods()  # everywhere except on Windows
    processes = multiprocessing.get_context("forkserver" if can_fork else "spawn")
    if can_fork:
        processes.set_forkserver_preload(["graphbench.testing.budget"])
    with ProcessPoolExecutor(1, mp_context=processes) as pool:
        return pool.submit(_count_file, file).result()


def _count_file(file: str) -> dict[str, Any]:
    return {contract.__qualname__: _count_of(contract()) for contract in contracts_of(Path(file))}


def step_work(model: Architecture, batch: GraphBatch, apple: bool = False) -> Work:
    """Count the work of one step: model, head, loss, backward pass, clipping and AdamW.

    The step runs twice, and the second run is counted: the first one creates persistent state. The model, in
    float32, is moved to the pretended GPU, or to a pretended Apple GPU.
    """
    with on_pretended_device(apple) as device:
        step = make_step(model, batch, device)
        step()
        with counted_work() as work:
            step()
    return work


def make_step(model: Architecture, batch: GraphBatch, device: torch.device) -> Callable[[], None]:
    """Return a training step of a model on a batch; both are moved to the device."""
    task = build_task(model.spec, model.dim, HeadConfig(), edge_dim=model.edge_dim)
    parts = nn.ModuleList([model, task]).train().to(device)
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-3, fused=True)
    graphs = batch.to(device)

    def step() -> None:
        optimizer.zero_grad()
        task.loss(task(model(graphs), graphs), graphs).backward()
        nn.utils.clip_grad_norm_(parts.parameters(), 1.0, foreach=True)
        optimizer.step()

    return step


def check_budget(name: str, most: int, counts: Mapping[str, int]) -> None:
    """Check that the total count is at most what a class allows, and not much less."""
    total = sum(counts.values())
    listed = "".join(f"\n  {count} x {what}" for what, count in Counter(counts).most_common(20))
    assert total <= most, f"{name} is {most}, but a step has {total}:{listed}"
    assert total >= _SLACK * most, f"{name} is {most}, but a step has only {total}: lower the budget"


def _count_of(contract: Any) -> dict[str, Any]:
    work, failed = _tried(contract.count_step)
    _, failed_on_apple = _tried(lambda: contract.count_step(partial(step_work, apple=True)))
    return {"waits": work.waits, "launches": work.launches, "failed": failed, "failed_on_apple": failed_on_apple}


def _tried(count: Callable[[], Work]) -> tuple[Work, str]:
    try:
        return count(), ""
    except Exception:
        return Work(), traceback.format_exc()[-4_000:]


def _is_whole(contract: type) -> bool:
    """Tell whether a class has all attributes that its bases declare; in others a fixture may set them per test."""
    declared = {name for base in contract.__mro__ for name in inspect.get_annotations(base)}
    return all(hasattr(contract, name) for name in declared)


def contracts_of(file: Path) -> list[type]:
    """Import a test file and return the architecture contracts that it defines."""
    name = f"budget_of_{file.stem}"
    # Test files may import helpers in the same folder, as with pytest.
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and thing.__module__ == name and hasattr(thing, "most_launches") and _is_whole(thing)
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_count_file(sys.argv[1])))
