"""Read-outs against their equations."""

import torch
import torch.nn.functional as F

from graphbench.nn import DenseLayout
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sft.readout import SampledMaxReadout, SoftmaxReadout, TowerPair

VISIBLE = torch.tensor([True, False, True] + 5 * [True])


def make_batch():
    return tiny_table(tiny_spec(), sizes=[3, 5]).batch([0, 1])


def test_readout_is_a_softmax_weighted_mean():
    torch.manual_seed(0)
    readout, batch, x = SoftmaxReadout(4), make_batch(), torch.randn(8, 4)
    graphs = readout(x, batch, DenseLayout.from_batch(batch), VISIBLE)
    for graph, rows in enumerate(([0, 2], [3, 4, 5, 6, 7])):
        weights = (x[rows] @ readout.weight.weight[0]).softmax(0)
        torch.testing.assert_close(graphs[graph], weights @ x[rows])


def test_sampled_maximum_is_over_the_most_important_tokens():
    torch.manual_seed(0)
    readout, batch, x = SampledMaxReadout(4, num_samples=3, evaluation="topk").eval(), make_batch(), torch.randn(8, 4)
    for visible, first in ((None, [0, 1, 2]), (VISIBLE, [0, 2])):
        graphs = readout(x, batch, DenseLayout.from_batch(batch), visible)
        for graph, rows in enumerate((first, [3, 4, 5, 6, 7])):
            best = readout.sampler.score(x[rows]).squeeze(1).topk(min(3, len(rows))).indices
            assert torch.equal(graphs[graph], x[rows][best].amax(0))


def test_sampled_maximum_of_equal_sizes_and_of_nothing():
    torch.manual_seed(0)
    readout, x = SampledMaxReadout(4, num_samples=512).eval(), torch.randn(8, 4)
    batch = tiny_table(tiny_spec(), sizes=[4, 4]).batch([0, 1])
    graphs = readout(x, batch, DenseLayout.from_batch(batch))
    assert torch.equal(graphs, x.view(2, 4, 4).amax(1))
    hidden = torch.arange(8) >= 4
    assert torch.equal(readout(x, batch, DenseLayout.from_batch(batch), hidden)[0], torch.zeros(4))


def test_importance_of_the_sampled_maximum_learns():
    torch.manual_seed(0)
    readout, batch, x = SampledMaxReadout(4, num_samples=2), make_batch(), torch.randn(8, 4)
    readout(x, batch, DenseLayout.from_batch(batch)).sum().backward()
    assert readout.sampler.score.weight.grad.any()


def test_two_documents_meet_in_four_parts():
    torch.manual_seed(0)
    pair, documents = TowerPair(3), torch.randn(4, 3)
    for graph in range(2):
        a, b = documents[2 * graph], documents[2 * graph + 1]
        expected = F.gelu(pair.linear.weight @ torch.cat([a, b, a * b, a - b]) + pair.linear.bias)
        torch.testing.assert_close(pair(documents)[graph], expected)
