"""SFT: the Sampling Foundational Transformer for graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.utils import softmax

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import BadInput
from graphbench.nn import Categorical, DenseLayout, NodeEncoder
from graphbench_sft.attention import AttentionName, SampledAttention, SamplerName
from graphbench_sft.layer import NormPosition, SFTLayer
from graphbench_sft.relative import edge_relations, relative_features, relative_width

GRAPH_TASKS = ("graph-regression", "graph-classification", "graph-multilabel")


class SoftmaxReadout(nn.Module):
    """A graph as the weighted mean of its tokens, `sum_i softmax_i(x_i w) x_i`; `dim` parameters.

    The paper says "softmax aggregation" and no more; this is its form with one learned weight a token.

    Args:
        dim: width of the tokens.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dim, 1, bias=False)  # softmax ignores a bias

    def forward(self, x: Tensor, batch: GraphBatch, visible: Tensor | None = None) -> Tensor:
        """Graphs `[num_graphs, dim]` of tokens `[T, dim]`; only `visible` tokens (bool `[T]`) take part."""
        logits = self.weight(x).float() if x.dtype != torch.float64 else self.weight(x)
        if visible is not None:
            logits = logits.masked_fill(~visible.unsqueeze(-1), -torch.inf)
        weighted = softmax(logits, batch.batch, num_nodes=batch.num_graphs) * x
        return weighted.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.batch, weighted)


class SFT(Architecture):
    """Sampling Foundational Transformer (Nguyen et al. 2024, arXiv 2408.05822) on graphs; defaults are Peptides-func.

    Every layer samples some nodes of each graph by learned importance, and all nodes attend to these. Edges enter as
    relative information: their features and a 1, zero between other nodes. In evaluation the sample is the plain
    top k, so a graph gets the same answer whatever shares its batch and whatever the order of its nodes, except where
    importances are equal: nodes with equal features then enter by their position.

    Dropped tokens are hidden from the sampler and the read-out while training. They still attend, so that every node
    has a representation; for graph tasks this equals removing them.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        num_samples: tokens to sample in every layer and graph.
        token_drop: probability of dropping a token while training; no graph loses all.
        score_dropout: probability of dropping a channel of Q and K.
        embedding_dropout: probability of dropout after attention and after the feed-forward network.
        ffn_dropout: probability of dropout inside the feed-forward network.
        norm_position: pre or post.
        relative: relative information from edges; False leaves positions to `positional_encoders` (table 5).
        attention: maxout_leaky (the paper's), maxout_relu (without leak) or softmax_dot (figure 6).
        sampler: without_replacement (the paper's), straight_through, with_replacement or none (attend to all nodes).
        temperature: of the sampler.
        compiled_scores: let torch.compile fuse the maxout scores alone, which needs a compiler.
        positional_encoders: outputs stand beside the node features, which get the remaining width.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range.
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 144,
        num_layers: int = 4,
        num_heads: int = 16,
        num_samples: int = 75,
        token_drop: float = 0.3,
        score_dropout: float = 0.1,
        embedding_dropout: float = 0.0,
        ffn_dropout: float = 0.2,
        norm_position: NormPosition = "post",
        relative: bool = True,
        attention: AttentionName = "maxout_leaky",
        sampler: SamplerName = "without_replacement",
        temperature: float = 1.0,
        compiled_scores: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "one_hot",
    ) -> None:
        super().__init__(spec, hidden_dim)
        if num_layers < 1:
            raise BadInput(f"num_layers must be at least 1, but got {num_layers}.")
        drops = {"token_drop": token_drop, "score_dropout": score_dropout}
        drops |= {"embedding_dropout": embedding_dropout, "ffn_dropout": ffn_dropout}
        for name, value in drops.items():
            if not 0.0 <= value < 1.0:
                raise BadInput(f"{name} must be at least 0 and below 1, but got {value}.")
        self.token_drop = token_drop
        self.relative = relative
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        width = relative_width(spec) if relative else None
        self.layers = nn.ModuleList()
        for number in range(num_layers):
            mixer = SampledAttention(
                hidden_dim,
                num_heads,
                num_samples,
                attention=attention,
                sampler=sampler,
                relation_dim=width,
                score_dropout=score_dropout,
                temperature=temperature,
                compiled_scores=compiled_scores,
            )
            mixer.layer = number
            self.layers.append(SFTLayer(hidden_dim, mixer, norm_position, embedding_dropout, ffn_dropout))
        self.final_norm = nn.LayerNorm(hidden_dim) if norm_position == "pre" else None
        self.readout = SoftmaxReadout(hidden_dim) if spec.task in GRAPH_TASKS else None

    def forward(self, batch: GraphBatch) -> Representation:
        """Nodes `[num_nodes, hidden_dim]`; for graph tasks also graphs `[num_graphs, hidden_dim]`."""
        x = self.node_encoder(batch)
        layout = DenseLayout.from_batch(batch)
        visible = self._kept_tokens(batch) if self.training and self.token_drop else None
        relations = None
        if self.relative:
            relations = edge_relations(batch.edge_index, relative_features(self.spec, batch), layout)
        for layer in self.layers:
            x = layer(x, layout, relations, visible)
        if self.final_norm is not None:
            x = self.final_norm(x)
        graph = None if self.readout is None else self.readout(x, batch, visible)
        return Representation(node=x, graph=graph)

    def _kept_tokens(self, batch: GraphBatch) -> Tensor:
        """Which nodes stay, bool `[num_nodes]`: each with probability `1 - token_drop`, all of a graph if none did."""
        kept = torch.rand(batch.num_nodes, device=batch.batch.device) >= self.token_drop
        count = torch.zeros(batch.num_graphs, device=kept.device).index_add_(0, batch.batch, kept.float())
        return kept | (count == 0)[batch.batch]
