"""Throughput is the number of graphs trained on over the time it took."""

from types import SimpleNamespace

import pytest
import torch
from torch import distributed
from two_processes import on_two

from graphbench.callbacks import throughput
from graphbench.callbacks.throughput import Throughput
from graphbench.cli.console import highest_memory_mb, peak_memory_mb


def test_rate_and_share_of_waiting(monkeypatch):
    """On a simulated clock: two batches, each with 3 s of waiting and 1 s of computing."""
    clock, logged = [100.0], {}
    monkeypatch.setattr(throughput, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    trainer = None
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
    assert logged == {"time/epoch_s": 8.0, "time/data_share": 0.75, "time/graphs_per_s": 40 / 8}


def test_an_epoch_without_batches_logs_nothing():
    module = SimpleNamespace(log_dict=lambda values: pytest.fail("nothing to log"))
    callback = Throughput()
    callback.on_train_epoch_start(None, module)
    callback.on_train_epoch_end(None, module)
    assert callback._graphs == 0


def test_graphs_of_all_processes_count_over_the_time_of_the_slowest(tmp_path):
    """The first process has 3 of 10 graphs; its count times the number of processes would be 6."""

    def work(rank):
        distributed.init_process_group("gloo")
        logged, clock = {}, [0.0]
        throughput.time = SimpleNamespace(perf_counter=lambda: clock[0])
        trainer, module = SimpleNamespace(is_global_zero=rank == 0), SimpleNamespace(log_dict=logged.update)
        callback = Throughput()
        callback.on_train_epoch_start(trainer, module)
        callback.on_train_batch_start(trainer, module, None, 0)
        clock[0] += (4, 5)[rank]
        callback.on_train_batch_end(trainer, module, None, SimpleNamespace(num_graphs=(3, 7)[rank]), 0)
        stored = callback.state_dict()
        callback.on_train_epoch_end(trainer, module)
        first = dict(logged)
        goes_on = Throughput()  # resumed within the epoch, from the stored state
        goes_on.load_state_dict(dict(stored))
        goes_on.on_train_start(trainer, module)
        goes_on.on_train_epoch_end(trainer, module)
        return [first, dict(logged), highest_memory_mb(torch.device("cpu")), peak_memory_mb(torch.device("cpu"))]

    (first, again, highest, own), (*others, other) = on_two(tmp_path, work)
    assert first == {"time/epoch_s": 5.0, "time/data_share": 0.0, "time/graphs_per_s": 2.0}
    assert again == others[0] == others[1] == first
    assert others[2] == highest
    assert highest == pytest.approx(max(own, other), rel=0.2)
