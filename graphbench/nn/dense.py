"""Convert rows of all graphs, one after the other, to padded graphs, and back.

Legend: T rows (nodes or tokens) of all graphs, B graphs, N rows of each padded graph, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.contracts import GraphBatch
from graphbench.contracts.pyg import graphs_of_nodes
from graphbench.errors import BadInput
from graphbench.nn import size_blocks
from graphbench.nn.size_blocks import SizeCut, cut_by_size, pad_blocks, rounded_size, unpad_blocks


@dataclass(frozen=True)
class DenseLayout:
    """Positions of all rows in a padded tensor; built once per forward pass and shared by all layers.

    On a CPU, where sizes are cheap to read, attention pads graphs of similar size together in `blocks`, whose tensors
    are created on first use. On other devices all graphs are padded to one size N, that of the largest graph
    rounded up by `rounded_size`, so that there are few shapes; graphs of equal size are not padded at all.

    Args:
        index: slot of each row in the flattened padded tensor `[T]`, values in `0 .. B * N - 1`.
        mask: which slots contain a row `[B, N]`, bool.
        key_bias: 0 at slots with a row and minus infinity elsewhere, `[B, 1, 1, N]`, float32; hides padding
            from attention when it is added to the logits.
        ptr: first row of each graph `[B + 1]`.
        cut: which graphs are padded together; None if all are in one block.
        num_pairs: sum of n^2 over the graphs, so that `pair_slots` does not wait for the device; None if not given.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))
        >>> dense = layout.to_dense(torch.ones(4, 2))
        >>> dense.shape, layout.to_ragged(dense).shape
        (torch.Size([2, 3, 2]), torch.Size([4, 2]))
    """

    index: Tensor
    mask: Tensor
    key_bias: Tensor
    ptr: Tensor
    cut: SizeCut | None = None
    num_pairs: int | None = None

    @classmethod
    def from_batch(cls, batch: Data | Tensor, limit: int | None = None) -> DenseLayout:
        """Lay out the nodes of a batch; `limit` as in `from_rows`.

        A `GraphBatch` stores the size of its largest graph; for a PyG `Batch` or `Data`, or the vector
        `batch [num_nodes]`, the sizes are read from the device.

        Raises:
            BadInput: the nodes are not sorted by graph.

        Examples:
            >>> DenseLayout.from_batch(torch.tensor([0, 0, 0, 1])).mask
            tensor([[ True,  True,  True],
                    [ True, False, False]])
        """
        graph_of, ptr = graphs_of_nodes(batch)
        if isinstance(batch, GraphBatch):
            return cls.from_rows(graph_of, ptr, batch.max_nodes, limit)
        return cls.from_rows(graph_of, ptr, int(ptr.diff().max()) if len(ptr) > 1 else 0, limit)

    @classmethod
    def of(cls, graphs: DenseLayout | Data | Tensor | None, x: Tensor) -> DenseLayout:
        """Return the layout of rows `x [T, d]`: the given layout, that of a batch, or a single graph for None.

        Examples:
            >>> DenseLayout.of(None, torch.zeros(3, 8)).ptr
            tensor([0, 3])
        """
        if isinstance(graphs, DenseLayout):
            return graphs
        return cls.from_batch(x.new_zeros(len(x), dtype=torch.int64) if graphs is None else graphs)

    @classmethod
    def from_rows(cls, graph_of: Tensor, ptr: Tensor, max_rows: int, limit: int | None = None) -> DenseLayout:
        """Lay out any rows grouped by graph: `graph_of [T]`, ascending, and the first row of each, `ptr [B + 1]`.

        `max_rows`, the rows of the largest graph, is an argument so that nothing here waits for the device.
        Sizes are rounded up to at most `limit` rows, for layers with a table of that size; 0 disables rounding.
        """
        # Graphs of equal size need no padding, and so no rounding.
        if ptr.device.type not in size_blocks.EXACT_ON and graph_of.shape[0] != (ptr.shape[0] - 1) * max_rows:
            rounded = rounded_size(max_rows)
            max_rows = rounded if limit is None else max(max_rows, min(rounded, limit))
        whole = _padded_together(graph_of, ptr, max_rows)
        # Elsewhere the sizes would be read from the device, and a compiled program cannot depend on them.
        if ptr.device.type != "cpu" or torch.compiler.is_compiling() or whole.is_full:
            return whole
        # Not `numpy()`, which tensors do not support within transforms of `torch.func`.
        return replace(whole, cut=cut_by_size(np.array(ptr.diff().tolist(), dtype=np.int64)))

    @property
    def num_graphs(self) -> int:
        """Number of graphs B."""
        return self.mask.shape[0]

    @property
    def max_nodes(self) -> int:
        """Rows N of each padded graph, at least those of the largest graph."""
        return self.mask.shape[1]

    @property
    def is_full(self) -> bool:
        """Tell whether all graphs have the same size, so that no slot is padding; unknown while a model is exported."""
        return not torch.compiler.is_exporting() and self.index.shape[0] == self.num_graphs * self.max_nodes

    @property
    def blocks(self) -> tuple[SizeBlock, ...]:
        """Return the parts that attention processes one by one to reduce padding: the cut, or the whole batch."""
        return (SizeBlock(None, None, self),) if self.cut is None else self._cut_blocks

    @property
    def num_blocks(self) -> int:
        """Number of `blocks`, without creating them."""
        return 1 if self.cut is None else len(self.cut.starts) - 1

    @property
    def divisors(self) -> Tensor:
        """Nodes of each graph `[B]` as a divisor: 1 for an empty graph."""
        # Before Python 3.12 a cached property's lock would be a graph break; a program computes this once anyway.
        return self.ptr.diff().clamp(min=1) if torch.compiler.is_compiling() else self._divisors

    # Cached properties write to `__dict__`, which `frozen` does not guard.
    @cached_property
    def _divisors(self) -> Tensor:
        return self.ptr.diff().clamp(min=1)

    @cached_property
    def _cut_blocks(self) -> tuple[SizeBlock, ...]:
        assert self.cut is not None
        return tuple(_block(self.ptr, torch.from_numpy(graphs)) for graphs in self.cut.parts)

    @cached_property
    def _slots(self) -> Tensor:
        """Like `index`, for the padded tensors of all blocks of a cut, one after the other `[T]`."""
        # The blocks list their rows largest graph first; scattered to `rows`, the slots are in the order of the batch.
        firsts = accumulate((block.layout.mask.numel() for block in self._cut_blocks), initial=0)
        slots = torch.cat([b.layout.index + first for b, first in zip(self._cut_blocks, firsts, strict=False)])
        rows = torch.cat([block.rows for block in self._cut_blocks if block.rows is not None])
        return torch.empty_like(slots).index_copy_(0, rows, slots)

    @property
    def packing(self) -> Packing:
        """Return the positions of the rows in all `blocks` together, for `graphbench.nn.ops.packed_attention`."""
        # Plain tensors and integers, since an operation of torch.library accepts nothing else.
        blocks = [block.layout for block in self.blocks]
        shapes = [length for block in blocks for length in block.mask.shape]
        padding = [None if block.is_full else block.key_bias for block in blocks]
        if self.cut is None:
            return Packing(self.ptr, None, None if self.is_full else self.index, shapes, padding)
        return Packing(self.ptr, torch.from_numpy(self.cut.order), self._slots, shapes, padding)

    @cached_property
    def pair_slots(self) -> tuple[Tensor, ...]:
        """Indices of all pairs of nodes in a tensor `[B, N, N]`, graph after graph and row after row.

        Without `num_pairs` their number is read from the device, which costs one host-device sync.
        """
        if self.num_pairs is None:
            return (self.mask[:, :, None] & self.mask[:, None, :]).nonzero(as_tuple=True)
        graph_of = self.graph_of
        row = torch.arange(len(graph_of), device=graph_of.device)
        keys = self.ptr.diff()[graph_of]  # of each row
        row = torch.repeat_interleave(row, keys, output_size=self.num_pairs)
        graph, first = graph_of[row], (keys.cumsum(0) - keys)[row]
        key = torch.arange(self.num_pairs, device=row.device) - first
        return graph, row - self.ptr[graph], key

    def check_rows(self, x: Tensor) -> None:
        """Raise `BadInput` unless `x` has as many rows as the layout."""
        if x.shape[0] != self.index.shape[0]:
            raise BadInput(f"The layout was built for {self.index.shape[0]} rows, but the tensor has {x.shape[0]}.")

    def to_dense(self, x: Tensor) -> Tensor:
        """Convert rows `[T, d]` to padded graphs `[B, N, d]`; padding is zero."""
        self.check_rows(x)
        return pad_blocks(x, None if self.is_full else self.index, self.mask.shape)[0]

    def to_ragged(self, dense: Tensor) -> Tensor:
        """Gather the rows `[T, d]` of padded graphs `[B, N, d]`."""
        rows = dense.reshape(self.num_graphs * self.max_nodes, dense.shape[-1])
        return rows if self.is_full else rows.index_select(0, self.index)

    def to_heads(self, x: Tensor, num_maps: int, num_heads: int) -> tuple[Tensor, ...]:
        """Convert rows `[T, num_maps H d]` of several maps to one padded tensor `[B, H, N, d]` of H heads per map.

        Examples:
            >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))
            >>> q, k, v = layout.to_heads(torch.ones(4, 3 * 2 * 5), num_maps=3, num_heads=2)
            >>> q.shape
            torch.Size([2, 2, 3, 5])
        """
        return split_heads(self.to_dense(x), num_maps, num_heads)

    def from_heads(self, mixed: Tensor) -> Tensor:
        """Return the rows `[T, H d]` of padded heads `[B, H, N, d]`; the inverse of `to_heads` for one map."""
        return self.to_ragged(join_heads(mixed))

    @property
    def graph_of(self) -> Tensor:
        """Graph of each row `[T]`."""
        graphs = torch.arange(self.num_graphs, device=self.ptr.device)
        return torch.repeat_interleave(graphs, self.ptr.diff(), output_size=self.index.shape[0])

    def matrices_of_graphs(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return attention matrices without padding, one `[H, n_g, n_g]` per graph in the order of the batch.

        Args:
            parts: the padded matrices `[b, H, n, n]` of each of `blocks`.

        Examples:
            >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))
            >>> sizes = [(block.layout.num_graphs, block.layout.max_nodes) for block in layout.blocks]
            >>> parts = [torch.ones(count, 2, size, size) for count, size in sizes]
            >>> [tuple(matrix.shape) for matrix in layout.matrices_of_graphs(parts)]
            [(2, 3, 3), (2, 1, 1)]
        """
        padded: dict[int, Tensor] = {}  # blocks have the largest graphs first, callers need the batch's order
        for block, part in zip(self.blocks, parts, strict=True):
            graphs = range(self.num_graphs) if block.graphs is None else block.graphs.tolist()
            padded.update(zip(graphs, part, strict=True))
        return [padded[graph][:, :size, :size] for graph, size in enumerate(self.ptr.diff().tolist())]

    def block_biases(self, bias: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """Return what attention adds to the logits of each of `blocks`, `[b, H or 1, n or 1, n]`; None adds nothing.

        Minus infinity hides padding.

        Layers with the same bias can share the result, so that it is built only once.

        Args:
            bias: `[B, H, N, N]` or `[B, 1, N, N]`, rows are queries; its padding is ignored.
        """
        return tuple(block.layout._masked(block.take_pairs(bias)) for block in self.blocks)

    def _masked(self, bias: Tensor | None) -> Tensor | None:
        if self.is_full:
            return bias
        if bias is None:
            return self.key_bias
        # Hide keys, not queries: a padded query sees real keys, since a row of only minus infinity would give NaN.
        return bias.masked_fill(~self.mask[:, None, None, :], -torch.inf)

    def to_blocks(self, x: Tensor) -> list[Tensor]:
        """Convert rows `[T, d]` to the padded graphs `[b, n, d]` of each of `blocks`; padding is zero.

        One copy fills all blocks, so that the backward pass is one gather, however many blocks there are.

        Examples:
            >>> layout = DenseLayout.from_batch(torch.tensor([0] * 80 + [1]))
            >>> parts = layout.to_blocks(torch.ones(81, 2))
            >>> [tuple(part.shape) for part in parts], layout.from_blocks(parts).shape
            ([(1, 80, 2), (1, 1, 2)], torch.Size([81, 2]))
        """
        self.check_rows(x)
        packing = self.packing
        return pad_blocks(x, packing.slots, packing.shapes)

    def from_blocks(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the rows `[T, d]`, in the order of the batch, of the padded graphs `[b, n, d]` of all `blocks`."""
        return unpad_blocks(parts, self.packing.slots)

    def to_block_heads(self, x: Tensor, num_maps: int, num_heads: int) -> list[tuple[Tensor, ...]]:
        """Apply `to_heads` per block: rows `[T, num_maps H d]` as padded tensors `[b, H, n, d]`, one per map.

        Examples:
            >>> layout = DenseLayout.from_batch(torch.tensor([0] * 80 + [1]))
            >>> parts = layout.to_block_heads(torch.ones(81, 3 * 2 * 5), num_maps=3, num_heads=2)
            >>> [q.shape for q, k, v in parts]
            [torch.Size([1, 2, 80, 5]), torch.Size([1, 2, 1, 5])]
            >>> layout.from_block_heads([v for q, k, v in parts]).shape
            torch.Size([81, 10])
        """
        return [split_heads(part, num_maps, num_heads) for part in self.to_blocks(x)]

    def from_block_heads(self, parts: Sequence[Tensor]) -> Tensor:
        """Return rows `[T, H d]` of padded heads `[b, H, n, d]` per block; inverse of `to_block_heads` for one map."""
        return self.from_blocks([join_heads(part) for part in parts])


class Packing(NamedTuple):
    """Layout as arguments of `packed_attention`, under the same names."""

    ptr: Tensor
    order: Tensor | None
    slots: Tensor | None
    shapes: list[int]
    padding: list[Tensor | None]


@dataclass(frozen=True)
class SizeBlock:
    """Some graphs of a batch, padded to one size; None for `graphs` or `rows` means all, in order."""

    graphs: Tensor | None  # [b]
    rows: Tensor | None  # [t] of the ragged tensor
    layout: DenseLayout

    def take(self, x: Tensor) -> Tensor:
        """Return the block's rows `[t, d]` of the ragged tensor `[T, d]`."""
        return x if self.rows is None else x.index_select(0, self.rows)

    def take_pairs(self, bias: Tensor | None) -> Tensor | None:
        """Return the block's part `[b, H, n, n]` of a tensor on node pairs `[B, H, N, N]`; None stays None."""
        if bias is None or self.graphs is None:
            return bias
        n = self.layout.max_nodes
        # n is the size of the block's largest graph: only padding of the whole batch is removed.
        return bias[..., :n, :n].index_select(0, self.graphs)


def split_heads(dense: Tensor, num_maps: int, num_heads: int) -> tuple[Tensor, ...]:
    """Split padded rows `[b, n, num_maps H d]` into one tensor of heads `[b, H, n, d]` for each map.

    Examples:
        >>> q, k, v = split_heads(torch.zeros(2, 5, 3 * 4 * 8), num_maps=3, num_heads=4)
        >>> q.shape
        torch.Size([2, 4, 5, 8])
    """
    # Maps are split first: the gradient is then joined in memory order, without another copy.
    maps = dense.unflatten(-1, (num_maps, num_heads, -1)).unbind(-3)
    return tuple(part.transpose(1, 2) for part in maps)


def join_heads(heads: Tensor) -> Tensor:
    """Join padded heads `[b, H, n, d]` to `[b, n, H d]`; the inverse of `split_heads` for one map.

    Examples:
        >>> join_heads(torch.zeros(2, 4, 5, 8)).shape
        torch.Size([2, 5, 32])
    """
    rows = heads.transpose(1, 2)
    if torch.compiler.is_exporting():  # the strides of attention's result differ between its kernels
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows.flatten(2)


def count_pairs(ptr: Tensor) -> int:
    """Return the sum of n^2 over graphs with first rows `ptr [B + 1]`; costs a host-device sync.

    Examples:
        >>> count_pairs(torch.tensor([0, 2, 5]))
        13
    """
    return int(ptr.diff().square().sum())


def _padded_together(graph_of: Tensor, ptr: Tensor, max_rows: int) -> DenseLayout:
    row = torch.arange(graph_of.shape[0], device=graph_of.device)
    index = row - ptr[graph_of] + graph_of * max_rows
    mask = torch.arange(max_rows, device=ptr.device) < ptr.diff()[:, None]
    # Minus infinity exists in every dtype, while the smallest float32 number would overflow in some.
    key_bias = torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, -torch.inf)[:, None, None, :]
    return DenseLayout(index, mask, key_bias, ptr)


def _block(ptr: Tensor, graphs: Tensor) -> SizeBlock:
    """Return the block of these graphs, which are sorted by size, the largest first."""
    sizes = ptr.diff()[graphs]
    graph_of = torch.repeat_interleave(torch.arange(len(graphs)), sizes)
    own_ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    rows = torch.arange(len(graph_of)) + (ptr[graphs] - own_ptr[:-1])[graph_of]
    return SizeBlock(graphs, rows, _padded_together(graph_of, own_ptr, int(sizes[0])))
