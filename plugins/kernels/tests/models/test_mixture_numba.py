"""Properties of the compiled code itself; `test_mixture` tests its results."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")

from graphbench.testing import computed_by
from graphbench_kernels.models import mixture_numba
from graphbench_sft import ops


def test_the_smallest_denominator_is_that_of_torch():
    assert mixture_numba._EPSILON == ops.EPSILON


_DIGEST = """
import hashlib
import torch
from graphbench.nn import DenseLayout
from graphbench_sft import SampledAttention, maxout_scores
from graphbench_sft.relative import DistanceRelation
from graphbench_sft.relative import edge_relations
torch.set_num_threads(1)
digest = hashlib.sha256()
for rows in range(2, 60, 3):
    torch.manual_seed(rows)
    x = torch.randn(rows + 3, 18, requires_grad=True)
    layout = DenseLayout.from_batch((torch.arange(rows + 3) >= rows).long())
    edges = torch.randint(rows, (2, 2 * rows))
    for relations in (
        edge_relations(edges, torch.randn(2 * rows, 2), layout),
        [DistanceRelation(part, part) for part in layout.to_blocks(torch.randn(rows + 3, 3))],
    ):
        layer = SampledAttention(18, 2, 21, relation_dim=2)
        out = layer(x, layout, relations)
        gradients = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
        scores = maxout_scores(x, x[:5])
        for x_ in (out, *gradients, scores, *torch.autograd.grad(scores.square().sum(), x)):
            digest.update(x_.detach().numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_the_run_that_compiles_rounds_as_later_runs_do(tmp_path):
    environment = {**os.environ, "GRAPHBENCH_KERNEL_CACHE": str(tmp_path / "kernels"), "GRAPHBENCH_KERNELS": "numba"}
    with computed_by("numba"):  # or skip it where they are not registered
        first, second = (
            subprocess.run([sys.executable, "-c", _DIGEST], env=environment, check=True, capture_output=True).stdout
            for _ in range(2)
        )
    assert list(tmp_path.glob("kernels/*"))
    assert first == second != b""
