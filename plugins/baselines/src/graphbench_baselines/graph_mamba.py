"""Graph-Mamba: a Mamba block over the nodes in the order of their degrees, as the global branch of GPS.

Wang, Tsepa, Ma & Wang, "Graph-Mamba: Towards Long-Range Graph Sequence Modeling with Selective State Spaces", 2024,
arXiv 2402.00789.

Legend: N nodes, a sequence is a graph or a bucket of a graph.
"""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder
from graphbench.errors import check_range
from graphbench.nn import Categorical, DenseLayout, GPSBackbone, LocalName, NormName, count_nodes
from graphbench_baselines.draws import fixed_uniforms
from graphbench_baselines.mamba import MambaBlock


class MambaBranch(nn.Module):
    """A Mamba block that reads the nodes of each graph from the lowest degree to the highest.

    Late nodes know of all earlier ones, so the nodes with many edges stand at the end. Among equal degrees the order is
    random: nodes are sorted by degree + noise, noise uniform in [0, 1), where the degree counts the edges that leave.
    With several buckets each node falls into one of them at random, and each bucket of a graph is its own sequence.

    Training samples a new order in every call. Evaluation averages over several orders, as in the authors' code, but
    takes the same ones every time: they depend on the numbers of the nodes within their graph, so a graph gets the same
    answer whatever shares its batch.

    Args:
        dim: width of the nodes.
        num_orders: orders that evaluation averages over.
        num_buckets: buckets of each graph.
        seed: gives other orders in evaluation.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> batch = tiny_batch(GraphMamba(tiny_spec()))
        >>> MambaBranch(8)(torch.randn(23, 8), batch, DenseLayout.from_batch(batch)).shape
        torch.Size([23, 8])
    """

    def __init__(self, dim: int, num_orders: int = 5, num_buckets: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.num_orders, self.num_buckets, self.seed = num_orders, num_buckets, seed
        self.mamba = MambaBlock(dim)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Mixed nodes `[N, dim]`, without residual."""
        graph, num_nodes = layout.graph_of, x.shape[0]
        degree = count_nodes(batch.edge_index[0], num_nodes).float()
        if self.training:
            return self._read(x, graph, degree, torch.rand(num_nodes, 2, device=x.device), layout)
        rank = torch.arange(num_nodes, device=x.device) - layout.ptr[graph]
        numbers = fixed_uniforms(layout.max_nodes, 2 * self.num_orders, self.seed).to(x.device)[rank]
        orders = [self._read(x, graph, degree, part, layout) for part in numbers.split(2, dim=1)]
        return torch.stack(orders).mean(0)

    def _read(self, x: Tensor, graph: Tensor, degree: Tensor, numbers: Tensor, layout: DenseLayout) -> Tensor:
        """The block on one order of the nodes, given uniform numbers `[N, 2]`: noise and bucket."""
        sequence = graph
        if self.num_buckets > 1:
            sequence = graph * self.num_buckets + (numbers[:, 1] * self.num_buckets).long()
        order = (degree + numbers[:, 0]).argsort(stable=True)
        order = order[sequence[order].argsort(stable=True)]
        if self.num_buckets > 1:
            sizes = count_nodes(sequence, layout.num_graphs * self.num_buckets)
            ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
            longest = int(sizes.max()) if sizes.device.type == "cpu" else layout.max_nodes  # asks no other device
            layout = DenseLayout.from_rows(sequence[order], ptr, longest)
        # Padding stands behind the nodes of a sequence, where a causal block does not see it.
        parts = layout.to_blocks(x[order])
        # Nothing may have fallen into the buckets of a block.
        mixed = layout.from_blocks([self.mamba(part) if part.shape[1] else part for part in parts])
        return torch.empty_like(mixed).index_copy(0, order, mixed)


class GraphMamba(GPSBackbone):
    """Graph-Mamba (Wang et al. 2024); defaults are its Peptides-struct model without encodings.

    The layers are those of GPS around `MambaBranch`.

    Time and memory: `B L ((N + E) d^2 + N log N)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        num_heads: heads of the local layer GAT.
        local_layer: GatedGCN, GINE, GCN, GAT or none.
        num_orders: orders of the nodes that evaluation averages over.
        num_buckets: random parts into which the nodes of a graph fall before they are sorted; the authors take three
            on graphs of several hundred nodes.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        positional_encoders: outputs stand beside the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of its range, or the options do not fit each other.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GraphMamba(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 96,
        num_layers: int = 4,
        num_heads: int = 4,
        local_layer: LocalName = "GatedGCN",
        num_orders: int = 5,
        num_buckets: int = 1,
        dropout: float = 0.0,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_range("num_orders", num_orders, at_least=1, whole=True)
        check_range("num_buckets", num_buckets, at_least=1, whole=True)
        seeds = count()
        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            lambda: MambaBranch(hidden_dim, num_orders, num_buckets, next(seeds)),
            local_layer=local_layer,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            positional_encoders=positional_encoders or (),
            gate_encoder=gate_encoder,
            categorical=categorical,
        )
