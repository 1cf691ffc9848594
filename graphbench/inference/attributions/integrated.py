"""Integrated gradients of a prediction with respect to the encoded feature vectors.

Sundararajan, Taly & Yan, "Axiomatic attribution for deep networks", ICML 2017, arXiv 1703.01365, equation 1:

    IG_i(h) = (h_i - h'_i) int_0^1 dF/dh_i (h' + a (h - h')) da

with h the outputs of the encoders of nodes and edges, h' those of the mean training features and F the prediction.
Their sum over all i is F(h) - F(h'): F(h') contains what the graph's structure contributes with average features.
captum computes the integral with Gauss-Legendre quadrature.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphbench.data.progress import progress
from graphbench.errors import MissingExtra
from graphbench.inference.attributions.question import Question

#: Maximum number of copies of a graph that pass through the model at once; their gradients take memory.
_COPIES = 16


def integrated_gradients(question: Question, steps: int) -> tuple[Tensor, Tensor | None]:
    """Return values of the nodes `[n]` and of the directed edges `[m]`, None if the model reads no edge features.

    More `steps`, nodes of the quadrature, make the sum more exact.
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise MissingExtra("captum", "explain", "Integrated gradients") from error

    def forward(*outputs: Tensor) -> Any:
        """Return predictions `[copies, C]` for encoder outputs `[copies, rows, dim]`."""
        advance(len(outputs[0]))
        # Adds 0, but gives a gradient to encoder outputs that nothing reads.
        nothing = 0.0 * torch.stack([output.flatten(1).sum(1) for output in outputs]).sum(0)
        return question.answers(*outputs) + nothing[:, None]

    inputs, baselines = (tuple(value[None] for value in part) for part in (question.vectors, question.reference))
    at_once = min(_COPIES, question.at_once)
    with torch.enable_grad(), progress("Integrated gradients", steps, "steps") as advance:
        gradients = IntegratedGradients(forward).attribute(
            inputs, baselines=baselines, target=question.column, n_steps=steps, internal_batch_size=at_once
        )
    rows: dict[str, list[Tensor]] = {"node": [], "edge": []}
    for kind, part in zip(question.kinds, gradients, strict=True):
        # Completeness holds for the sum over all numbers: a node gets the sum over its channels.
        rows[kind].append(part[0].sum(-1).detach().cpu().double())
    nodes = sum(rows["node"], torch.zeros(question.num_nodes, dtype=torch.float64))
    return nodes, torch.stack(rows["edge"]).sum(0) if rows["edge"] else None
