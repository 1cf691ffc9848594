"""Reference for attributions: the training mean of the features, as the encoders of a model see it.

A model has never seen a node with vectors of zeros, so a prediction from them is far from all others and every
attribution gets the sign of that step. The mean of the training features is the least informative input within the
range seen: with it, attributions show how this graph differs from the average node and edge.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphbench.contracts.devices import as_double
from graphbench.diagnostics.encoders import EncoderCall
from graphbench.errors import BadInput
from graphbench.inference import TrainingFacts


def reference_of(call: EncoderCall, facts: TrainingFacts) -> Tensor:
    """Encode the mean training features `[rows, dim]`; columns of encodings keep the graph's values.

    Encoders add up a vector for each categorical column and a linear map of the dense ones, so the vector of mean
    features is the mean of the vectors over all rows of the training part.
    """
    if not len(call.output):
        return call.output
    with torch.no_grad():
        arguments = [_mean_rows(value, name, facts) for value, name in zip(call.arguments, call.fields, strict=True)]
        # Dense columns at their mean, categories at 0; each categorical field then moves from there to its mean.
        encoded: Tensor = call.encoder(*arguments)
        for place, (value, name) in enumerate(zip(call.arguments, call.fields, strict=True)):
            if value is not None and name in ("x", "edge_attr"):
                encoded = encoded + _mean_of_values(call.encoder, arguments, place, facts.shares[name])
    return encoded


def _mean_rows(value: Tensor | None, name: str | None, facts: TrainingFacts) -> Tensor | None:
    """Return an argument at its mean, or at 0 for categories, which have none."""
    if value is None or name is None:
        return None
    if name not in facts.shares and name not in facts.means:
        raise BadInput(f"There is no training mean of {name} to measure attributions from: batches compute it.")
    if name in facts.shares:
        return torch.zeros_like(value)
    mean = torch.tensor(facts.means[name], dtype=value.dtype, device=value.device).expand(len(value), -1)
    return torch.cat([mean, value[:, mean.shape[1] :]], 1)


def _mean_of_values(
    encoder: nn.Module, arguments: list[Tensor | None], place: int, shares: list[list[float]]
) -> Tensor:
    """Return the mean over categories minus categories 0 `[dim]`: each value's step, times its share, summed."""
    zero = arguments[place]
    assert zero is not None
    columns = [column for column, sizes in enumerate(shares) for _ in sizes]
    values = [value for sizes in shares for value in range(len(sizes))]
    weights = torch.tensor([share for sizes in shares for share in sizes], dtype=torch.float64)
    rows = zero.new_zeros(len(values) + 1, zero.shape[1])
    rows[torch.arange(len(values)), torch.tensor(columns)] = torch.tensor(values, dtype=zero.dtype, device=zero.device)
    inputs = [None if other is None else other[:1].expand(len(rows), -1) for other in arguments]
    inputs[place] = rows
    encoded: Tensor = encoder(*inputs)
    steps = as_double(encoded[:-1] - encoded[-1:])
    return (steps * weights.to(steps.device)[:, None]).sum(0).to(encoded)
