"""Hash counters to random numbers that depend on their purpose, not on the order of the draws.

A generator returns numbers in the order of the calls, so the draw of a graph would depend on the earlier graphs in its
chunk or batch. A hash of (seed, graph, purpose, index) does not: the same graph gets the same draw in every chunk,
batch and process, on both CPU and CUDA.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Constants of the SplitMix64 finaliser (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
# OOPSLA 2014) and its increment, as signed 64-bit integers.
_MULTIPLY_1 = 0xBF58476D1CE4E5B9 - 2**64
_MULTIPLY_2 = 0x94D049BB133111EB - 2**64
_INCREMENT = 0x9E3779B97F4A7C15 - 2**64


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift right logically; `>>` copies the sign bit of an int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _wrapped(number: int) -> int:
    """Return the signed 64-bit integer that equals `number` modulo 2^64."""
    return (number + 2**63) % 2**64 - 2**63


def mix(x: Tensor, salt: int | Tensor = 0) -> Tensor:
    """Hash 64-bit integers (SplitMix64 finaliser).

    Args:
        x: int64, any shape.
        salt: second argument of the hash; a tensor broadcasts against `x`.

    Returns:
        int64 of the broadcast shape; all 64 bits look random, including the sign.
    """
    # int64 tensors wrap around, as needed for arithmetic modulo 2^64; Python's integers do not.
    offset = (salt + 1) * _INCREMENT
    x = x + (_wrapped(offset) if isinstance(offset, int) else offset)
    x = (x ^ _shifted(x, 30)) * _MULTIPLY_1
    x = (x ^ _shifted(x, 27)) * _MULTIPLY_2
    return x ^ _shifted(x, 31)


def below(bits: Tensor, bound: Tensor) -> Tensor:
    """Turn hashed bits into uniform integers in `0 .. bound - 1` (bias below `bound / 2^63`)."""
    return (bits & 0x7FFFFFFFFFFFFFFF) % bound


def structure_hash(edge_index: Tensor, batch: Tensor, ptr: Tensor) -> Tensor:
    """Hash the nodes and edges of each graph as they are numbered: `[G]`, int64.

    The hash is equal for equal graphs, whatever their place in a batch and the order of their edges; renumbering the
    nodes changes it.

    Args:
        edge_index: `[2, num_edges]`, batch numbering.
        batch: graph of each node `[num_nodes]`.
        ptr: first node of each graph `[G + 1]`.
    """
    graph = batch[edge_index[0]]
    source, target = edge_index - ptr[graph]
    num_nodes = ptr.diff()
    # A sum over edges does not depend on their order; a target is salted with its source's hash, so direction counts.
    total = torch.zeros_like(num_nodes).index_add_(0, graph, mix(target, mix(source)))
    return mix(total, num_nodes)
