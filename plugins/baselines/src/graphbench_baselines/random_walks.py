"""Random walks on the graphs of a batch, and encodings of each node's relation to earlier nodes of its walk.

The sampler and the encodings of NeuralWalker (Chen, Schulz & Borgwardt, ICLR 2025, arXiv 2406.03386), which takes its
encodings from CRaWl (Toenshoff et al., TMLR 2023, arXiv 2102.08786).

Legend: N nodes and E edges of the batch, B graphs, W walks, l nodes of a walk, s nodes of the window.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.encodings.substructures import below, mix, structure_hash

#: Clears the sign of a 64-bit hash.
_POSITIVE = (1 << 63) - 1


class RandomWalks(NamedTuple):
    """Walks over the nodes and edges of a batch.

    Args:
        node: nodes in the order of their visit `[W, l]`; N after the end of a walk.
        edge: edge from each node to the next `[W, l]`; E after the end of a walk, and so at its last node.
        keys: `source N + target` of all edges in ascending order, then N^2 `[E + 1]`.
    """

    node: Tensor
    edge: Tensor
    keys: Tensor


def sample_walks(
    edge_index: Tensor, batch: Tensor, ptr: Tensor, seeds: Tensor, length: int, rate: float = 1.0
) -> RandomWalks:
    """Walk from every node, or from a random share of nodes, to uniformly drawn neighbours, without backtracking.

    The neighbour that a walk came from is excluded, unless it is the only one. A walk ends at a node without outgoing
    edges. All walks of the batch take steps simultaneously. Random numbers are hashes of a graph's seed, a node's
    number in its graph and the step, so walks of a graph depend neither on its batch nor on the order of edges.

    Args:
        edge_index: sources and targets `[2, E]`.
        batch: graph of each node `[N]`.
        ptr: first node of each graph `[B + 1]`.
        seeds: one 64-bit seed per graph `[B]`.
        length: l.
        rate: probability that a node is the start of a walk.

    Examples:
        On a path of three nodes walks turn only at the ends.

        >>> path, graph = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.zeros(3, dtype=torch.int64)
        >>> walks = sample_walks(path, graph, torch.tensor([0, 3]), torch.tensor([5]), length=5)
        >>> walks.node[0].tolist(), walks.edge[0].tolist()
        ([0, 1, 2, 1, 0], [0, 2, 3, 1, 4])
    """
    (num_edges, num_nodes), device = (edge_index.shape[1], batch.shape[0]), edge_index.device
    keys, order = (edge_index[0] * num_nodes + edge_index[1]).sort(stable=True)
    source, target = edge_index[:, order]
    first = torch.searchsorted(source, torch.arange(num_nodes + 1, device=device))
    degree = F.pad(first.diff(), (0, 1))
    # Edges that reverse an edge are adjacent in the order: `num_back` of them, starting at `back`.
    reverse = target * num_nodes + source
    back = torch.searchsorted(keys, reverse)
    num_back = F.pad(torch.searchsorted(keys, reverse, right=True) - back, (0, 1))
    rank_back = F.pad(back - first[target], (0, 1))
    # After its end a walk is at node N and has come over edge E.
    target, order = F.pad(target, (0, 1), value=num_nodes), F.pad(order, (0, 1), value=num_edges)

    chance = mix(torch.arange(num_nodes, device=device) - ptr[batch], seeds[batch])
    current = torch.arange(num_nodes, device=device)
    if rate < 1:
        current = current[(mix(chance) & _POSITIVE).double() / 2**63 < rate]
    chance, last_edge = chance[current], torch.full_like(current, num_edges)
    nodes, edges = [current], []
    for step in range(1, length):
        bits, num_returning = mix(chance, step), num_back[last_edge]
        num_onward = degree[current] - num_returning
        # A rank among the edges that do not lead back; skip those that do.
        rank = below(bits, num_onward.clamp(min=1))
        rank = rank + torch.where(rank >= rank_back[last_edge], num_returning, 0)
        turned = rank_back[last_edge] + below(bits, num_returning.clamp(min=1))
        chosen = first[current] + torch.where(num_onward > 0, rank, turned)
        last_edge = torch.where(degree[current] > 0, chosen, num_edges)
        current = target[last_edge]
        nodes.append(current)
        edges.append(order[last_edge])
    edges.append(torch.full_like(current, num_edges))
    return RandomWalks(torch.stack(nodes, 1), torch.stack(edges, 1), F.pad(keys, (0, 1), value=num_nodes**2))


def walk_seeds(edge_index: Tensor, batch: Tensor, ptr: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return one 64-bit seed per graph `[B]`: drawn, or without a generator a reproducible hash of each graph.

    Args:
        edge_index: `[2, E]`.
        batch: graph of each node `[N]`.
        ptr: first node of each graph `[B + 1]`.
        generator: generator on the CPU.
    """
    if generator is None:
        return structure_hash(edge_index, batch, ptr)
    return torch.randint(-(2**63), 2**63 - 1, (len(ptr) - 1,), generator=generator).to(ptr.device)


def window_encodings(walks: RandomWalks, num_nodes: int, window: int) -> Tensor:
    """Mark, for every node w_i of a walk, which of the s previous nodes equal it, and which are its neighbours.

        id[i, j] = 1 if w_i = w_(i-s+j)              j = 0, ..., s - 1
        adj[i, j] = 1 if w_(i-s+j) -> w_i is an edge   j = 0, ..., s - 2; the last one is an edge in any case

    This does not depend on weights or graph sizes and needs only a few launches on a GPU, so it is computed there and
    the loader sends only the walks.

    Args:
        walks: walks of the batch.
        num_nodes: N.
        window: s.

    Returns:
        id and adj, concatenated `[W, l, 2 s - 1]`, bool; False after the end of a walk.

    Examples:
        >>> triangle = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
        >>> keys = torch.cat([triangle[0] * 3 + triangle[1], torch.tensor([9])])
        >>> walk = RandomWalks(torch.tensor([[0, 1, 2, 0]]), torch.tensor([[0, 3, 4, 6]]), keys)
        >>> window_encodings(walk, num_nodes=3, window=3)[0, 3].tolist()  # the start again; 1 is a neighbour, 0 is not
        [True, False, False, False, True]
    """
    node = walks.node.unsqueeze(-1)
    before = F.pad(walks.node, (window, 0), value=-1).unfold(1, window, 1)[:, :-1]  # [W, l, s]
    pair = before[..., :-1] * num_nodes + node
    # The one key above all pairs keeps the place in range; pairs after the end of a walk may exceed it.
    place = torch.searchsorted(walks.keys, pair.contiguous()).clamp(max=walks.keys.shape[0] - 1)
    seen = torch.cat([before == node, walks.keys[place] == pair], dim=-1)
    return seen & (node < num_nodes)
