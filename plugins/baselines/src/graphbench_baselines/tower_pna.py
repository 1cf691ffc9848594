"""PyG's `PNAConv` with the options of SAT, using less memory: one tensor per edge, not one per tower and end.

Corso, Cavalleri, Beaini, Lio & Velickovic, "Principal Neighbourhood Aggregation for Graph Nets", NeurIPS 2020, arXiv
2004.05718. Legend: N nodes, E edges, T towers of width t; dim = T t.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import PNAConv

from graphbench.contracts.devices import is_apple
from graphbench.errors import check_divides


def reduced_messages(sent: Tensor, edges: Tensor | None, edge_index: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
    """Reduce the messages `sent_j + edges_ij` that arrive at each node to their sum and maximum.

    Args:
        sent: messages of the nodes `[N, dim]`.
        edges: `[E, dim]`; None: zeros.
        edge_index: sources and targets `[2, E]`, targets ascending.
        arriving: number of edges into each node `[N]`, int64.

    Returns:
        `[N, dim]` each; the maximum is minus infinity without messages. The sum is in float32 at least.

    Examples:
        >>> edges, arriving = torch.tensor([[1, 0, 2], [0, 1, 1]]), torch.tensor([1, 2, 0])
        >>> total, largest = reduced_messages(torch.tensor([[1.0], [2.0], [5.0]]), None, edges, arriving)
        >>> total.T, largest.T
        (tensor([[2., 6., 0.]]), tensor([[2., 5., -inf]]))
    """
    messages = sent.index_select(0, edge_index[0])
    messages = messages if edges is None else messages + edges
    if torch.compiler.is_exporting() or is_apple(sent.device):  # neither ONNX nor Apple's GPUs support segments
        empty, target = messages.new_zeros(arriving.shape[0], messages.shape[1]), edge_index[1]
        largest = (empty - torch.inf).scatter_reduce(0, target[:, None].expand_as(messages), messages, "amax")
        return empty.to(_precision(messages)).index_add(0, target, messages.to(_precision(messages))), largest
    total = _Total.apply(messages.to(_precision(messages)), edge_index[1], arriving)
    return total, _Largest.apply(messages, edge_index[1], arriving)


def _precision(messages: Tensor) -> torch.dtype:
    """Return the dtype of sums: those of `segment_reduce` in bfloat16 stop at 256 times their terms."""
    return torch.promote_types(messages.dtype, torch.float32)


class _Total(torch.autograd.Function):
    """The sum of the messages `[E, dim]` that arrive at each node, in their order.

    PyTorch's own backward pass of `segment_reduce` has no derivative (2.13).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(messages: Tensor, target: Tensor, arriving: Tensor) -> Tensor:
        # `unsafe` skips a check of the lengths, which would wait for the device.
        return torch.segment_reduce(messages, "sum", lengths=arriving, unsafe=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (target,) = ctx.saved_tensors
        return grads[0].index_select(0, target), None, None


class _Largest(torch.autograd.Function):
    """The largest of the messages `[E, dim]` that arrive at each node; equal ones share its gradient.

    PyTorch's own backward pass of `segment_reduce` shares only positive gradients (2.13).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(messages: Tensor, target: Tensor, arriving: Tensor) -> Tensor:
        return torch.segment_reduce(messages, "max", lengths=arriving, unsafe=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        messages, target, arriving = inputs
        ctx.save_for_backward(messages, output, target, arriving)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        messages, largest, target, arriving = ctx.saved_tensors
        # Ties are common if nodes are similar, such as atoms of a molecule in the first rounds.
        chosen = (messages == largest.index_select(0, target)).to(_precision(messages))
        equal = torch.segment_reduce(chosen, "sum", lengths=arriving, unsafe=True).clamp(min=1)
        return (chosen * (grads[0] / equal).index_select(0, target)).to(messages.dtype), None, None


class TowerPNA(PNAConv):
    """PyG's `PNAConv`, with the same weights and outputs.

    The aggregators are mean, sum and max, the scaler is "identity", towers divide the input, and there is one map
    before and one after: `m_ij = A x_i + B x_j + C e_ij + b` in every tower. Since all messages to node i share i,

        sum_j m_ij = d_i (A x_i + b) + sum_j (B x_j + C e_ij)        max_j m_ij = A x_i + b + max_j (B x_j + C e_ij)

    so edges need one tensor `[E, dim]`, whereas PyG stores `[E, T, 3 t]` and its gradients per tower. The maps of all
    towers are one product with a block-diagonal matrix. Edges are reduced in a fixed order, which makes sums on a GPU
    the same in every run.

    Args:
        dim: width of the nodes.
        edge_dim: width of the edge vectors; None if there are none.
        num_towers: towers T.

    Raises:
        BadInput: `num_towers` does not divide `dim`.

    Examples:
        >>> edges, arriving = torch.tensor([[1, 0, 2], [0, 1, 1]]), torch.tensor([1, 2, 0])
        >>> TowerPNA(8, None, num_towers=2)(torch.randn(3, 8), edges, None, arriving).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int, edge_dim: int | None, num_towers: int) -> None:
        check_divides("num_towers", num_towers, "hidden_dim", dim)
        super().__init__(
            dim,
            dim,
            aggregators=["mean", "sum", "max"],
            scalers=["identity"],
            deg=torch.ones(2),  # a histogram of degrees, which this scaler ignores
            edge_dim=edge_dim,
            towers=num_towers,
            divide_input=True,
        )

    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge: Tensor | None, arriving: Tensor
    ) -> Tensor:
        """Return nodes `[N, dim]`.

        Args:
            x: nodes `[N, dim]`.
            edge_index: sources and targets `[2, E]`, targets ascending.
            edge: edge vectors `[E, edge_dim]`.
            arriving: number of edges into each node `[N]`, int64.
        """
        # Parts in PyG's order: x_i, x_j and, with edges, e_ij.
        before, bias = self._towers(self.pre_nns)  # [dim, 2 or 3, dim]
        ends = before[:, :2].transpose(0, 1).flatten(0, 1)
        received, sent = F.linear(x, ends).chunk(2, dim=-1)
        mapped = None
        if edge is not None:
            # PyG maps every edge to one vector of width t, which all towers read.
            shared = before[:, 2].unflatten(1, (self.towers, -1)).sum(1)  # [dim, t], off-diagonal blocks are zero
            mapped = F.linear(edge, shared @ self.edge_encoder.weight)
            bias = bias + shared @ self.edge_encoder.bias
        received = received + bias
        total, largest = reduced_messages(sent, mapped, edge_index, arriving)
        count = arriving.unsqueeze(1).to(total.dtype)
        total = total + count * received
        mean, total = (part.to(received.dtype) for part in (total / count.clamp(min=1), total))
        largest = torch.where(arriving.unsqueeze(1) > 0, largest + received, 0.0)  # minus infinity without edges
        after, bias = self._towers(self.post_nns)
        parts = torch.cat([x, mean, total, largest], dim=-1)
        out: Tensor = self.lin(F.linear(parts, after.flatten(1), bias))
        return out

    def _towers(self, networks: Iterable[nn.Module]) -> tuple[Tensor, Tensor]:
        """Join the maps of all towers: block-diagonal weights `[dim, parts of the input, dim]`, and biases `[dim]`."""
        maps = [network[0] for network in networks]  # type: ignore[index]
        weights = torch.stack([linear.weight for linear in maps]).unflatten(2, (-1, 1, self.F_in))  # [T, t, P, 1, t]
        diagonal = torch.eye(self.towers, dtype=weights.dtype, device=weights.device).view(
            self.towers, 1, 1, self.towers, 1
        )
        return (weights * diagonal).flatten(0, 1).flatten(2), torch.cat([linear.bias for linear in maps])
