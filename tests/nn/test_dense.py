from dataclasses import replace

import pytest
import torch
from torch_geometric.utils import to_dense_batch

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, count_pairs


def rows_of(batch, dim=3):
    return torch.randn(batch.num_nodes, dim, generator=torch.Generator().manual_seed(0))


def test_to_dense_agrees_with_pyg(batch):
    layout, x = DenseLayout.from_batch(batch), rows_of(batch)
    expected, mask = to_dense_batch(x, batch.batch)
    assert torch.equal(layout.to_dense(x), expected)
    assert torch.equal(layout.mask, mask)


def test_to_ragged_undoes_to_dense(batch):
    layout, x = DenseLayout.from_batch(batch), rows_of(batch)
    assert torch.equal(layout.to_ragged(layout.to_dense(x)), x)


def test_gradients_pass_through_unchanged(batch):
    layout, x = DenseLayout.from_batch(batch), rows_of(batch).requires_grad_()
    weight = rows_of(batch, 3)
    (layout.to_ragged(layout.to_dense(x)) * weight).sum().backward()
    assert torch.equal(x.grad, weight)


def test_wrong_number_of_rows_is_an_error(batch):
    with pytest.raises(BadInput, match="built for 34 rows, but the tensor has 33"):
        DenseLayout.from_batch(batch).to_dense(rows_of(batch)[:-1])


def test_layout_of_a_padded_batch_with_room(batch):
    layout = DenseLayout.from_rows(batch.batch, batch.ptr, max_rows=20)
    x = rows_of(batch)
    assert layout.to_dense(x).shape == (6, 20, 3)
    assert torch.equal(layout.to_ragged(layout.to_dense(x)), x)


def test_equal_sizes_need_no_padding(table):
    assert DenseLayout.from_batch(table.batch([2, 2])).is_full
    assert not DenseLayout.from_batch(table.batch([2, 3])).is_full


def test_blocks_partition_the_batch(batch):
    blocks = DenseLayout.from_batch(batch).blocks
    assert torch.cat([block.graphs for block in blocks]).sort()[0].tolist() == list(range(6))
    assert torch.cat([block.rows for block in blocks]).sort()[0].tolist() == list(range(batch.num_nodes))


def test_a_batch_without_graphs_is_one_empty_block():
    layout = DenseLayout.from_rows(torch.zeros(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), max_rows=0)
    (part,) = layout.to_blocks(torch.zeros(0, 3))
    assert (len(layout.blocks), part.shape) == (1, (0, 0, 3))


def test_block_rows_belong_to_its_graphs(batch):
    layout, x = DenseLayout.from_batch(batch), rows_of(batch)
    for block in layout.blocks:
        dense = block.layout.to_dense(block.take(x))
        for graph, part in zip(block.graphs.tolist(), dense, strict=True):
            start, stop = batch.ptr[graph], batch.ptr[graph + 1]
            assert torch.equal(part[: stop - start], x[start:stop])


@pytest.mark.parametrize("chosen", [[0, 1, 2, 3, 4, 5], [4, 4, 4], [5]], ids=["cut", "full", "one"])
def test_all_blocks_are_filled_at_once_and_undone(table, chosen):
    """Results and gradients are those of each block by itself; equal sizes need no copy."""
    batch = table.batch(chosen)
    layout, x = DenseLayout.from_batch(batch), rows_of(batch).double().requires_grad_()
    parts = layout.to_blocks(x)
    for part, block in zip(parts, layout.blocks, strict=True):
        assert torch.equal(part, block.layout.to_dense(block.take(x)))
    assert torch.equal(layout.from_blocks(parts), x)
    weights = [torch.randn(part.shape, dtype=part.dtype) for part in parts]
    (layout.from_blocks([part**2 * weight for part, weight in zip(parts, weights, strict=True)])).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() * layout.from_blocks(weights))


def test_heads_of_all_blocks_are_those_of_each(batch):
    layout, x = DenseLayout.from_batch(batch), rows_of(batch, 2 * 3 * 4)
    heads = layout.to_block_heads(x, num_maps=2, num_heads=3)
    for maps, block in zip(heads, layout.blocks, strict=True):
        for found, expected in zip(maps, block.layout.to_heads(block.take(x), 2, 3), strict=True):
            assert torch.equal(found, expected)
    assert torch.equal(layout.from_block_heads([second for _, second in heads]), x.chunk(2, -1)[1])


def test_blocks_refuse_rows_of_another_batch(batch):
    with pytest.raises(BadInput, match=r"built for .* rows, but the tensor has"):
        DenseLayout.from_batch(batch).to_blocks(rows_of(batch)[:-1])


def test_take_pairs_cuts_the_blocks_part(batch):
    layout = DenseLayout.from_batch(batch)
    pairs = torch.randn(6, 2, 12, 12)
    for block in layout.blocks:
        n = block.layout.max_nodes
        assert torch.equal(block.take_pairs(pairs), pairs[block.graphs][:, :, :n, :n])


def test_equal_sizes_are_one_block(table):
    (block,) = DenseLayout.from_batch(table.batch([4, 4, 4])).blocks
    assert block.rows is None
    assert block.layout.num_graphs == 3


def test_heads_are_cut_from_the_columns_of_each_map(batch):
    layout, x = DenseLayout.from_batch(batch), rows_of(batch, 2 * 3 * 4)
    for number, heads in enumerate(layout.to_heads(x, num_maps=2, num_heads=3)):
        own = x.chunk(2, -1)[number]
        assert torch.equal(heads, layout.to_dense(own).unflatten(-1, (3, 4)).transpose(1, 2))
        assert torch.equal(layout.from_heads(heads), own)


def test_matrices_come_graph_by_graph_without_padding(batch):
    layout = DenseLayout.from_batch(batch)
    assert len(layout.blocks) > 1
    assert torch.equal(layout.graph_of, batch.batch)
    x = rows_of(batch)
    parts = [block.layout.to_dense(block.take(x)) for block in layout.blocks]
    found = layout.matrices_of_graphs([(dense @ dense.mT).unsqueeze(1) for dense in parts])
    for matrix, rows in zip(found, x.split(batch.ptr.diff().tolist()), strict=True):
        torch.testing.assert_close(matrix, (rows @ rows.T).unsqueeze(0))


def test_counted_pairs_are_those_that_are_there(batch):
    for sizes in (batch.ptr, torch.tensor([0, 3, 3, 4])):
        graph_of = torch.repeat_interleave(torch.arange(len(sizes) - 1), sizes.diff())
        layout = DenseLayout.from_rows(graph_of, sizes, int(sizes.diff().max()) + 2)
        counted = replace(layout, num_pairs=count_pairs(sizes))
        for one, other in zip(counted.pair_slots, layout.pair_slots, strict=True):
            assert torch.equal(one, other)
