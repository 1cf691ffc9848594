"""The kernels, run by Triton's interpreter if there is no GPU."""

import torch

from graphbench.testing import run_with_triton

AGREES = """
    import torch
    from graphbench_kernels.models import maxout_triton
    from graphbench_sft import maxout_scores, scores

    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores.maxima, scores.maxima_gradients = maxout_triton.scores, maxout_triton.gradients

    def draw(*shape, seed):
        numbers = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return numbers.mul(4).round().div(4).to(device)  # so coarse that many are equal

    def broadcast(query, key):
        return torch.maximum(query.unsqueeze(-2), key.unsqueeze(-3)).sum(-1) / query.shape[-1] ** 0.5

    shapes = (1, 1, 1, 1), (2, 5, 3, 4), (2, 9, 70, 3), (3, 17, 1, 1), (1, 70, 33, 65), (0, 2, 3, 4), (2, 0, 3, 4)
    for m, n, k, d in shapes:
        for dtype, close in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
            whole = draw(m, d, n, seed=0).to(dtype).requires_grad_(), draw(m, k, d, seed=1).to(dtype).requires_grad_()
            query, key = whole[0].transpose(1, 2), whole[1]  # not contiguous
            weight = draw(m, n, k, seed=2).to(dtype)
            expected, actual = broadcast(query, key), maxout_scores(query, key)
            torch.testing.assert_close(actual, expected, rtol=close, atol=close)
            found = torch.autograd.grad(actual, whole, weight)
            for ours, theirs in zip(found, torch.autograd.grad(expected, whole, weight), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=close, atol=close)

    query, key = draw(1, 3, 2, seed=0), draw(1, 4, 2, seed=1)
    query[0, 1, 0] = torch.nan
    assert maxout_scores(query, key).isnan().equal(broadcast(query, key).isnan())
    print("equal")
"""


def test_scores_and_gradients_equal_the_broadcast_form():
    assert run_with_triton(AGREES, interpreted=not torch.cuda.is_available()) == "equal\n"
