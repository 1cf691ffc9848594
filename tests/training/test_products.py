"""Which matrix products a step is recorded to consist of, and its time relative to theirs."""

import torch

from graphbench.training.products import Recorded, time_step

NET = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


def shapes(recorded):
    return [tuple(tuple(operand.shape) for operand in product.make()) for product in recorded.products]


def test_products_of_a_linear_map_and_its_gradients():
    layer, x = torch.nn.Linear(4, 2), torch.randn(3, 4, requires_grad=True)
    with Recorded() as recorded:
        layer(x).sum().backward()
    assert sorted(shapes(recorded)) == sorted([((3, 4), (4, 2)), ((3, 2), (2, 4)), ((2, 3), (3, 4))])


def test_a_sparse_matrix_takes_part_as_it_is():
    matrix = NET.to_sparse_csr()
    with Recorded() as recorded:
        matrix @ torch.randn(3, 5)
    (left, right) = recorded.products[0].make()
    assert left.layout is torch.sparse_csr
    assert left.to_dense().equal(NET)
    assert right.shape == (3, 5)


SCORES, MIX = ((1, 2, 6, 4), (1, 2, 4, 6)), ((1, 2, 6, 6), (1, 2, 6, 4))


def test_attention_counts_as_its_products():
    """Backward: recomputed scores and the gradient of the probabilities; then those of values, queries and keys."""
    query = torch.randn(1, 2, 6, 4, requires_grad=True)
    with Recorded() as forward, torch.no_grad():
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
    assert shapes(forward) == [SCORES, MIX]
    with Recorded() as both:
        torch.nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    assert sorted(shapes(both)) == sorted([SCORES, MIX, SCORES, SCORES, MIX, MIX, MIX])


def test_a_step_of_one_product_counts_its_operations_and_takes_about_as_long():
    left, right = torch.randn(300, 400), torch.randn(400, 500)
    time = time_step(lambda: left @ right, rounds=9)
    assert (time.count, time.flops) == (1, 2 * 300 * 400 * 500)
    assert 0.2 < time.ratio < 5
