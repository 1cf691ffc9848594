"""Name the rows of a trace, and collect the node tokens at every depth of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from graphbench.contracts.trace import LayerTrace
from graphbench.diagnostics.ragged import Ragged
from graphbench.diagnostics.recording import Recording


@dataclass
class TokenState:
    """Tokens of the nodes at one depth of a model.

    Args:
        tokens: `[num_nodes, dim]`, ordered by graph.
        batch: graph of each node.
        num_graphs: G.
        name: module of the layer that they enter; "output" for the model's output.

    Examples:
        >>> import torch
        >>> TokenState(torch.zeros(3, 4), torch.tensor([0, 0, 1]), num_graphs=2, name="output").tokens.shape
        torch.Size([3, 4])
    """

    tokens: Tensor
    batch: Tensor
    num_graphs: int
    name: str


@dataclass
class TraceRows:
    """Rows of a trace by kind; every list is ordered by graph.

    Examples:
        >>> import torch
        >>> trace = LayerTrace(torch.zeros(3, 4), torch.tensor([0, 0, 1]), num_nodes=torch.tensor([1, 1]))
        >>> rows = TraceRows.of(trace)
        >>> rows.nodes, rows.others
        (tensor([0, 2]), tensor([1]))
    """

    order: Tensor  # all rows `[T]`
    is_node: Tensor  # for each entry of `order`, whether it is a node `[T]`
    num_graphs: int  # G

    @classmethod
    def of(cls, trace: LayerTrace) -> TraceRows:
        """Describe the rows of a trace; all are nodes if it does not state how many nodes its graphs have."""
        count = int(trace.batch.max()) + 1 if trace.num_nodes is None else len(trace.num_nodes)
        ragged = Ragged(trace.batch, count)
        sizes = ragged.sizes if trace.num_nodes is None else trace.num_nodes.to(trace.batch.device)
        # A trace lists the nodes of a graph before its extra tokens.
        is_node = ragged.position() < sizes[trace.batch]
        return cls(ragged.order, is_node[ragged.order], count)

    @property
    def nodes(self) -> Tensor:
        """Rows that are nodes."""
        return self.order[self.is_node]

    @property
    def others(self) -> Tensor:
        """Rows that are extra tokens."""
        return self.order[~self.is_node]


def token_states(recording: Recording | Sequence[LayerTrace]) -> list[TokenState]:
    """Return node tokens by depth: the inputs of layers 0, 1, ..., and the model's output.

    A layer's trace has its `input`, including residual connections and norms of earlier layers; for a trace without it,
    the layer's output is used. The model's output is last if the recording has it and it has one row per node.

    Examples:
        >>> import torch
        >>> trace = LayerTrace(torch.zeros(3, 4), torch.tensor([0, 0, 1]), name="layers.0")
        >>> [(state.name, state.num_graphs) for state in token_states([trace])]
        [('layers.0', 2)]
    """
    states = []
    for trace in recording:
        rows = TraceRows.of(trace)
        tokens = trace.tokens if trace.input is None else trace.input
        states.append(TokenState(tokens[rows.nodes], trace.batch[rows.nodes], rows.num_graphs, trace.name))
    output = getattr(recording, "output", None)
    # An output for graphs, or with extra tokens, has another number of rows.
    if states and output is not None and output.dim() == 2 and len(output) == len(states[-1].tokens):
        states.append(TokenState(output, states[-1].batch, states[-1].num_graphs, "output"))
    return states
