import pytest
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer import eigenvector_loss, sign_invariant_errors

GRAPH_OF = torch.tensor([0, 0, 0, 1, 1, 3])


@pytest.fixture
def vectors():
    return torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_errors_are_those_of_the_better_sign(vectors):
    target = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    errors = sign_invariant_errors(vectors, target, GRAPH_OF, 4)
    assert errors.shape == (4, 2)
    for graph in range(4):
        for column in range(2):
            p, t = vectors[graph == GRAPH_OF, column], target[graph == GRAPH_OF, column]
            expected = min((p - t).square().sum(), (p + t).square().sum())
            assert errors[graph, column].item() == pytest.approx(expected.item())


def test_signs_of_every_graph_and_column_do_not_matter(vectors):
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    flipped = signs[GRAPH_OF] * vectors
    assert eigenvector_loss(flipped, vectors, GRAPH_OF, 4).item() == 0
    mixed = vectors * torch.tensor([1.0, -1.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)[:, None]
    assert eigenvector_loss(mixed, vectors, GRAPH_OF, 4) > 0


def test_loss_is_the_mean_over_graphs_of_the_sum_over_columns(vectors):
    target = torch.zeros_like(vectors)
    assert eigenvector_loss(vectors, target, GRAPH_OF, 4).item() == pytest.approx(vectors.square().sum().item() / 4)


def test_loss_has_the_right_gradient(vectors):
    target = vectors.flip(0) + 0.1
    assert torch.autograd.gradcheck(lambda v: eigenvector_loss(v, target, GRAPH_OF, 4), (vectors.requires_grad_(),))


def test_mismatched_shapes_are_refused(vectors):
    with pytest.raises(BadInput, match="predictions and targets"):
        sign_invariant_errors(vectors, vectors[:, :1], GRAPH_OF, 4)
