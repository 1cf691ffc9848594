"""The benchmark contract catches data that differ from their specification."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from graphbench.contracts import Benchmark, Features
from graphbench.testing import BenchmarkContract, check_batch, tiny_spec, tiny_table


class TinyBenchmark(Benchmark):
    """Three graphs for validation and test, five for training."""

    def __init__(self, shuffle_val=False, repeat=False):
        super().__init__()
        self.spec = dataclasses.replace(tiny_spec(), name="TinyBenchmark", split_sizes=(5, 3, 3))
        self.shuffle_val, self.repeat = shuffle_val, repeat

    def prepare_data(self):
        pass

    def setup(self, stage=None):
        self.table = tiny_table(self.spec, num_graphs=11)

    def train_dataloader(self):
        rows = [0, 1, 2, 3, 4, *([4] if self.repeat else [])]
        return [self.table.batch(rows[:3]), self.table.batch(rows[3:])]

    def val_dataloader(self):
        rows = torch.randperm(3) + 5 if self.shuffle_val else torch.arange(5, 8)
        return [self.table.batch([row]) for row in rows.tolist()]

    def test_dataloader(self):
        return [self.table.batch([8, 9, 10])]


class TestTinyBenchmark(BenchmarkContract):
    complete = True

    def make_benchmark(self):
        return TinyBenchmark()


def _contract(**options):
    contract = BenchmarkContract()
    contract.make_benchmark = lambda: TinyBenchmark(**options)
    return contract


def test_shuffled_validation_is_caught():
    torch.manual_seed(1)
    with pytest.raises(AssertionError, match="val batches come in another order"):
        _contract(shuffle_val=True).test_evaluation_order_repeats()


def test_repeated_graph_is_caught():
    with pytest.raises(AssertionError, match="a graph comes twice in one epoch of train"):
        _contract(repeat=True).test_splits_have_their_sizes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node": Features((5, 2), dense=2)}, r"x reaches \[4, 2\] of \(5, 2\)"),
        ({"node": Features((5, 3), dense=3)}, r"x_dense must be \[\d+, 3\], but is \[\d+, 2\]"),
        ({"edge": Features(dense=1)}, "edge_attr must not be in the batch"),
        ({"coordinates": 3}, "pos must be in the batch"),
        ({"num_targets": 3}, r"y must be \[4, 3\], but is \[4, 2\]"),
        ({"task": "graph-classification", "num_classes": 2}, "y must contain one class"),
    ],
)
def test_wrong_specification_is_caught(change, message):
    spec = tiny_spec()
    batch = tiny_table(spec, num_graphs=4).batch(range(4))
    with pytest.raises(AssertionError, match=message):
        check_batch(dataclasses.replace(spec, **change), batch)
