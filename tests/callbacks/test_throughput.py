"""Throughput counts what was trained on, over the time it took."""

from types import SimpleNamespace

import pytest

from graphbench.callbacks import throughput
from graphbench.callbacks.throughput import Throughput


def test_rate_and_share_of_waiting(monkeypatch):
    """By a clock of its own: two batches, each waited for 3 s and computed in 1 s, on two processes."""
    clock, logged = [100.0], {}
    monkeypatch.setattr(throughput, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    trainer = SimpleNamespace(world_size=2)
    module = SimpleNamespace(log_dict=logged.update)
    callback = Throughput()
    callback.on_train_epoch_start(trainer, module)
    for graphs in (10, 30):
        clock[0] += 3
        callback.on_train_batch_start(trainer, module, None, 0)
        clock[0] += 1
        callback.on_train_batch_end(trainer, module, None, SimpleNamespace(num_graphs=graphs), 0)
    clock[0] += 5  # validation
    callback.on_train_epoch_end(trainer, module)
    assert logged == {"time/epoch_s": 8.0, "time/data_share": 0.75, "time/graphs_per_s": 2 * 40 / 8}


def test_an_epoch_without_batches_logs_nothing():
    module = SimpleNamespace(log_dict=lambda values: pytest.fail("nothing to log"))
    callback = Throughput()
    callback.on_train_epoch_start(None, module)
    callback.on_train_epoch_end(None, module)
    assert callback._graphs == 0
