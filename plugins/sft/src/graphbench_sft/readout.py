"""Read-outs of one vector per graph from its tokens (SFT, appendix D.2)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import softmax

from graphbench import GraphBatch
from graphbench.nn import DenseLayout
from graphbench_sft.sampler import LAYER, DifferentiableSampler, Evaluation, scramble

ReadoutName = Literal["softmax", "sampled_max"]


class SoftmaxReadout(nn.Module):
    """A graph as the weighted mean of its tokens, `sum_i softmax_i(x_i w) x_i`; `dim` parameters.

    The paper says only "softmax aggregation"; this form has one learned weight per token.

    Args:
        dim: width of the tokens.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dim, 1, bias=False)  # softmax ignores a bias

    def forward(
        self,
        x: Tensor,
        batch: GraphBatch,
        layout: DenseLayout,
        visible: Tensor | None = None,
        names: Tensor | None = None,
    ) -> Tensor:
        """Read out graphs `[num_graphs, dim]` of tokens `[T, dim]`, only of `visible` ones (bool `[T]`)."""
        logits = self.weight(x).float() if x.dtype != torch.float64 else self.weight(x)
        if visible is not None:
            # No graph loses all its tokens (`SFT._draw_visible`), so there is always something to normalise.
            logits = logits.masked_fill(~visible.unsqueeze(-1), -torch.inf)
        weighted = softmax(logits, batch.batch, num_nodes=batch.num_graphs) * x
        graphs = weighted.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.batch, weighted)
        return graphs.to(x.dtype)


class SampledMaxReadout(nn.Module):
    """A graph as the maximum, channel by channel, of tokens sampled by learned importance; `dim + 1` parameters.

    This is the head of the paper's ModelNet40 model, which samples 512 tokens. A graph without tokens gives zeros.

    Args:
        dim: width of the tokens.
        num_samples: tokens to sample.
        temperature: temperature of the sampler.
        evaluation: as_trained or topk, see `DifferentiableSampler`.
    """

    def __init__(
        self, dim: int, num_samples: int = 512, temperature: float = 1.0, evaluation: Evaluation = "as_trained"
    ) -> None:
        super().__init__()
        self.sampler = DifferentiableSampler(dim, num_samples, temperature=temperature, evaluation=evaluation)

    def forward(
        self,
        x: Tensor,
        batch: GraphBatch,
        layout: DenseLayout,
        visible: Tensor | None = None,
        names: Tensor | None = None,
    ) -> Tensor:
        """Read out graphs `[num_graphs, dim]` of tokens `[T, dim]`, only of `visible` ones (bool `[T]`).

        Evaluation uses the `names` of the tokens (int64 `[T]`).
        """
        mask = None if layout.is_full else layout.mask
        if visible is not None:
            mask = layout.to_dense(visible.unsqueeze(-1)).squeeze(-1)
        # -1 instead of a layer number gives the read-out its own noise.
        hashes = None if names is None else layout.to_dense(scramble(names - LAYER).unsqueeze(-1)).squeeze(-1)
        sample = self.sampler(layout.to_dense(x), mask, hashes)
        if sample.mask is None:
            return sample.tokens.amax(1)
        lowest = torch.finfo(sample.tokens.dtype).min
        highest = sample.tokens.masked_fill(~sample.mask.unsqueeze(-1), lowest).amax(1)
        return highest.masked_fill(~sample.mask.any(1, keepdim=True), 0.0)


class TowerPair(nn.Module):
    """Join the vectors of two documents into one: `GELU(W [a, b, a * b, a - b] + c)`; `4 dim^2 + dim` parameters.

    The paper does not describe how its two towers are joined; the models of the Long Range Arena join these parts.

    Args:
        dim: width of the vectors.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4 * dim, dim)

    def forward(self, documents: Tensor) -> Tensor:
        """Join documents `[2 G, dim]`, those of a graph next to each other, into graphs `[G, dim]`."""
        a, b = documents.unflatten(0, (-1, 2)).unbind(1)
        return F.gelu(self.linear(torch.cat([a, b, a * b, a - b], dim=-1)))
