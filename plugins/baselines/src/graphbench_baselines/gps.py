"""GPS: any local layer beside any global attention, in every layer."""

from __future__ import annotations

from typing import Literal, get_args

from torch import nn

from graphbench import BenchmarkSpec, PositionalEncoder
from graphbench.errors import check_choice
from graphbench.nn import Categorical, GPSBackbone, LocalName, NormName, TransformerAttention
from graphbench_baselines.bigbird import BigBirdBranch
from graphbench_baselines.performer import PerformerBranch

AttentionName = Literal["Transformer", "Performer", "BigBird", "none"]


class GPS(GPSBackbone):
    """GPS (Rampasek et al., NeurIPS 2022, arXiv 2205.12454); defaults are the paper's ZINC model without encodings.

    The layer is `graphbench.nn.GPSLayer`. For another global attention subclass `graphbench.nn.GPSBackbone`.

    Time and memory: `B L ((N + E) d^2 + N^2 (d + H))`, `B L ((N + E) d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: GPS layers.
        num_heads: heads of the global attention (and of the local layer GAT); must divide `hidden_dim`.
        local_layer: GatedGCN, GINE, GCN, GAT or none.
        attention: Transformer (softmax), Performer (linear, see `PerformerBranch`), BigBird (a sparse layer of its own,
            see `BigBirdBranch`) or none.
        dropout: probability of every dropout but that of attention weights.
        attention_dropout: probability of dropping an attention weight; for Performer an entry of what it returns.
            BigBird drops none, here as in GraphGPS.
        norm: batch, layer or none.
        positional_encoders: outputs stand beside the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: the options do not fit each other; the message says which.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GPS(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 10,
        num_heads: int = 4,
        local_layer: LocalName = "GINE",
        attention: AttentionName = "Transformer",
        dropout: float = 0.0,
        attention_dropout: float = 0.5,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_choice("attention", attention, get_args(AttentionName))

        def make_attention() -> nn.Module | None:
            if attention == "none":
                return None
            if attention == "Performer":
                return PerformerBranch(hidden_dim, num_heads, attention_dropout)
            if attention == "BigBird":
                return BigBirdBranch(hidden_dim, num_heads, dropout)
            return TransformerAttention(hidden_dim, num_heads, attention_dropout)

        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            make_attention,
            local_layer=local_layer,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            positional_encoders=positional_encoders or (),
            gate_encoder=gate_encoder,
            categorical=categorical,
        )
