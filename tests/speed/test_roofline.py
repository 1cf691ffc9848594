"""Recorded computation and traffic of operations, compared with counts by hand; shares are below 100%."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SPEED = Path(__file__).parents[2] / "speed"
NET = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


@pytest.fixture
def roofline(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("roofline")


def recorded(roofline, call):
    with roofline.Operations() as operations:
        call()
    return operations.found


X = torch.randn(6, 8)


@pytest.mark.parametrize(
    ("call", "flops", "numbers"),
    [
        (lambda: X @ torch.empty(8, 5), 2 * 6 * 8 * 5, 6 * 8 + 8 * 5 + 6 * 5),
        (lambda: X + X, 0, 3 * 48),
        (lambda: X + torch.empty(1, 8).expand(6, 8), 0, 48 + 8 + 48),
        (lambda: X.relu_(), 0, 2 * 48),
        (lambda: torch.empty(6, 8).zero_(), 0, 48),
        (lambda: X.T.reshape(8, 2, 3)[0], 0, 0),
        (lambda: X[torch.tensor([4, 1])], 0, 2 * 8 + 2 * 2 + 2 * 8),
        (lambda: torch.cat((X, X)), 0, 4 * 48),
    ],
)
def test_operations_count_what_they_compute_and_move(roofline, call, flops, numbers):
    found = recorded(roofline, call)
    assert (sum(one for one, _ in found), sum(moved for _, moved in found)) == (flops, 4 * numbers)


def test_rows_added_to_a_large_table_do_not_count_as_the_table(roofline):
    table, rows, places = torch.zeros(10_000, 8), torch.ones(2, 8), torch.tensor([1, 5])
    ((flops, moved),) = recorded(roofline, lambda: table.index_add_(0, places, rows))
    assert flops == 0
    assert moved <= 4 * 4 * 16


def test_a_sparse_product_counts_its_entries(roofline):
    matrix, right = NET.to_sparse_csr(), torch.randn(3, 5)
    found = recorded(roofline, lambda: matrix @ right)
    assert sum(flops for flops, _ in found) == 2 * 4 * 5


def test_fused_attention_counts_its_products(roofline):
    """Two products forward; backward the recomputed scores, and a product for each of P, V, Q and K."""
    query = torch.randn(1, 2, 6, 4, requires_grad=True)
    found = recorded(
        roofline, lambda: torch.nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    )
    assert sum(flops for flops, _ in found) == 7 * 2 * 2 * 6 * 6 * 4


def test_the_fused_optimizer_counts_its_lists(roofline):
    weight = torch.nn.Parameter(torch.ones(1000))
    weight.grad = torch.ones(1000)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.step()
    found = recorded(roofline, optimizer.step)
    least, most = 4 * 1000 * (4 + 3), 4 * 1000 * (4 + 4)  # reads weight, gradient and moments; writes all but one
    assert least <= max(moved for _, moved in found) <= most + 100


def test_the_bound_is_that_of_compute_or_of_memory(roofline):
    operations = roofline.Operations()
    operations.found = [(10, 1), (0, 8), (4, 4)]
    assert operations.least_seconds(peak=2.0, bandwidth=4.0) == 5 + 2 + 2


def test_peaks_are_beyond_single_calls(roofline):
    assert roofline.peak_rate("cpu", torch.float32, 128, seconds=0.05) > 1e8
    assert roofline.bandwidth("cpu", seconds=0.01) > 1e8


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--precision", "bf16"]])
def test_every_model_of_the_table_has_a_share(roofline, options):
    command = [sys.executable, SPEED / "roofline.py", "--rounds", "2", "--batch-size", "4", *options]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    shares = {line.split()[0]: float(line.split()[-1].rstrip("%")) for line in lines if "/" in line.split()[0]}
    assert shares.keys() == set(importlib.import_module("limit").CONFIGURATIONS)
    assert all(0 < share < 100 for share in shares.values())
