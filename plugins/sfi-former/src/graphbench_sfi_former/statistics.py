"""How sparse a flow is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphbench_sfi_former.masking import check_mask


class FlowStatistics(NamedTuple):
    """Sparsity of attention matrices.

    Args:
        zero_share: share of exact zeros among the allowed keys of each matrix `[...]`; NaN without any.
        row_sum: sum of each row `[..., N]`; 1 under the hard constraint, a little less under the penalty.

    Examples:
        >>> flow_statistics(torch.eye(2))
        FlowStatistics(zero_share=tensor(0.5000), row_sum=tensor([1., 1.]))
    """

    zero_share: Tensor
    row_sum: Tensor


@torch.no_grad()
def flow_statistics(flow: Tensor, mask: Tensor | None = None) -> FlowStatistics:
    """Zeros and row sums of flows `[..., N, K]`.

    Args:
        flow: attention matrices, as from `sparse_flow`.
        mask: boolean, broadcastable to `flow`; True where a key is allowed. Others count in no share and no sum.

    Raises:
        BadInput: a mask that is not boolean or does not fit.

    Examples:
        >>> flow_statistics(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).zero_share
        tensor(0.2500)
    """
    if mask is None:
        zeros = flow == 0
        return FlowStatistics(zeros.to(flow.dtype).mean((-2, -1)), flow.sum(-1))
    check_mask(mask, tuple(flow.shape))
    allowed = mask.expand(flow.shape)
    zeros = (flow == 0) & allowed
    share = zeros.sum((-2, -1)) / allowed.sum((-2, -1))
    return FlowStatistics(share.to(flow.dtype), torch.where(allowed, flow, 0.0).sum(-1))
