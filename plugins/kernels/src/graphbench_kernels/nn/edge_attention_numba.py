"""Attention of nodes along the edges that arrive at them, in loops that Numba compiles.

Imported by `edge_attention` when `runs_numba` says yes, and never else. Items are heads, so that each thread goes
through all edges and no two write to the same number. As in `messages_numba`, an inner loop writes to one row and
channels are counted without sign.

Legend: T nodes, E edges, H heads of d channels each, C = H d; edge e goes from node `source[e]` to node `target[e]`.
`qkv [T, 3 C]` are Q x, K x and V x side by side. `steer` is what products are multiplied by beside the scale: `[E, C]`,
or one row of ones for all edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

Array = NDArray[np.floating]
Integers = NDArray[np.int64]


@cpu_kernel
def add_up_scores(
    first: int,
    last: int,
    source: Integers,
    target: Integers,
    qkv: Array,
    steer: Array,
    scale: np.floating,
    largest: np.floating,
    scores: Array,
    logits: Array,
    inside: NDArray[np.bool_],
) -> None:
    """`logits [E, H]`: sums over d of `Q x_target * K x_source * steer * scale`, clamped to `largest`.

    Args:
        first: number of the first head.
        last: the head before which to stop.
        source: node that each edge comes from `[E]`.
        target: node that it goes to `[E]`.
        qkv: see the legend.
        steer: see the legend.
        scale: of all products.
        largest: absolute value above which sums are clamped.
        scores: gets the products `[E, C]`; of no rows: they are not kept.
        logits: gets the sums.
        inside: gets which were not clamped `[E, H]`.
    """
    width, heads = np.uint64(steer.shape[1]), np.uint64(logits.shape[1])
    d, steered = width // heads, steer.shape[0] == source.shape[0]
    for edge in range(source.shape[0]):
        start, end, row = source[edge], target[edge], edge if steered else 0
        for head in range(np.uint64(first), np.uint64(last)):
            total = scale * 0
            for c in range(head * d, (head + np.uint64(1)) * d):
                total += qkv[end, c] * qkv[start, width + c] * (steer[row, c] * scale)
            inside[edge, head] = total >= -largest and total <= largest  # neither says that a number is none
            logits[edge, head] = largest if total > largest else -largest if total < -largest else total
        if scores.shape[0]:
            for c in range(np.uint64(first) * d, np.uint64(last) * d):
                scores[edge, c] = qkv[end, c] * qkv[start, width + c] * (steer[row, c] * scale)


@cpu_kernel
def mix_values(
    first: int, last: int, source: Integers, target: Integers, qkv: Array, weights: Array, sums: Array, mixed: Array
) -> None:
    """Divide `weights [E, H]` by their sums per target, and add `weights V x_source` to `mixed_target` `[T, C]`.

    `sums [T, H]` and `mixed` are 0 before; `weights` are exponentials of logits before.
    """
    width, heads = np.uint64(mixed.shape[1]), np.uint64(weights.shape[1])
    d = width // heads
    for edge in range(source.shape[0]):
        end = target[edge]
        for head in range(np.uint64(first), np.uint64(last)):
            sums[end, head] += weights[edge, head]
    for edge in range(source.shape[0]):
        start, end = source[edge], target[edge]
        for head in range(np.uint64(first), np.uint64(last)):
            weight = weights[edge, head] / sums[end, head]
            weights[edge, head] = weight
            for c in range(head * d, (head + np.uint64(1)) * d):
                mixed[end, c] += weight * qkv[start, np.uint64(2) * width + c]


@cpu_kernel
def add_up_per_head(first: int, last: int, left: Array, right: Array, sums: Array) -> None:
    """`sums [T, H]`: sums over d of `left * right`, `[T, C]` each."""
    d = np.uint64(left.shape[1]) // np.uint64(sums.shape[1])
    for node in range(left.shape[0]):
        for head in range(np.uint64(first), np.uint64(last)):
            total = left.dtype.type(0)
            for c in range(head * d, (head + np.uint64(1)) * d):
                total += left[node, c] * right[node, c]
            sums[node, head] = total


@cpu_kernel
def edge_gradients(
    first: int,
    last: int,
    source: Integers,
    target: Integers,
    qkv: Array,
    steer: Array,
    scale: np.floating,
    inside: NDArray[np.bool_],
    weights: Array,
    mixed: Array,
    of_mixed: Array,
    of_scores: Array,
    shared: Array,
    of_qkv: Array,
    of_steer: Array,
) -> None:
    """From gradients of `mix_values`' `mixed` and of `add_up_scores`' `scores` to those of `qkv` and `steer`.

    Args:
        first: number of the first head.
        last: the head before which to stop.
        source: node that each edge comes from `[E]`.
        target: node that it goes to `[E]`.
        qkv: see the legend.
        steer: see the legend.
        scale: of all products.
        inside: logits that were not clamped `[E, H]`.
        weights: of the edges, whose sums per target are 1 `[E, H]`.
        mixed: what they made of the values `[T, C]`.
        of_mixed: its gradient.
        of_scores: gradient of the products `[E, C]`; of no rows: zeros.
        shared: gets products of `mixed` and its gradient `[T, H]`.
        of_qkv: gets the gradient of `qkv`; 0 before.
        of_steer: gets the gradient of `steer`, unless that is one row.
    """
    width, heads = np.uint64(mixed.shape[1]), np.uint64(weights.shape[1])
    d, steered = width // heads, steer.shape[0] == source.shape[0]
    keys, values = width, np.uint64(2) * width
    add_up_per_head(first, last, mixed, of_mixed, shared)
    for edge in range(source.shape[0]):
        start, end, row = source[edge], target[edge], edge if steered else 0
        for head in range(np.uint64(first), np.uint64(last)):
            begin, stop, weight = head * d, (head + np.uint64(1)) * d, weights[edge, head]
            total = scale * 0
            for c in range(begin, stop):
                total += of_mixed[end, c] * qkv[start, values + c]
            of_logit = weight * (total - shared[end, head]) if inside[edge, head] else scale * 0
            for c in range(begin, stop):
                of_qkv[start, values + c] += weight * of_mixed[end, c]
            # the gradient of a product is that of its sum and its own
            if of_scores.shape[0]:
                for c in range(begin, stop):
                    of_steer[row, c] = scale * (of_logit + of_scores[edge, c])
            else:
                for c in range(begin, stop):
                    of_steer[row, c] = scale * of_logit
            for c in range(begin, stop):
                of_qkv[end, c] += of_steer[row, c] * steer[row, c] * qkv[start, keys + c]
            for c in range(begin, stop):
                of_qkv[start, keys + c] += of_steer[row, c] * steer[row, c] * qkv[end, c]
            for c in range(begin, stop):
                of_steer[row, c] *= qkv[end, c] * qkv[start, keys + c]
