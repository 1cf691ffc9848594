"""Parts of the steep rows: sums over keys that cancel, and rows cut down to their likely keys."""

from __future__ import annotations

import torch

from graphbench_sfi_former.steep import gradient_of_queries


def test_equal_keys_leave_no_rounding_in_a_sum_of_huge_terms():
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(2, 6, 4, generator=generator)
    keys[:, 1] = keys[:, 0]
    scores = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    scores[:, 2] -= scores.sum(-1)  # derivatives by the logits of a softmax sum to zero
    rows = torch.tensor([0, 4, 5])  # of two matrices with three rows each
    expected = torch.stack([s @ keys[m].double() for s, m in zip(scores, (0, 1, 1), strict=True)])
    torch.testing.assert_close(gradient_of_queries(scores, keys, rows, 3), expected)
    huge = scores.clone()
    huge[:, 0] += 2.0**90
    huge[:, 1] -= 2.0**90
    found = gradient_of_queries(huge, keys, rows, 3)
    exact = torch.stack(
        [s[2:] @ (keys[m, 2:].double() - keys[m, 0].double()) for s, m in zip(scores, (0, 1, 1), strict=True)]
    )
    torch.testing.assert_close(found, exact)
