"""DeepGraph: a deep graph transformer with substructure tokens and local attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.encodings.substructures import Substructures
from graphbench.errors import BadInput, check_range
from graphbench.nn import (
    EMBEDDING_STD,
    FAIRSEQ_TABLES,
    CentralityEmbedding,
    TokenReadout,
    WeightInit,
    check_weight_init,
    compute_dtype,
    draw_normal_maps,
)
from graphbench_deepgraph.layer import DeepGraphLayer, RelativeBias, deepnorm_factors
from graphbench_deepgraph.sampler import CoverageSampler, evaluation_seeds, training_seeds
from graphbench_deepgraph.substructure_encoder import Content, SubstructureEncoder
from graphbench_deepgraph.tokens import TokenLayout, sample_substructures, token_places

#: Nodes of the largest substructure of ZINC: a node with its two-hop neighbourhood.
_ZINC_SIZE = 14

#: Fields of `token_places`.
_PLACES = ("batch", "node", "graph", "substructure", "member_node", "member_substructure", "ptr", "most")


@dataclass(frozen=True)
class _Prepared:
    """Inputs of a forward pass without gradients: the layout, and the input of the substructure encoder."""

    tokens: TokenLayout
    substructures: Tensor | None


class DeepGraph(Architecture):
    """DeepGraph (Zhao et al., "Are More Layers Beneficial to Graph Transformers?", ICLR 2023); defaults are for ZINC.

    The tokens of a graph are its nodes, a graph token and sampled substructures. Nodes attend to all nodes and to the
    substructures they are in; a substructure attends to its nodes and the graph token only. Layers have deepnorm
    residuals. In the representation, `graph` is the graph token and `tokens` are the substructures. The head should
    have one layer (`head: {num_layers: 1}`), since the read-out has the other one.

    The method is random: each training step samples new substructures and orders. In evaluation both are determined by
    the graph and its node numbering, so a graph gets the same result every time and in any batch. Renumbering its nodes
    gives a different sample; `num_draws` averages over several.

    Time and memory: `B L (N d^2 + N^2 (d + H))`, `B L (N d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width d of the tokens.
        ffn_dim: width of the feed-forward networks.
        num_layers: layers L.
        num_heads: heads H; must divide `hidden_dim`.
        dropout: probability of dropout on the embeddings and on both branches of a layer.
        attention_dropout: probability of dropping an attention weight.
        activation_dropout: probability of dropout inside the feed-forward networks.
        substructures: substructures to find; its `max_size` is the padded size s of the encoder. None: the
            vocabulary for molecules, with neighbourhoods of at most 14 nodes.
        sampling: sampler that chooses the substructures that become tokens.
        num_draws: samples that evaluation averages over.
        local_attention: False omits the substructures (ablation).
        substructure_content: adjacency, type or random (ablation), see `SubstructureEncoder`.
        deepnorm: False uses residuals of weight 1 and the usual initial weights (ablation).
        init: xavier or normal, initial linear maps before deepnorm scales them; see `DeepGraphLayer`. xavier is as in
            the released code, which disables the normal initialisation of Graphormer's code. The paper does not say.
            Both sample tables from N(0, 0.02^2).
        max_distance: larger distances share the bias of this one.
        max_degree: larger degrees share the embedding of this one.
        checkpointing: keep only the tokens between layers in memory and recompute each layer in the backward pass.
        released: follow the released code: its sampler, a neighbourhood for every node even if some are equal
            (`distinct_neighbourhoods` of `substructures` becomes false), ascending node numbers instead of depth-first
            order, and its tables with all their unused rows and layers, which published parameter counts include.
            `max_distance` and `max_degree` then have its values. Its bugs are not reproduced.

    Raises:
        BadInput: an option is out of range, or with `released` the features do not fit the released tables.

    Examples:
        >>> from graphbench.encodings import Substructures
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> small = Substructures(cycles=[3, 4], paths=[4], stars=[2], hops=[1], max_neighbourhood=10)
        >>> spec = tiny_spec(kind="categorical")
        >>> model = DeepGraph(spec, hidden_dim=16, ffn_dim=16, num_layers=2, substructures=small)
        >>> model(tiny_batch(model)).graph.shape  # one graph token per graph
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 80,
        ffn_dim: int = 80,
        num_layers: int = 12,
        num_heads: int = 8,
        dropout: float = 0.0,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.1,
        substructures: Substructures | None = None,
        sampling: CoverageSampler = CoverageSampler(),  # noqa: B008 - frozen dataclass
        num_draws: int = 1,
        local_attention: bool = True,
        substructure_content: Content = "adjacency",
        deepnorm: bool = True,
        init: WeightInit = "xavier",
        max_distance: int = 40,
        max_degree: int = 8,
        checkpointing: bool = False,
        released: bool = False,
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("num_draws", num_draws, at_least=1, whole=True)
        drops = dropout, attention_dropout, activation_dropout
        check_weight_init(init)
        self.checkpointing, self.num_draws, self.dropout = checkpointing, num_draws, nn.Dropout(dropout)
        self.sampling = replace(sampling, released=True) if released else sampling
        # Graphs are undirected: a table of outgoing degrees would be read at the same rows as that of incoming ones.
        self.node_embedding = CentralityEmbedding(
            spec, hidden_dim, max_degree, FAIRSEQ_TABLES if released else None, directed=False
        )
        # The graph token comes from the released code; the paper does not mention one.
        self.graph_embedding = nn.Parameter(torch.empty(1, hidden_dim))
        nn.init.normal_(self.graph_embedding, std=EMBEDDING_STD)
        self.substructure_encoder: SubstructureEncoder | None = None
        if local_attention:
            self.substructures = _choose_encoding(substructures, released)
            self.encodings = (self.substructures,)
            self.substructure_encoder = SubstructureEncoder(
                self.substructures, hidden_dim, substructure_content, ordered=not released
            )
        self.embedding_norm = nn.LayerNorm(hidden_dim)
        self.bias = RelativeBias(spec, num_heads, max_distance, local_attention, released)
        alpha, beta = deepnorm_factors(num_layers) if deepnorm else (1.0, 1.0)
        self.layers = nn.ModuleList(
            DeepGraphLayer(hidden_dim, ffn_dim, num_heads, *drops, alpha=alpha, beta=beta, init=init)
            for _ in range(num_layers)
        )
        self.readout = TokenReadout(hidden_dim)
        #: The released code allocates this map and never uses it.
        self.pooler = nn.Linear(hidden_dim, hidden_dim) if released else None
        if init == "normal":  # the layers have drawn their own weights
            for name, part in self.named_children():
                if name != "layers":
                    draw_normal_maps(part)

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, dim]`, graph tokens `[num_graphs, dim]`, and substructures `[m, dim]` by graph.

        Raises:
            BadInput: the batch lacks an encoding, or a substructure is too large for the encoder.
        """
        draws = 1 if self.training else self.num_draws
        parts = [self._represent(batch, draw) for draw in range(draws)]
        if len(parts) == 1:
            return parts[0]
        return Representation(
            node=torch.stack([part.node for part in parts]).mean(0),
            graph=torch.stack([part.graph for part in parts if part.graph is not None]).mean(0),
            # Each draw has different substructures, so their tokens are listed and not averaged.
            tokens=_join([part.tokens for part in parts]),
            tokens_batch=_join([part.tokens_batch for part in parts]),
        )

    def seeds(self, batch: GraphBatch, draw: int = 0, generator: torch.Generator | None = None) -> Tensor:
        """Return one 64-bit seed per graph `[num_graphs]`: fresh ones in training, those of the graphs in evaluation.

        Args:
            batch: the graphs.
            draw: number of the draw.
            generator: generator of training; None in evaluation.
        """
        if generator is not None:
            return training_seeds(batch.num_graphs, batch.ptr.device, generator)
        return evaluation_seeds(batch.edge_index, batch.batch, batch.ptr, draw)

    def _represent(self, batch: GraphBatch, draw: int) -> Representation:
        """Represent the batch under one sample; traces record the first one only."""
        prepared = self._prepare(batch, draw)
        tokens = prepared.tokens
        x = self._embed(batch, prepared)
        # Built and cast once for all layers: fused attention needs it in the dtype of the queries.
        bias = self.bias(batch, tokens).to(compute_dtype(x))
        biases = tuple(block.take_pairs(bias) for block in tokens.dense.blocks)
        for layer in self.layers:
            assert isinstance(layer, DeepGraphLayer)
            x = self._run(layer, x, tokens, biases)
        x = self.readout(x)
        local = self.substructure_encoder is not None
        return Representation(
            node=x[tokens.node],
            graph=x[tokens.graph],
            tokens=x[tokens.substructure] if local else None,
            tokens_batch=tokens.batch[tokens.substructure] if local else None,
        )

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Sample substructures and number the tokens of each draw; not compiled, since sizes depend on the data."""
        fields: dict[str, Any] = {}
        for draw in range(self.num_draws if generator is None else 1):
            sampled = None
            if self.substructure_encoder is not None:
                kinds = self.substructures.kind_of_type.to(batch.ptr.device)
                seeds = self.seeds(batch, draw, generator)
                sampled = sample_substructures(batch, self.substructures, kinds, self.sampling, seeds)
            places: dict[str, Any] = token_places(batch, sampled)
            if self.substructure_encoder is not None and sampled is not None:
                places["content"] = self.substructure_encoder.inputs(batch, sampled)
            fields |= {_field(name, draw): value for name, value in places.items()}
        return fields

    @torch.no_grad()
    def _prepare(self, batch: GraphBatch, draw: int) -> _Prepared:
        """Read the results of `precompute` for a draw."""
        places = {name: batch[_field(name, draw)] for name in _PLACES}
        tokens = replace(TokenLayout.of(batch, places), traced=draw == 0)
        return _Prepared(tokens, batch.get(_field("content", draw), None))

    def _embed(self, batch: GraphBatch, prepared: _Prepared) -> Tensor:
        """Embed the tokens of the first layer `[T, dim]`."""
        node = self.node_embedding(batch)
        substructure = None
        if self.substructure_encoder is not None and prepared.substructures is not None:
            substructure = self.substructure_encoder(prepared.substructures, node.dtype)
        x = prepared.tokens.assemble(node, self.graph_embedding.expand(batch.num_graphs, -1), substructure)
        return self.dropout(self.embedding_norm(x))

    def _run(self, layer: DeepGraphLayer, x: Tensor, tokens: TokenLayout, biases: Sequence[Tensor | None]) -> Tensor:
        """Run a layer; while a trace records it is not recomputed, since the trace would record it twice."""
        if self.checkpointing and torch.is_grad_enabled() and not layer.attention.listening:
            computed: Tensor = checkpoint(layer, x, tokens, biases, use_reentrant=False)
            return computed
        output: Tensor = layer(x, tokens, biases)
        return output


def _field(name: str, draw: int) -> str:
    """Return the name in the batch of a field of `token_places`, or of the encoder's input."""
    return f"deepgraph_{name}_{draw}"


def _choose_encoding(substructures: Substructures | None, released: bool) -> Substructures:
    """Return the encoding, or the default one; with `released` equal neighbourhoods are always kept separate.

    Raises:
        BadInput: the sizes are not bounded.
    """
    if substructures is None:
        substructures = Substructures(max_neighbourhood=_ZINC_SIZE)
    if substructures.max_size is None:
        raise BadInput(
            "The substructure encoder needs to know the largest substructure: set max_neighbourhood of Substructures, "
            f"such as {_ZINC_SIZE} for ZINC or 17 for PCQM4M."
        )
    if released:
        return Substructures(**substructures.parameters() | {"distinct_neighbourhoods": False})
    return substructures


def _join(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Join all rows, or return None if there are none."""
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
