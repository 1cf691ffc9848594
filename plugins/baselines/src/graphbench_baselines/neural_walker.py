"""NeuralWalker: a sequence model on random walks, combined with local and global message passing.

Chen, Schulz & Borgwardt, "Learning Long Range Dependencies on Graphs via Random Walks", ICLR 2025, arXiv 2406.03386.

Legend: N nodes and E edges of the batch, W walks, l nodes of a walk, s nodes of the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import (
    BatchNorm,
    Categorical,
    DenseLayout,
    EdgeEncoder,
    FeedForward,
    GINEConvolution,
    MultiHeadAttention,
    NodeEncoder,
    Pooling,
    attend,
    count_nodes,
)
from graphbench_baselines.graph_mamba import MambaBlock
from graphbench_baselines.random_walks import RandomWalks, sample_walks, walk_seeds, window_encodings

SequenceLayerName = Literal["mamba", "conv", "transformer"]
WalkerLocalName = Literal["GINE", "none"]
WalkerGlobalName = Literal["virtual_node", "transformer", "none"]
NodeOutputName = Literal["mlp", "norm", "none"]
_CONV_WIDTH = 9  # filter length of the convolution along walks, as in the authors' configurations


def _mlp(dim: int, dropout: float) -> nn.Sequential:
    """Create `W2 Drop(ReLU(Norm(W1 x + b1))) + b2`, the form of all networks of the model."""
    first, norm, last = nn.Linear(dim, dim), BatchNorm(dim), nn.Linear(dim, dim)
    return nn.Sequential(first, norm, nn.ReLU(), nn.Dropout(dropout), last)


class BothWays(nn.Module):
    """The mean of two Mamba blocks that read walks `[W, l, dim]` forwards and backwards.

    Args:
        dim: width.

    Examples:
        >>> BothWays(8)(torch.randn(4, 5, 8), torch.ones(4, 5, dtype=torch.bool)).shape
        torch.Size([4, 5, 8])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.onward, self.backward = MambaBlock(dim, expand=2), MambaBlock(dim, expand=2)

    def forward(self, walk: Tensor, visited: Tensor) -> Tensor:
        """Return walks `[W, l, dim]`; positions after the end of a walk are also read, as in the authors' code."""
        mixed: Tensor = (self.onward(walk) + self.backward(walk.flip(1)).flip(1)) / 2
        return mixed


class WalkConvolution(nn.Module):
    """`ReLU(W ReLU(Norm(conv(x))) + b)`, conv a filter of nine positions for each channel; `dim^2 + 13 dim` parameters.

    Args:
        dim: width.

    Examples:
        >>> WalkConvolution(8)(torch.randn(4, 5, 8), torch.ones(4, 5, dtype=torch.bool)).shape
        torch.Size([4, 5, 8])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.along = nn.Conv1d(dim, dim, _CONV_WIDTH, padding=_CONV_WIDTH // 2, groups=dim)
        self.norm = BatchNorm(dim)
        self.across = nn.Linear(dim, dim)

    def forward(self, walk: Tensor, visited: Tensor) -> Tensor:
        """Return walks `[W, l, dim]`."""
        # Channels first, for conv and norm; positions after the end of a walk also enter its statistics.
        hidden = self.norm(self.along(walk.transpose(1, 2))).transpose(1, 2)
        return F.relu(self.across(F.relu(hidden)))


class WalkTransformer(nn.Module):
    """A post-norm transformer layer with rotary positions (Su et al., arXiv 2104.09864).

    Args:
        dim: width.
        num_heads: heads H; `dim / H` must be even, since coordinates are rotated in pairs.

    Raises:
        BadInput: `num_heads` does not divide `dim` into even widths.

    Examples:
        >>> WalkTransformer(8, num_heads=2)(torch.randn(4, 5, 8), torch.ones(4, 5, dtype=torch.bool)).shape
        torch.Size([4, 5, 8])
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        if dim % (2 * num_heads):
            raise BadInput(
                f"num_heads must divide hidden_dim into heads of even width, which are rotated in pairs, but got "
                f"num_heads={num_heads} and hidden_dim={dim}."
            )
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.feed_forward = FeedForward(dim, 2 * dim)
        self.feed_forward_norm = nn.LayerNorm(dim)

    def forward(self, walk: Tensor, visited: Tensor) -> Tensor:
        """Return walks `[W, l, dim]`; nodes attend to positions that are `visited [W, l]`."""
        q, k, v = self.qkv(walk).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # each [W, H, l, d]
        hidden = torch.zeros_like(visited, dtype=q.dtype).masked_fill(~visited, -torch.inf)[:, None, None]
        mixed = attend(rotate(q), rotate(k), v, hidden).transpose(1, 2).flatten(2)
        walk = self.norm(walk + self.out(mixed))
        return self.feed_forward_norm(walk + self.feed_forward(walk))


def rotate(x: Tensor) -> Tensor:
    """Rotate coordinates c and `c + d/2` of position i by the angle `i 10000^(-2 c / d)`; `x [..., l, d]`.

    Examples:
        >>> q, k = rotate(torch.ones(6, 4)), rotate(torch.ones(6, 4))
        >>> torch.allclose(q[0] @ k[2], q[3] @ k[5])  # products depend on distances alone
        True
    """
    length, dim = x.shape[-2:]
    precision = torch.promote_types(x.dtype, torch.float32)
    # In bfloat16 angles above 32 would have errors of up to an eighth.
    position = torch.arange(length, dtype=precision, device=x.device)
    speed = 10_000 ** (-torch.arange(0, dim, 2, dtype=precision, device=x.device) / dim)
    cos, sin = (turn(position[:, None] * speed).to(x.dtype) for turn in (torch.cos, torch.sin))
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


@dataclass(frozen=True)
class Walks:
    """The walks of a batch in the form that all layers read.

    Args:
        node: `[W, l]`, as in `RandomWalks`.
        edge: `[W, l]`.
        seen: the encodings of the window `[W, l, 2 s - 1]`.
        node_visits: visits of each node, at least 1 `[N]`.
        edge_visits: visits of each edge `[E]`.
    """

    node: Tensor
    edge: Tensor
    seen: Tensor
    node_visits: Tensor
    edge_visits: Tensor

    @classmethod
    def of(cls, walks: RandomWalks, num_nodes: int, window: int, dtype: torch.dtype) -> Walks:
        """Encode walks over N nodes, with numbers of this dtype."""
        visits = [
            # The last count is for positions after the end of walks; at least 1, so that means are not 0 / 0.
            count_nodes(index.flatten(), size + 1)[:size, None].clamp(min=1)
            for index, size in ((walks.node, num_nodes), (walks.edge, walks.keys.shape[0] - 1))
        ]
        return cls(walks.node, walks.edge, window_encodings(walks, num_nodes, window).to(dtype), *visits)


class WalkEncoder(nn.Module):
    """Nodes and edges as walks, a sequence layer, and the mean over all visits of a node or an edge.

        u_i = x_(w_i) + (A e_(w_i w_(i+1)) + a) + (P [id_i, adj_i] + p)
        h   = Sequence(Norm(u_0, ..., u_(l-1)))
        x'  = x + f(mean of h_i over all i with w_i = x)         e' = e + g(mean of h_i over all i with w_i w_(i+1) = e)

    Norm is a layer norm. If edges have no vectors yet, A e + a and the residual e are omitted, and e' is new.

    Args:
        dim: width of nodes and edges.
        window: s.
        sequence: `(walk [W, l, dim], visited [W, l]) -> [W, l, dim]`.
        reads_edges: edges have vectors.
        dropout: probability of dropout in f and g.
    """

    def __init__(self, dim: int, window: int, sequence: nn.Module, reads_edges: bool, dropout: float) -> None:
        super().__init__()
        self.edge_map = nn.Linear(dim, dim) if reads_edges else None
        self.seen_map = nn.Linear(2 * window - 1, dim)
        self.norm, self.sequence = nn.LayerNorm(dim), sequence
        self.to_nodes, self.to_edges = _mlp(dim, dropout), _mlp(dim, dropout)

    def forward(self, x: Tensor, edge: Tensor | None, walks: Walks) -> tuple[Tensor, Tensor]:
        """Return nodes `[N, dim]` and edges `[E, dim]`."""
        walk = _with_zero(x)[walks.node] + self.seen_map(walks.seen)
        if self.edge_map is not None and edge is not None:
            # Map, then gather: E + 1 products for W l positions. The last node of a walk, without an edge, gets a.
            walk = walk + self.edge_map(_with_zero(edge))[walks.edge]
        walk = self.sequence(self.norm(walk), walks.node < x.shape[0])
        new = self.to_edges(_mean_of_visits(walk, walks.edge, walks.edge_visits))
        x = x + self.to_nodes(_mean_of_visits(walk, walks.node, walks.node_visits))
        return x, new if edge is None else edge + new


def _with_zero(rows: Tensor) -> Tensor:
    """Append the row for positions after the end of walks."""
    return F.pad(rows, (0, 0, 0, 1))


def _mean_of_visits(walk: Tensor, index: Tensor, visits: Tensor) -> Tensor:
    """Average `walk [W, l, dim]` over the visits of each row, 0 without visits; the last row, a dummy, is dropped."""
    precision = torch.promote_types(walk.dtype, torch.float32)
    # Sums of hundreds of visits: half precision would lose late ones.
    total = torch.zeros(visits.shape[0] + 1, walk.shape[-1], dtype=precision, device=walk.device)
    total = total.index_add(0, index.flatten(), walk.flatten(0, 1).to(precision))
    return (total[:-1] / visits).to(walk.dtype)


class WalkerLayer(nn.Module):
    """Walks, then messages along edges, then messages among all nodes.

        x, e = WalkEncoder(x, e)
        y    = x + MLP((1 + eps) x_i + sum_j ReLU(x_j + C e_ij + c))           GINE
        virtual node:   v' = MLP(sum_i y_i + v),  x' = y + v'                  v of the layer before, 0 at first
        transformer:    z  = Norm(x + Attention(Norm(y))),  x' = Norm(z + FFN(z))

    The residual around attention is the input of GINE, as in the authors' code.

    Args:
        walk: the walk encoder.
        dim: width.
        local_layer: GINE or none.
        global_layer: virtual_node, transformer or none.
        num_heads: heads of the attention.
        dropout: probability of dropout in all networks.
        attention_dropout: probability of dropping a weight.
    """

    def __init__(
        self,
        walk: WalkEncoder,
        dim: int,
        local_layer: WalkerLocalName,
        global_layer: WalkerGlobalName,
        num_heads: int,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        self.walk = walk
        gine = local_layer == "GINE"
        self.local = GINEConvolution(_mlp(dim, dropout), train_eps=True, edge_dim=dim) if gine else None
        self.virtual, self.pooling = _mlp(dim, dropout) if global_layer == "virtual_node" else None, Pooling("add")
        self.attention: nn.Module | None = None
        if global_layer == "transformer":
            self.attention = MultiHeadAttention(dim, num_heads, attention_dropout)
            self.local_norm, self.attention_norm, self.norm = (BatchNorm(dim) for _ in range(3))
            self.feed_forward = FeedForward(dim, 2 * dim, dropout)

    def forward(
        self,
        x: Tensor,
        edge: Tensor | None,
        virtual: Tensor,
        walks: Walks,
        batch: GraphBatch,
        layout: DenseLayout | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return nodes `[N, dim]`, edges `[E, dim]` and virtual nodes `[B, dim]`."""
        x, edge = self.walk(x, edge, walks)
        y = x if self.local is None else x + self.local(x, batch.edge_index, edge)
        if self.virtual is not None:
            virtual = self.virtual(self.pooling(y, batch.batch, batch.num_graphs) + virtual)
            return y + virtual.index_select(0, batch.batch), edge, virtual
        if self.attention is not None:
            z = self.attention_norm(x + self.attention(self.local_norm(y), layout))  # x, not y: see the class
            return self.norm(z + self.feed_forward(z)), edge, virtual
        return y, edge, virtual


class NeuralWalker(Architecture):
    """NeuralWalker (Chen et al., ICLR 2025); defaults are its ZINC model.

    In each training step the workers of the loader draw new walks, which start from a share of the nodes and go to
    uniformly drawn neighbours without backtracking (`sample_walks`). Evaluation walks from all nodes, in the same way
    every time: the graph and its node numbering determine the walks, so a graph gets the same answer in any batch, but
    renumbering its nodes gives a different draw.

    The Mamba blocks use the fused kernel of `mamba_ssm` on a GPU if that package is installed, otherwise plain PyTorch,
    which stores 32 numbers for every channel and position.

    Time and memory: `B L (N + E) d^2`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        sequence_layer: layer on walks: mamba, conv or transformer.
        local_layer: layer among neighbours: GINE or none.
        global_layer: layer among all nodes: virtual_node (omitted in the last layer), transformer or none.
        num_heads: heads of the transformers, among all nodes or on walks.
        walk_length: nodes of a walk.
        sample_rate: share of the nodes that walks start from in training.
        window: number of previous nodes of a walk whose identity and edges are encoded for each node.
        dropout: probability of dropout in all networks except that on walks.
        attention_dropout: probability of dropping a weight of the attention among all nodes.
        node_output: final map of the nodes: mlp, which is omitted if the global layer is a transformer; norm, a layer
            norm; or none.
        positional_encoders: outputs are concatenated to the node features, which get the remaining width.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = NeuralWalker(tiny_spec(), hidden_dim=16, num_layers=2, walk_length=6, window=4)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 80,
        num_layers: int = 3,
        sequence_layer: SequenceLayerName = "mamba",
        local_layer: WalkerLocalName = "GINE",
        global_layer: WalkerGlobalName = "virtual_node",
        num_heads: int = 4,
        walk_length: int = 50,
        sample_rate: float = 1.0,
        window: int = 8,
        dropout: float = 0.0,
        attention_dropout: float = 0.5,
        node_output: NodeOutputName = "mlp",
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "normal",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_choice("sequence_layer", sequence_layer, get_args(SequenceLayerName))
        check_choice("local_layer", local_layer, get_args(WalkerLocalName))
        check_choice("global_layer", global_layer, get_args(WalkerGlobalName))
        check_choice("node_output", node_output, get_args(NodeOutputName))
        check_range("walk_length", walk_length, at_least=1, whole=True)
        check_range("window", window, at_least=1, whole=True)
        check_range("sample_rate", sample_rate, above=0, at_most=1)
        self.walk_length, self.sample_rate, self.window = walk_length, sample_rate, window
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical, one_hot_bias=False)
        has_edges = bool(spec.edge.vocabularies or spec.edge.dense)
        # Without features the first layer computes the edge vectors from their walks.
        self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical) if has_edges else None
        self.edge_dim = hidden_dim
        self.layers = nn.ModuleList()
        for number in range(num_layers):
            sequence = _make_sequence(sequence_layer, hidden_dim, num_heads)
            walk = WalkEncoder(hidden_dim, window, sequence, has_edges or number > 0, dropout)
            # As in the authors' code: a pooled graph already contains the sum over its nodes.
            silent = global_layer == "virtual_node" and number == num_layers - 1
            kind: WalkerGlobalName = "none" if silent else global_layer
            self.layers.append(WalkerLayer(walk, hidden_dim, local_layer, kind, num_heads, dropout, attention_dropout))
        self.node_output: nn.Module = nn.Identity()
        if node_output == "norm":
            self.node_output = nn.LayerNorm(hidden_dim)
        elif node_output == "mlp" and global_layer != "transformer":
            self.node_output = _mlp(hidden_dim, dropout)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Sample the walks of a step, or those of evaluation; their number depends on the draw."""
        structure = batch.edge_index, batch.batch, batch.ptr
        rate, seeds = 1.0 if generator is None else self.sample_rate, walk_seeds(*structure, generator)
        walks = sample_walks(*structure, seeds, self.walk_length, rate)
        return {f"walk_{name}": value for name, value in walks._asdict().items()}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[N, hidden_dim]` and edges `[E, hidden_dim]`."""
        x = self.node_encoder(batch)
        edge = None if self.edge_encoder is None else self.edge_encoder(batch)
        sampled = RandomWalks(batch.walk_node, batch.walk_edge, batch.walk_keys)
        walks = Walks.of(sampled, x.shape[0], self.window, x.dtype)
        layout = DenseLayout.from_batch(batch) if self.layers[0].attention is not None else None
        virtual = x.new_zeros(batch.num_graphs, self.dim)
        for layer in self.layers:
            x, edge, virtual = layer(x, edge, virtual, walks, batch, layout)
        return Representation(node=self.node_output(x), edge=edge)


def _make_sequence(name: SequenceLayerName, dim: int, num_heads: int) -> nn.Module:
    if name == "mamba":
        return BothWays(dim)
    return WalkConvolution(dim) if name == "conv" else WalkTransformer(dim, num_heads)
