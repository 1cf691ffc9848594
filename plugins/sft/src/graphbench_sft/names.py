"""Names of tokens, and noise that follows from them: how evaluation is random like training and still repeatable.

A name is a hash of what is known of a token before the first layer: whole numbers, so that rounding, batch mates and
the machine cannot change it. Noise is a hash of a name, so that the same graph always gets the same noise.

Legend: T tokens of all graphs, B graphs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_BITS = 0xFFFFFFFF
#: How many steps away neighbours still count in the name of a node.
_STEPS = 3
#: Tells the streams of noise of one name apart: the number behind each is added before hashing.
GUMBEL, ORDER, LAYER = 0x1B873593, 0x3C6EF372, 0x61C88647


def scramble(value: Tensor) -> Tensor:
    """A hash of the low 32 bits of whole numbers, itself of 32 bits; one to one on these.

    Two rounds of multiplying and folding (the form of the finalizer of MurmurHash3), with odd factors below `2^31`, so
    that products fit into int64 and are the same on every device.

    Args:
        value: int64 of any shape.

    Examples:
        >>> scramble(torch.arange(3)).unique().numel()
        3
    """
    value = value & _BITS
    value = ((value ^ (value >> 16)) * 0x21F0AAAD) & _BITS
    value = ((value ^ (value >> 15)) * 0x735A2D97) & _BITS
    return value ^ (value >> 15)


def uniform(names: Tensor, stream: int = ORDER) -> Tensor:
    """Numbers between 0 and 1, both excluded, float32: as good as uniform and independent for distinct names."""
    return ((scramble(scramble(names + stream) + stream) >> 9).float() + 0.5) * 2.0**-23


def gumbel(names: Tensor) -> Tensor:
    """Standard Gumbel numbers, float32: `-log(-log(u))` of uniform ones."""
    return -(-uniform(names, GUMBEL).log()).log()


def names_of_places(graph_of: Tensor, ptr: Tensor) -> Tensor:
    """Names `[T]` by the place in the graph and the size of the graph, where nothing else is known of tokens.

    Args:
        graph_of: graph of each token `[T]`, ascending.
        ptr: first token of each graph `[B + 1]`.
    """
    place = torch.arange(graph_of.shape[0], device=graph_of.device) - ptr[graph_of]
    return scramble(place + scramble(ptr.diff())[graph_of])


@torch.compiler.disable  # chains of hashes take minutes to compile and no time to compute
def names_of_tokens(graph_of: Tensor, ptr: Tensor, columns: Sequence[Tensor], edge_index: Tensor | None) -> Tensor:
    """Names `[T]` by what is known of each token, of its neighbours and of its graph.

    They move with the tokens when these are numbered anew, except among tokens whose columns agree and whose
    neighbourhoods of three steps agree: these are told apart by their order.

    Args:
        graph_of: graph of each token `[T]`, ascending.
        ptr: first token of each graph `[B + 1]`.
        columns: whole or real numbers known of each token, each `[T, c]`.
        edge_index: sources and targets `[2, E]`; None for tokens without edges.
    """
    names = torch.zeros_like(graph_of)
    for column in (single for tensor in columns for single in tensor.unbind(1)):
        names = scramble(scramble(names) + _bits(column))
    for _ in range(_STEPS if edge_index is not None and edge_index.shape[1] else 0):
        assert edge_index is not None
        around = torch.zeros_like(names).index_add_(0, edge_index[1], scramble(names + 1)[edge_index[0]])
        names = scramble(scramble(names) + around)
    whole = torch.zeros_like(ptr[:-1]).index_add_(0, graph_of, scramble(names))
    return scramble(scramble(names + scramble(whole)[graph_of]) + _occurrence(graph_of, names))


def _bits(column: Tensor) -> Tensor:
    """The numbers as whole ones; real numbers by their bits in float32, where 0 and -0 are one number."""
    if not column.is_floating_point():
        return column.long()
    return (column.float() + 0.0).view(torch.int32).long() & _BITS


def _occurrence(graph_of: Tensor, names: Tensor) -> Tensor:
    """How many tokens of the same graph and name stand before each, `[T]`."""
    ordered, order = (graph_of * (_BITS + 1) + names).sort(stable=True)
    first = torch.searchsorted(ordered, ordered)
    return torch.empty_like(names).index_copy_(0, order, torch.arange(len(names), device=names.device) - first)
