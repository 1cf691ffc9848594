"""SFT: the Sampling Foundational Transformer for graphs, point clouds and sequences, and its layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import Categorical, DenseLayout, FeedForward
from graphbench_sft.attention import AttentionName, Relation, SampledAttention, SamplerName
from graphbench_sft.inputs import (
    EdgeColumns,
    RelativeName,
    TokenEncoder,
    has_towers,
    longest_document,
    relative_information,
    split_documents,
)
from graphbench_sft.readout import ReadoutName, SampledMaxReadout, SoftmaxReadout, TowerPair
from graphbench_sft.sampler import Evaluation, names_of_tokens

NormPosition = Literal["pre", "post"]
#: Width of the feed-forward network in token widths (SFT, appendix D.4).
_EXPANSION = 4


class SFT(Architecture):
    """Sampling Foundational Transformer (Nguyen et al. 2024, arXiv 2408.05822); the defaults are for Peptides-func.

    Every layer samples some tokens of each graph by learned importance, and all tokens attend to these. The scores
    include relative information about pairs of tokens:

    * relative edges: edge features and a 1 on edges, zero elsewhere (graphs);
    * relative distances: squared distances, and dot products of normals; places do not enter the tokens, which makes
      the result invariant to rotations (point clouds);
    * relative positions: products of sinusoids of the positions (sequences);
    * none: nothing; places enter the tokens instead (the absolute variant of table 5).

    By default evaluation samples and mixes as training does (as_trained), which is the only evaluation in the paper.
    Its noise is a hash of the nodes' inputs: a graph gets the same answer every time, whatever else is in its batch and
    whatever the order of its nodes, except among nodes with equal features and equal three-step neighbourhoods. topk
    takes the most important nodes, unmixed; see `DifferentiableSampler`.

    If a benchmark has a column "tower", the two documents of a graph are processed separately with the same weights and
    joined in the read-out.

    Dropped tokens are hidden from the sampler and the read-out while training. They still attend, so that every node
    has a representation; for graph tasks this equals removing them.

    Time and memory: `B L ((N + m) d^2 + N m (d + H) + E H)`, `B L (N d + H N m + E H)`.

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
        relative: edges, distances, positions or none, see above.
        edge_columns: how categorical edge features enter the relative terms of edges: one_hot, or as their numbers (as
            in the paper), which imposes an order on them.
        places_in_tokens: put places (and normals) into the tokens even if the scores have them, as figure 6 does; with
            relative none they always are.
        attention: maxout_leaky (the paper's), maxout_relu (without leak) or softmax_dot (figure 6).
        sampler: without_replacement (the paper's), straight_through, with_replacement or none (attend to all nodes).
        temperature: temperature of the sampler.
        evaluation: as_trained (as in the paper) or topk, see above.
        compiled_scores: let torch.compile fuse only the maxout scores, which needs a compiler.
        readout: read-out for graph tasks: softmax (a weighted mean) or sampled_max (as in the paper on ModelNet40).
        readout_samples: tokens that sampled_max draws.
        positional_encoders: their outputs are concatenated to the node features, which get the remaining width.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range or does not fit the benchmark.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SFT(tiny_spec(), hidden_dim=16, num_layers=2, num_heads=2, num_samples=3)
        >>> model(tiny_batch(model)).graph.shape  # 4 graphs
        torch.Size([4, 16])
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
        relative: RelativeName = "edges",
        edge_columns: EdgeColumns = "one_hot",
        places_in_tokens: bool = False,
        attention: AttentionName = "maxout_leaky",
        sampler: SamplerName = "without_replacement",
        temperature: float = 1.0,
        evaluation: Evaluation = "as_trained",
        compiled_scores: bool = False,
        readout: ReadoutName = "softmax",
        readout_samples: int = 512,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "one_hot",
    ) -> None:
        check_range("readout_samples", readout_samples, at_least=1, whole=True)
        check_range("token_drop", token_drop, at_least=0, below=1)  # None would be no dropout
        super().__init__(spec, hidden_dim)
        self.parts = 2 if has_towers(spec) else 1
        if self.parts > 1 and (relative == "edges" or positional_encoders):
            raise BadInput(
                f"{spec.name} has two documents per graph, without edges and encodings: use relative: positions (or "
                "none) and no positional_encoders."
            )
        self.token_drop = token_drop
        self.information = relative_information(spec, relative, hidden_dim, num_heads, edge_columns)
        encoders = positional_encoders or ()
        self.node_encoder = TokenEncoder(spec, hidden_dim, relative, encoders, categorical, places_in_tokens)
        self.reads_places = relative == "positions" or self.node_encoder.reads_position
        width = None if self.information is None else self.information.dim
        options = (num_samples, attention, sampler, width, score_dropout, temperature, compiled_scores, evaluation)
        mixers = [SampledAttention(hidden_dim, num_heads, *options) for _ in range(num_layers)]
        for number, mixer in enumerate(mixers):
            mixer.layer, mixer.parts = number, self.parts
        self.layers = nn.ModuleList(
            SFTLayer(hidden_dim, mixer, norm_position, embedding_dropout, ffn_dropout) for mixer in mixers
        )
        # The paper has no norm here, but the output of a stack of pre-norm layers is an unnormalised sum of residuals.
        self.final_norm = nn.LayerNorm(hidden_dim) if norm_position == "pre" else None
        aggregates = spec.level == "graph"
        sampling = (readout_samples, temperature, evaluation)
        self.readout = _make_readout(readout, hidden_dim, *sampling) if aggregates else None
        self.pair = TowerPair(hidden_dim) if aggregates and self.parts > 1 else None

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Return the size of the largest document if graphs have two."""
        return {"longest_document": longest_document(batch, self.spec)} if self.parts > 1 else {}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`; for graph tasks also graphs `[num_graphs, hidden_dim]`."""
        if self.parts == 1:
            return self._read(batch)
        documents, order = split_documents(batch, self.spec)
        read = self._read(documents)
        graph = read.graph if read.graph is None or self.pair is None else self.pair(read.graph)
        # Put the nodes back from the order of the documents into that of the batch.
        return Representation(node=torch.empty_like(read.node).index_copy(0, order, read.node), graph=graph)

    def _read(self, batch: GraphBatch) -> Representation:
        x = self.node_encoder(batch)
        layout = DenseLayout.from_batch(batch)
        visible = self._draw_visible(batch) if self.training and self.token_drop else None
        # All layers share the pair features; each layer has its own linear maps for them.
        relations = None if self.information is None else self.information(batch, layout)
        # Only evaluation derives its noise from the names: training draws fresh noise in every step.
        names = None if self.training else self._names(batch)
        for layer in self.layers:
            x = layer(x, layout, relations, visible, names)
        if self.final_norm is not None:
            x = self.final_norm(x)
        graph = None if self.readout is None else self.readout(x, batch, layout, visible, names)
        return Representation(node=x, graph=graph)

    def _names(self, batch: GraphBatch) -> Tensor:
        """Name the nodes `[num_nodes]` by the inputs of the first layer that no rotation changes."""
        columns = self.node_encoder.columns(batch)
        if self.reads_places:
            # Only if the model reads coordinates: otherwise a rotation would change the noise and hence the answer.
            columns.append(batch.pos)
        edges = batch.edge_index if self.parts == 1 else None
        return names_of_tokens(batch.batch, batch.ptr, columns, edges)

    def _draw_visible(self, batch: GraphBatch) -> Tensor:
        """Draw the visible nodes, bool `[num_nodes]`: each with probability `1 - token_drop`, or all if none is."""
        # float32 whatever the default dtype: bfloat16 would round the probability.
        drawn = torch.rand(batch.num_nodes, device=batch.batch.device, dtype=torch.float32) >= self.token_drop
        count = torch.zeros_like(batch.ptr[:-1]).index_add_(0, batch.batch, drawn.long())
        return drawn | (count == 0)[batch.batch]


def _make_readout(
    name: ReadoutName, dim: int, num_samples: int, temperature: float, evaluation: Evaluation
) -> SoftmaxReadout | SampledMaxReadout:
    check_choice("readout", name, get_args(ReadoutName))
    if name == "softmax":
        return SoftmaxReadout(dim)
    return SampledMaxReadout(dim, num_samples, temperature, evaluation)


class SFTLayer(nn.Module):
    """Sampled attention and a feed-forward network, each with a residual and a layer norm (SFT, figure 1).

    post: `y = Norm(x + Drop(Attention(x)))`, `x' = Norm(y + Drop(FFN(y)))`;
    pre: `y = x + Drop(Attention(Norm(x)))`, `x' = y + Drop(FFN(Norm(y)))`;
    FFN is a `FeedForward` with GELU of width 4 dim, without dropout after it.

    Args:
        dim: width of the tokens.
        attention: the attention.
        norm_position: pre or post.
        embedding_dropout: probability of Drop.
        ffn_dropout: probability of dropout inside FFN.

    Raises:
        BadInput: `norm_position` is unknown.

    Examples:
        >>> from graphbench.nn import DenseLayout
        >>> from graphbench_sft import SampledAttention
        >>> import torch
        >>> layer = SFTLayer(8, SampledAttention(8, num_heads=2, num_samples=2))
        >>> layer(torch.randn(5, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1, 1]))).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        dim: int,
        attention: SampledAttention,
        norm_position: NormPosition = "post",
        embedding_dropout: float = 0.0,
        ffn_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("norm_position", norm_position, get_args(NormPosition))
        self.attention = attention
        self.attention_norm = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, _EXPANSION * dim, 0.0, "gelu", ffn_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.norm_position = norm_position
        self.embedding_dropout = nn.Dropout(embedding_dropout)

    def forward(
        self,
        x: Tensor,
        layout: DenseLayout,
        relations: Sequence[Relation] | None = None,
        visible: Tensor | None = None,
        names: Tensor | None = None,
    ) -> Tensor:
        """Return tokens `[T, dim]` after the layer; arguments as for `SampledAttention.forward`."""
        if self.norm_position == "pre":
            x = x + self.embedding_dropout(self.attention(self.attention_norm(x), layout, relations, visible, names))
            return x + self.embedding_dropout(self.ffn(self.ffn_norm(x)))
        x = self.attention_norm(x + self.embedding_dropout(self.attention(x, layout, relations, visible, names)))
        return self.ffn_norm(x + self.embedding_dropout(self.ffn(x)))
