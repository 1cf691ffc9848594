"""Throughput counts what was trained on, over the time it took."""

import time
from types import SimpleNamespace

import pytest

from graphbench.callbacks.throughput import Throughput


def test_rate_and_share_of_waiting():
    logged = {}
    trainer = SimpleNamespace(world_size=2)
    module = SimpleNamespace(log_dict=logged.update)
    callback = Throughput()
    callback.on_train_epoch_start(trainer, module)
    for graphs in (10, 30):
        time.sleep(0.03)  # waiting for data
        callback.on_train_batch_start(trainer, module, None, 0)
        time.sleep(0.01)  # the step
        callback.on_train_batch_end(trainer, module, None, SimpleNamespace(num_graphs=graphs), 0)
    callback.on_train_epoch_end(trainer, module)
    assert logged["time/graphs_per_s"] == pytest.approx(2 * 40 / logged["time/epoch_s"])
    assert 0.5 < logged["time/data_share"] < 0.95
    assert logged["time/epoch_s"] >= 0.08


def test_an_epoch_without_batches_logs_nothing():
    module = SimpleNamespace(log_dict=lambda values: pytest.fail("nothing to log"))
    callback = Throughput()
    callback.on_train_epoch_start(None, module)
    callback.on_train_epoch_end(None, module)
    assert callback._graphs == 0
