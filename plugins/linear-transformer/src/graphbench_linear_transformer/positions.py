"""An architecture that adds nothing, to train a positional encoding by itself."""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.errors import BadInput


class Positions(Architecture):
    """The nodes' real-valued features as they are: trains the positional encoding in front of it and nothing else.

    With `--model.positional_encoding` on a benchmark whose nodes carry no features of their own, the representation is
    what the encoding returns, so that its targets are learned by the encoding alone. The checkpoint is what `init_from`
    of a model with the same encoding starts from.

    Time and memory: `B N d`.

    Args:
        spec: the benchmark's description.

    Raises:
        BadInput: the nodes' features have another width than the targets.

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
                f"{spec.num_targets} targets: give model.positional_encoding with dim {spec.num_targets}."
            )
        super().__init__(spec, spec.node.dense)
        # Empty; it has the type that the module was moved to, in which the head expects its rows.
        self.register_buffer("weights", torch.empty(0), persistent=False)

    def forward(self, batch: GraphBatch) -> Representation:
        """Nodes `[num_nodes, dim]`."""
        return Representation(node=batch.x_dense.to(self.weights.dtype))
