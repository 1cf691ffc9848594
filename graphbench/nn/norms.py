"""Normalisation layers by name."""

from __future__ import annotations

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.errors import check_choice

NormName = Literal["batch", "layer", "none"]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over the rows `[num_rows, dim]` of all graphs; padding never enters its statistics.

    Fewer than two rows have no variance (a last batch of one tiny graph, or graphs without edges): such a batch is
    normalised with the running statistics and leaves them unchanged; PyTorch raises an error. Batches are not
    counted in `num_batches_tracked`: nothing reads the number, and on a GPU it costs a kernel launch in each step.

    Examples:
        >>> import torch
        >>> norm = BatchNorm(2)
        >>> norm(torch.ones(1, 2)).shape  # one row alone has no variance
        torch.Size([1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name PyTorch gives it
        """Normalise rows `[num_rows, dim]`."""
        statistics = self.running_mean, self.running_var
        if self.training and input.shape[0] < 2:
            # As in evaluation: without `training` the running statistics are used and not updated.
            return F.batch_norm(input, *statistics, self.weight, self.bias, eps=self.eps)
        if self.momentum is None or not self.track_running_stats:  # a running mean needs the number of batches
            return super().forward(input)
        return F.batch_norm(input, *statistics, self.weight, self.bias, self.training, self.momentum, self.eps)


def make_norm(name: NormName, dim: int) -> nn.Module:
    """Create the layer called `name` for rows of width `dim`.

    Raises:
        BadInput: the name is unknown.

    Examples:
        >>> type(make_norm("layer", 8)).__name__
        'LayerNorm'
    """
    check_choice("norm", name, get_args(NormName))
    return {"batch": BatchNorm, "layer": nn.LayerNorm, "none": nn.Identity}[name](dim)
