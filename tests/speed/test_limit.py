"""Which products of matrices a step is said to consist of."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

SPEED = Path(__file__).parents[2] / "speed"

NET = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("limit")


def shapes(recorded):
    return [tuple(tuple(operand.shape) for operand in product.make()) for product in recorded.products]


def test_products_of_a_linear_map_and_its_gradients(limit):
    layer, x = torch.nn.Linear(4, 2), torch.randn(3, 4, requires_grad=True)
    with limit.Recorded() as recorded:
        layer(x).sum().backward()
    assert sorted(shapes(recorded)) == sorted([((3, 4), (4, 2)), ((3, 2), (2, 4)), ((2, 3), (3, 4))])


def test_a_sparse_matrix_takes_part_as_it_is(limit):
    matrix = NET.to_sparse_csr()
    with limit.Recorded() as recorded:
        matrix @ torch.randn(3, 5)
    (left, right) = recorded.products[0].make()
    assert left.layout is torch.sparse_csr
    assert left.to_dense().equal(NET)
    assert right.shape == (3, 5)


SCORES, MIX = ((1, 2, 6, 4), (1, 2, 4, 6)), ((1, 2, 6, 6), (1, 2, 6, 4))


def test_attention_counts_as_its_products(limit):
    """Backward: the scores anew and the gradient of the probabilities; then those of values, queries and keys."""
    query = torch.randn(1, 2, 6, 4, requires_grad=True)
    with limit.Recorded() as forward, torch.no_grad():
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
    assert shapes(forward) == [SCORES, MIX]
    with limit.Recorded() as both:
        torch.nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    assert sorted(shapes(both)) == sorted([SCORES, MIX, SCORES, SCORES, MIX, MIX, MIX])


@pytest.mark.slow
def test_every_model_of_the_table_is_measured(limit):
    """Two rounds of all configurations, as `make speed` does with more of them."""
    command = [sys.executable, SPEED / "limit.py", "--rounds", "2", "--batch-size", "4"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    measured = {line.split()[0]: float(line.split()[-1]) for line in lines if line.split()[0] in limit.CONFIGURATIONS}
    assert measured.keys() == set(limit.CONFIGURATIONS)
    assert all(ratio > 1 for ratio in measured.values())


def test_memory_that_a_step_needs_is_what_autograd_keeps(limit):
    """Rows before and after the map, and its parameters three times; the gradient of the result comes on top."""
    layer, x = torch.nn.Linear(64, 32), torch.randn(1000, 64)

    def step():
        layer.zero_grad()
        layer(x).relu().square().sum().backward()

    step()
    peak, needed = limit.memory_of(step, layer, SimpleNamespace(ptr=x))
    parameters, results = 4 * (64 * 32 + 32), 4 * 1000 * 32
    assert needed == 3 * parameters + x.nbytes + results
    assert 3 * parameters + 2 * results <= peak <= 4 * parameters + 4 * results + 4096
