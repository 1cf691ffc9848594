"""A learned positional encoding for any architecture: the linear transformer of equation (16).

`Positions` and the sign-invariant eigenvector losses pre-train the encoding by itself.

"Graph Transformers Dream of Electric Flow" (arXiv 2410.16699), section 6 and appendix 14.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.contracts.devices import as_double
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout
from graphbench_linear_transformer.incidence import Incidence, SparseIncidence
from graphbench_linear_transformer.normalise import inverse_root, unit_columns
from graphbench_linear_transformer.transformers import MolecularTransformer

#: Columns of powers of the walk matrix in one block, fewest and most, and numbers of a block.
_WALK_COLUMNS, _WALK_NUMBERS = (64, 1024), 2**25
#: Share of non-zero numbers above which a block is dense: walks in scale-free graphs reach all nodes after a few steps.
_SPARSE_SHARE = 0.05
#: Source of Φ_0, see `LinearTransformerPE`.
Initial = Literal["walks", "slots", "random"]


class LinearTransformerPE(PositionalEncoder):
    """Node features from a linear transformer on the incidence matrix only.

    `columns(M Φ_L)`: Φ_0 passes through `num_layers * num_loops` layers of (16), a linear map M without bias maps its k
    columns to the width `dim`, and each column is scaled to unit norm over the nodes of its graph, like an eigenvector.
    The graph is first made simple and undirected, with unit resistances. No stored encoding is needed.

    `initial` names Φ_0:

    * "walks": `F C` with a trained C, F the return probabilities of random walks of 0, 2, 3, ... steps. The output is
      exactly equivariant to permutations of nodes, so symmetric nodes get equal features.
    * "slots": one trained row per node slot, as in the authors' code; it depends on the numbering of the nodes.
    * "random": Gaussian rows, new ones in every training step; equivariant in distribution, and of full rank, as Lemma
      6 requires. In evaluation node i of every graph gets the i-th row of one fixed sequence.

    With 3 layers, k = 8 and `released=True`, "slots" has the 488 parameters that the authors count on ZINC
    (`max_nodes=37, dim=6`) and the 240 on QM9 (`max_nodes=9, dim=3`).

    Args:
        dim: width of the result.
        num_features: k, columns of Φ.
        num_layers: distinct layers.
        num_loops: passes through each layer.
        initial: source of Φ_0.
        num_steps: columns of F, for "walks".
        max_nodes: nodes of the largest graph, for "slots".
        shuffle_slots: in training, assign the nodes of a graph to random slots, for "slots". The paper permutes nodes,
            but the released code permutes both B and Φ_0, which has no effect: the published runs have False.
        keep_incidence: keep B, one column per edge: best if graphs have about as many edges as nodes. False keeps
            n x n matrices instead, for graphs with many edges, without a host-device sync.
        released: add the authors' further 16 numbers per layer, see `MolecularLayer`.
        evolve_incidence: let layers change more than the scale of B. Every layer then fills B, and costs
            O(n^2 (n + d)) for n nodes and d edges. False is a different model, with B unchanged, as in all of the
            paper's constructions: time O(d k) per layer and memory O(d + n k), for graphs of 1e5 edges. "walks" also
            cost the neighbourhoods of `num_steps / 2` steps, once per batch and without gradients.

    Raises:
        BadInput: an option is unknown or out of range, or `released` is combined with `evolve_incidence=False`.

    Examples:
        A path of 2,000 nodes.

        >>> import torch
        >>> from graphbench import GraphTable
        >>> node = torch.arange(1999)
        >>> path = {"num_nodes": 2000, "edge_index": torch.stack((node, node + 1))}
        >>> batch = GraphTable.from_graphs([path]).batch([0])
        >>> LinearTransformerPE(dim=6, evolve_incidence=False)(batch).shape
        torch.Size([2000, 6])
    """

    def __init__(
        self,
        dim: int = 6,
        num_features: int = 8,
        num_layers: int = 3,
        num_loops: int = 3,
        initial: Initial = "walks",
        num_steps: int = 16,
        max_nodes: int = 37,
        shuffle_slots: bool = False,
        keep_incidence: bool = True,
        released: bool = False,
        evolve_incidence: bool = True,
    ) -> None:
        super().__init__()
        sizes = {"dim": dim, "num_features": num_features, "num_layers": num_layers, "num_loops": num_loops}
        sizes |= {"num_steps": num_steps, "max_nodes": max_nodes}
        for name, value in sizes.items():
            check_range(f"LinearTransformerPE: {name}", value, at_least=1, whole=True)
        check_choice("LinearTransformerPE: initial", initial, get_args(Initial))
        self.dim, self.num_features = dim, num_features
        self.initial, self.shuffle_slots, self.keep_incidence = initial, shuffle_slots, keep_incidence
        self.slots = _unit_rows(max_nodes, num_features) if initial == "slots" else None
        self.walks = _unit_rows(num_steps, num_features) if initial == "walks" else None
        self.evolve_incidence = evolve_incidence
        self.transformer = MolecularTransformer(num_layers, num_features, num_loops, released, evolve_incidence)
        self.readout = nn.Linear(num_features, dim, bias=False)
        self.readout.weight = _unit_rows(dim, num_features)

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Count columns of the incidence matrix, or compute return probabilities by sparse products on the host."""
        incidence, steps = SparseIncidence.from_batch(batch), self._sparse_steps
        if self.evolve_incidence:
            return {"incidence_columns": incidence.count_columns()} if self.keep_incidence else {}
        if not steps:
            return {}
        layout = DenseLayout.from_batch(batch, limit=0)
        return {f"walk_returns_{steps}": layout.to_ragged(sparse_return_probabilities(incidence, steps))}

    @property
    def _sparse_steps(self) -> int:
        """Number of walk steps that are computed by sparse products; 0 for none."""
        return 0 if self.evolve_incidence or self.walks is None else self.walks.shape[0]

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the features of every node `[num_nodes, dim]` of a `GraphBatch` or a plain `Batch` of PyG.

        Raises:
            BadInput: a graph has more nodes than there are slots.
        """
        return self.encode(batch, self.initial_features(batch))

    def initial_features(self, batch: GraphBatch) -> Tensor:
        """Return Φ_0 of every node `[num_nodes, num_features]`; with `initial="random"` training draws a new one."""
        # See `encode` on autocast.
        with torch.autocast(batch.edge_index.device.type, enabled=False):
            return self._initial_features(batch)

    def _initial_features(self, batch: GraphBatch) -> Tensor:
        # Sizes are not rounded up, as for the incidence matrix: nodes have the same places in both.
        layout = DenseLayout.from_batch(batch, limit=0)
        number = layout.index % max(layout.max_nodes, 1)  # of each node within its graph
        if self.slots is not None:
            return self.slots[self._slot(number, layout)]
        if self.walks is not None:
            incidence, num_steps = self._incidence(batch), self.walks.shape[0]
            if self.evolve_incidence:
                returns = return_probabilities(incidence.similarity(), num_steps)
            elif (walk_returns := batch.get(f"walk_returns_{num_steps}")) is not None:
                returns = layout.to_dense(walk_returns.to(incidence.weight.dtype))
            else:
                returns = sparse_return_probabilities(incidence, num_steps)
            # A walk of 0 steps also returns with probability 1 on padding, which would enter the norm of columns.
            returns = returns.masked_fill(~layout.mask.unsqueeze(-1), 0.0)
            return layout.to_ragged(unit_columns(returns @ self.walks))
        dtype = self.readout.weight.dtype
        if self.training:
            return torch.randn(len(number), self.num_features, device=number.device, dtype=dtype)
        return fixed_gaussians(number, self.num_features).to(number.device, dtype)

    def encode(self, batch: GraphBatch, initial: Tensor) -> Tensor:
        """Return the features of every node `[num_nodes, dim]` from a given Φ_0 `[num_nodes, num_features]`."""
        # Products of many layers with norms between them need more than the eight bits of bfloat16.
        with torch.autocast(batch.edge_index.device.type, enabled=False):
            layout, edges = DenseLayout.from_batch(batch, limit=0), self._incidence(batch)
            incidence: Incidence = edges
            if self.evolve_incidence:
                columns = batch.get("incidence_columns")
                incidence = edges.dense(columns) if self.keep_incidence else edges.evolving()
            _, features = self.transformer(incidence, layout.to_dense(initial.to(edges.weight.dtype)))
            return layout.to_ragged(unit_columns(self.readout(features)))

    def _incidence(self, batch: GraphBatch) -> SparseIncidence:
        return SparseIncidence.from_batch(batch, self.readout.weight.dtype)

    def _slot(self, number: Tensor, layout: DenseLayout) -> Tensor:
        """Return the slot of every node `[num_nodes]`: its number within the graph, or a random one, all distinct."""
        assert self.slots is not None
        max_nodes = self.slots.shape[0]
        if layout.max_nodes > max_nodes:
            raise BadInput(
                f"A graph of the batch has {layout.max_nodes} nodes, but LinearTransformerPE has {max_nodes} slots: "
                "set max_nodes to the largest graph's size, or use initial='walks', which has no slots."
            )
        if not (self.training and self.shuffle_slots):
            return number
        # A permutation of all slots; each graph uses the first n, so no two nodes share one.
        # float32 whatever the default dtype: equal numbers of bfloat16 would not be in random order.
        order = torch.rand(layout.num_graphs, max_nodes, dtype=torch.float32, device=number.device).argsort(1)
        return order[layout.index // max(layout.max_nodes, 1), number]


def return_probabilities(laplacian: Tensor, num_steps: int) -> Tensor:
    """Compute return probabilities after 0, 2, 3, ..., `num_steps` steps: `diag (D^-1 A)^j`, `[..., n, num_steps]`.

    One step is omitted, since it never leads back. Two powers give the diagonal of their product, so half the products
    suffice.

    Args:
        laplacian: L = D - A `[..., n, n]` of simple graphs.
        num_steps: columns.
    """
    degree = laplacian.diagonal(dim1=-2, dim2=-1)
    # S = D^(-1/2) A D^(-1/2) has the walk's diagonals and is symmetric, so diag(S^a S^b) is the row sum of S^a * S^b.
    root = inverse_root(degree).unsqueeze(-1)
    walk = root * (torch.diag_embed(degree) - laplacian) * root.mT
    columns, power = [torch.ones_like(degree)], walk
    while len(columns) < num_steps:
        columns.append((power * power).sum(-1))
        longer = power @ walk
        columns.append((power * longer).sum(-1))
        power = longer
    return torch.stack(columns[:num_steps], dim=-1)


@torch.no_grad()
def sparse_return_probabilities(incidence: SparseIncidence, num_steps: int) -> Tensor:
    """Compute `return_probabilities` of a whole batch by sparse products: `[..., n, num_steps]`, without gradients.

    S = D^(-1/2) A D^(-1/2) has the diagonals of the walk's powers, and `diag S^(a+b)` is the row sum of `S^a * S^b`.
    Powers are computed in blocks of columns; one has an entry for each node within `num_steps / 2` steps.

    Args:
        incidence: B of simple graphs with unit resistances.
        num_steps: columns.
    """
    total, weight = math.prod(incidence.shape), incidence.weight
    present = weight != 0
    tail, head = (ends[present].cpu().numpy() for ends in (incidence.tail, incidence.head))
    ends = np.concatenate((tail, head)), np.concatenate((head, tail))
    adjacency = csr_array((np.ones(len(ends[0])), ends), shape=(total, total))
    degree = np.asarray(adjacency.sum(1)).reshape(-1)
    root = diags_array(np.divide(1.0, np.sqrt(degree), where=degree > 0, out=np.zeros_like(degree)))
    walk = (root @ adjacency @ root).tocsr()
    returns = np.ones((total, num_steps))
    width = int(np.clip(_WALK_NUMBERS // max(total, 1), *_WALK_COLUMNS))
    for start in range(0, total, width):
        block, column = slice(start, start + width), 1
        power: csr_array | np.ndarray = walk[:, block]
        while column < num_steps:
            returns[block, column] = _products(power, power)
            longer = walk @ power
            if not isinstance(longer, np.ndarray) and longer.nnz > _SPARSE_SHARE * math.prod(longer.shape):
                longer = longer.toarray()
            if column + 1 < num_steps:
                returns[block, column + 1] = _products(power, longer)
            power, column = longer, column + 2
    return torch.from_numpy(returns).to(weight).view(*incidence.shape, num_steps)


def _products(one: csr_array | np.ndarray, other: csr_array | np.ndarray) -> np.ndarray:
    """Return the inner products of the columns of two blocks; the second is dense if the first is."""
    both = one * other if isinstance(one, np.ndarray) else one.multiply(other)
    return np.asarray(both.sum(0)).reshape(-1)


def fixed_gaussians(number: Tensor, num_columns: int) -> Tensor:
    """Return Gaussian-like numbers that depend only on the number of the row: `[rows, num_columns]`, see `as_double`.

    Column c of row i is the normal quantile of the fractional part of `(i + 1) sqrt(p_c)`, p_c the c-th prime: a Weyl
    sequence, so every device can compute any number of rows without a generator.
    """
    place = as_double(number) + 1
    primes = torch.tensor(_first_primes(num_columns), device=place.device, dtype=torch.float64)
    # Roots of primes are independent over the rationals, so rows fill the unit cube evenly (Weyl).
    uniform = (place.unsqueeze(-1) * primes.sqrt()).frac()
    return 2**0.5 * torch.erfinv(2 * uniform - 1)


def _first_primes(count: int) -> list[int]:
    primes: list[int] = []
    candidate = 2
    while len(primes) < count:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return primes


def _unit_rows(rows: int, columns: int) -> nn.Parameter:
    """Draw random rows of length 1."""
    return nn.Parameter(nn.functional.normalize(torch.randn(rows, columns), dim=1))


class Positions(Architecture):
    """Return the real-valued node features unchanged, so that only the positional encoding is trained.

    With `--model.positional_encoding` on a benchmark without node features, the representation is the output of the
    encoding, so the encoding alone learns the targets. Use the checkpoint as `init_from` of a model with the same
    encoding.

    Time and memory: `B N d`.

    Args:
        spec: the benchmark's description.

    Raises:
        BadInput: the width of the node features differs from that of the targets.

    Examples:
        >>> from dataclasses import replace
        >>> from graphbench import Features
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> spec = replace(tiny_spec("node-classification"), node=Features(dense=3), num_targets=3)
        >>> model = Positions(spec)
        >>> batch = tiny_batch(model)
        >>> torch.equal(model(batch).node, batch.x_dense)
        True
    """

    weights: Tensor

    def __init__(self, spec: BenchmarkSpec) -> None:
        if spec.node.dense != spec.num_targets:
            raise BadInput(
                f"Positions returns the nodes' {spec.node.dense} real-valued features, but {spec.name} has "
                f"{spec.num_targets} targets: set model.positional_encoding with dim {spec.num_targets}."
            )
        super().__init__(spec, spec.node.dense)
        # Empty; it has the dtype of the module, in which the head expects its rows.
        self.register_buffer("weights", torch.empty(0), persistent=False)

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, dim]`."""
        return Representation(node=batch.x_dense.to(self.weights.dtype))


def sign_invariant_errors(predicted: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """Compute `min(‖φ_i - v_i‖², ‖φ_i + v_i‖²)` of every column i of every graph (section 4.1 of arXiv 2410.16699).

    Args:
        predicted: φ `[num_nodes, c]`, the nodes of all graphs concatenated.
        target: v `[num_nodes, c]`.
        graph_of: graph of each node `[num_nodes]`.
        num_graphs: G.

    Returns:
        `[num_graphs, c]`.

    Raises:
        BadInput: the shapes do not match.

    Examples:
        >>> vector = torch.tensor([[0.6], [0.8]])
        >>> sign_invariant_errors(-vector, vector, torch.tensor([0, 0]), num_graphs=1)
        tensor([[0.]])
    """
    if predicted.shape != target.shape or predicted.dim() != 2 or graph_of.shape != predicted.shape[:1]:
        raise BadInput(
            f"Expected predictions and targets [num_nodes, c] and graph_of [num_nodes], but got "
            f"{list(predicted.shape)}, {list(target.shape)} and {list(graph_of.shape)}."
        )
    # A whole column of a graph has one sign, so the smaller error is chosen after the sum over nodes.
    squares = torch.cat([(predicted - target).square(), (predicted + target).square()], dim=1)
    same, opposite = squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares).chunk(2, dim=1)
    return torch.minimum(same, opposite)


def eigenvector_loss(predicted: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """Sum `sign_invariant_errors` over columns and average over graphs: the authors' loss in pre-training.

    Examples:
        >>> vector = torch.tensor([[0.6], [0.8]])
        >>> eigenvector_loss(torch.zeros(2, 1), vector, torch.tensor([0, 0]), num_graphs=1)  # |v|^2
        tensor(1.)
    """
    return sign_invariant_errors(predicted, target, graph_of, num_graphs).sum(1).mean()
