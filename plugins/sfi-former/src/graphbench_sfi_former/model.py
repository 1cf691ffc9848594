"""SFi-Former and DFi-Former: GPS layers whose global branch adds a sparse or dense flow to the adjacency matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import check_range
from graphbench.nn import Categorical, GPSBackbone, LocalName, NormName
from graphbench_sfi_former.enhanced import Terms, adjacency_dtype, with_adjacency
from graphbench_sfi_former.layers import (
    DenseFlowAttention,
    FlowGraph,
    PenaltySize,
    Rival,
    RivalAttention,
    SolverName,
    SparseFlowAttention,
)
from graphbench_sfi_former.reference import ProximalOptions


class FlowBackbone(GPSBackbone):
    """GPS layers around adjacency-enhanced attention; A~ is built once per batch.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: GPS layers.
        make_attention: function that creates the global attention of one layer.
        positional_encoders: encoders whose outputs are concatenated to the node features.
        **options: options of `GPSBackbone`.
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int,
        num_layers: int,
        make_attention: Callable[[], nn.Module | None],
        positional_encoders: list[PositionalEncoder] | None,
        **options: Any,
    ) -> None:
        encoders = positional_encoders or ()
        super().__init__(spec, hidden_dim, num_layers, make_attention, positional_encoders=encoders, **options)

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`, and edges `[num_edges, hidden_dim]` if the local layer reads them."""
        # Use a weight's dtype, since features may be integers; a layer in another dtype would rebuild A~.
        weight = next(self.parameters())
        return super().forward(with_adjacency(batch, adjacency_dtype(weight)))


class SFiFormer(FlowBackbone):
    """SFi-Former (Li et al., ICMR 2025); defaults are for the paper's Peptides models without positional encodings.

    A GPS layer combines GatedGCN with `SparseFlowAttention`, whose weights are network flows of least energy with a
    learned friction: weights are exactly zero where friction dominates. SFi-Former+ is this model started from the
    weights of a `DFiFormer`: `--model.init_from CHECKPOINT`.

    Time and memory: `B L (H N d^2 + E (d^2 + H d) + H N^2 d)`, `B L (H N d + E d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: GPS layers.
        num_heads: heads (and those of the local layer GAT).
        penalty: lambda*, the weight of the friction times the number of nodes; larger is sparser.
        alpha: weight of the unit-inflow term; None (null) for rows that sum to one.
        friction: learned as in the paper, or uniform (the same on all links), a plain L1 penalty that produces no
            zeros.
        terms: "both" for flow and adjacency matrix as in the paper; "flow" or "adjacency" for one of them (table 3).
        flow_graph: graph of the flow: "complete" as in the paper, or "edges" for the edges of the graph and loops.
        penalty_size: divisor of `penalty` in the friction's weight: the number of nodes of the "graph"; that of the
            largest graph of the "batch" as in the paper, where a graph's answer depends on the rest of its batch; or a
            number. With "graph" flows vanish in graphs of one node and in most rows of those of two.
        solver: "exact", or "proximal" for T steps of the paper's iteration.
        proximal: T (`num_steps`), start, step and seed of the solver "proximal".
        extra_parameters: add 2 hidden_dim + 1 parameters per layer to match the published counts, see the README.
        local_layer: GatedGCN as in the paper, GINE, GCN, GAT or none.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping a weight of the flow.
        norm: batch, layer or none.
        positional_encoders: their outputs are concatenated to the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.
        head_dim: width of a head, by default hidden_dim as in the paper; GPS has hidden_dim / num_heads. With that,
            `terms: flow` and no `extra_parameters` this is GPS with sparse flow instead of softmax.

    Raises:
        BadInput: an option is out of range, or options conflict with each other.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SFiFormer(tiny_spec(), hidden_dim=16, num_layers=2, num_heads=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    # A fixed number of rows would not be exact, and solving all rows in float64 would sort each of them.
    waits_for_device = "every layer selects the rows of the flow that their dtype cannot represent"

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 235,
        num_layers: int = 2,
        num_heads: int = 4,
        penalty: float = 1.0,
        alpha: float | None = 0.1,
        friction: Literal["learned", "uniform"] = "learned",
        terms: Terms = "both",
        flow_graph: FlowGraph = "complete",
        penalty_size: PenaltySize = "graph",
        solver: SolverName = "exact",
        proximal: ProximalOptions | None = None,
        extra_parameters: bool = True,
        local_layer: LocalName = "GatedGCN",
        dropout: float = 0.1,
        attention_dropout: float = 0.5,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
        head_dim: int | None = None,
    ) -> None:
        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            lambda: SparseFlowAttention(
                hidden_dim,
                num_heads,
                penalty,
                alpha,
                attention_dropout,
                terms=terms,
                friction=friction,
                flow_graph=flow_graph,
                penalty_size=penalty_size,
                solver=solver,
                proximal=proximal,
                extra_parameters=extra_parameters,
                head_dim=head_dim,
            ),
            positional_encoders,
            local_layer=local_layer,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            gate_encoder=gate_encoder,
            categorical=categorical,
        )


class DFiFormer(FlowBackbone):
    """DFi-Former (Li et al., ICMR 2025): SFi-Former without friction, so the flow is softmax attention.

    Its weights have the same names and shapes as in `SFiFormer`, which also has the maps of the friction.

    Time and memory: `B L (H N d^2 + E (d^2 + H d) + H N^2 d)`, `B L (H N d + E d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: GPS layers.
        num_heads: heads (and those of the local layer GAT).
        terms: "both" for attention and adjacency matrix as in the paper; "flow" or "adjacency" for one of them.
        rival: None as in the paper; or a plain regulariser of attention instead of friction: sparsemax (L2 on rows), or
            a penalty on softmax rows in the loss, their entropy or l2, see `layers`.
        rival_weight: weight of that penalty, the mean over rows, heads and layers.
        extra_parameters: add 2 hidden_dim + 1 parameters per layer to match the published counts, see the README.
        local_layer: GatedGCN as in the paper, GINE, GCN, GAT or none.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight.
        norm: batch, layer or none.
        positional_encoders: their outputs are concatenated to the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.
        head_dim: width of a head, by default hidden_dim as in the paper; GPS has hidden_dim / num_heads. With that,
            `terms: flow` and no `extra_parameters` this is GPS.

    Raises:
        BadInput: an option is out of range, or options conflict with each other.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = DFiFormer(tiny_spec(), hidden_dim=16, num_layers=2, num_heads=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 235,
        num_layers: int = 2,
        num_heads: int = 4,
        terms: Terms = "both",
        rival: Rival | None = None,
        rival_weight: float = 0.1,
        extra_parameters: bool = True,
        local_layer: LocalName = "GatedGCN",
        dropout: float = 0.1,
        attention_dropout: float = 0.5,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
        head_dim: int | None = None,
    ) -> None:
        check_range("rival_weight", rival_weight, at_least=0)

        def make_attention() -> nn.Module:
            kind = DenseFlowAttention if rival is None else partial(RivalAttention, rival=rival)
            return kind(
                hidden_dim,
                num_heads,
                attention_dropout,
                terms=terms,
                extra_parameters=extra_parameters,
                head_dim=head_dim,
            )

        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            make_attention,
            positional_encoders,
            local_layer=local_layer,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            gate_encoder=gate_encoder,
            categorical=categorical,
        )
        self.rival_weight = rival_weight

    def forward(self, batch: GraphBatch) -> Representation:
        """Add the penalty of a rival to the result of `FlowBackbone.forward`."""
        out = super().forward(batch)
        # Take the penalties instead of only reading them, so that none of this pass remains for the next.
        taken = [module.take_row_penalty() for module in self.modules() if isinstance(module, RivalAttention)]
        penalties = [penalty for penalty in taken if penalty is not None]
        if not penalties:
            return out
        return replace(out, penalty=self.rival_weight * torch.stack(penalties).mean())
