"""Maps of single graphs contain the weights of the trace, at the tokens that its columns name."""

from __future__ import annotations

import pytest
import torch

from graphbench import LayerTrace
from graphbench.diagnostics import attention_maps, spread_out
from graphbench.errors import BadInput


def trace(layer: int, matrices: list[torch.Tensor], columns: list[torch.Tensor] | None = None) -> LayerTrace:
    sizes = torch.tensor([matrix.shape[1] for matrix in matrices])
    batch = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    tokens, name = torch.zeros(len(batch), 2), f"layers.{layer}"
    return LayerTrace(tokens, batch, None, matrices, columns, sizes, layer=layer, name=name)


@pytest.fixture
def softmax() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(3, n, n, generator=generator).softmax(-1) for n in (4, 6)]


def test_layers_and_heads_are_chosen_graph_by_graph(softmax: list[torch.Tensor]) -> None:
    maps = attention_maps([trace(layer, softmax) for layer in range(3)], layers=[0, 2], heads=[2, 1])
    assert [[layer.layer for layer in graph] for graph in maps] == [[0, 2], [0, 2]]
    assert torch.equal(maps[1][0].weights, softmax[1][[2, 1]])
    assert maps[0][1].heads == (2, 1)
    assert maps[0][0].row_sum.tolist() == pytest.approx([1, 1])
    expected = -(softmax[0][2] * softmax[0][2].log()).sum(-1).mean()
    assert maps[0][0].entropy[0].item() == pytest.approx(expected.item(), rel=1e-6)


def test_sampled_columns_go_to_their_tokens() -> None:
    matrix = torch.tensor([[[0.25, 0.75], [0.0, 0.5], [1.0, 0.0]]])
    (shown,) = attention_maps([trace(0, [matrix], [torch.tensor([2, 0])])])[0]
    expected = [[0.75, 0.0, 0.25], [0.5, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert shown.weights[0].tolist() == expected
    assert shown.zeros.tolist() == pytest.approx([2 / 6])  # of the layer's own weights, not of filled-in ones
    assert shown.row_sum.tolist() == pytest.approx([2.5 / 3])


def test_nodes_receive_means_and_pairs_mean_both_directions() -> None:
    matrix = torch.tensor([[[0.1, 0.9, 0.0], [0.3, 0.2, 0.5], [0.0, 0.0, 1.0]]])
    with_token = trace(0, [matrix])
    with_token.num_nodes = torch.tensor([2])  # the third row is an extra token
    (shown,) = attention_maps([with_token])[0]
    assert shown.received[0].tolist() == pytest.approx([0.2, 0.55])
    assert shown.between(torch.tensor([[0], [1]]))[0].tolist() == pytest.approx([0.6])


def test_unknown_layers_and_heads_are_refused(softmax: list[torch.Tensor]) -> None:
    with pytest.raises(BadInput, match=r"layers must be among 0 \.\. 1"):
        attention_maps([trace(0, softmax), trace(1, softmax)], layers=[2])
    with pytest.raises(BadInput, match=r"heads must be among 0 \.\. 2 of layers.0"):
        attention_maps([trace(0, softmax)], heads=[3])


def test_layers_without_matrices_are_left_out(softmax: list[torch.Tensor]) -> None:
    silent = LayerTrace(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))
    assert attention_maps([silent]) == []
    assert [layer.layer for layer in attention_maps([silent, trace(1, softmax)])[0]] == [1]


def test_spread_out_keeps_both_ends() -> None:
    assert [spread_out(count, 4) for count in (0, 1, 3, 4, 10)] == [[], [0], [0, 1, 2], [0, 1, 2, 3], [0, 3, 6, 9]]
