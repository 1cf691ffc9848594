"""Differentiable sampling of tokens by learned importance (SFT, section 4.2), and the names behind its noise.

A name is an integer hash of the inputs of a token, so rounding, the rest of the batch and the machine cannot change it.
Noise is a hash of a name, so evaluation draws the same noise for the same graph.

Legend: n tokens of a graph (padded to the largest of the batch), k tokens to sample, K = min(k, n) slots, d width;
`...` stands for any leading axes, usually one for the graphs of a batch. For names: T tokens of all graphs, B graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.contracts.kernels import in_program
from graphbench.errors import BadInput, check_choice, check_range

SamplingMode = Literal["without_replacement", "straight_through", "with_replacement"]
Evaluation = Literal["as_trained", "topk"]
#: Below this score softplus(s) = exp(s) to double precision; its logarithm is s.
_EXPONENTIAL = -30.0
_BITS = 0xFFFFFFFF
#: Steps to the farthest neighbours that enter the name of a node.
_STEPS = 3
#: Distinguish the noise streams of one name: the number of each is added before hashing.
GUMBEL, ORDER, LAYER = 0x1B873593, 0x3C6EF372, 0x61C88647


@dataclass(frozen=True)
class Sample:
    """Sampled tokens, and the vectors that represent them.

    Args:
        tokens: `[..., K, d]`; zero in empty slots.
        index: position of the sampled token of each slot `[..., K]`; 0 in empty slots.
        partner: position of the token that is mixed into it `[..., K]`; None without mixing.
        weight: share of the sampled token `[..., K]`, 1 if it has no partner; None without mixing.
        mask: which slots are filled, bool `[..., K]`; None when all are.
        repeats: several slots may contain the same token.

    Examples:
        >>> sample = Sample(tokens=torch.zeros(1, 2, 8), index=torch.tensor([[3, 0]]))
        >>> sample.index, sample.mask
        (tensor([[3, 0]]), None)
    """

    tokens: Tensor
    index: Tensor
    partner: Tensor | None = None
    weight: Tensor | None = None
    mask: Tensor | None = None
    repeats: bool = False


class DifferentiableSampler(nn.Module):
    """Sample k tokens of each graph; gradients teach the sampler which tokens matter.

    Importance is `z = x w_S + b_S`, with one Gumbel variable g per token. The modes:

    * without_replacement: S1 are the k tokens of highest z + g, which is sequential sampling without replacement with
      odds exp(z). S2 are k others, drawn uniformly; each is paired with one of S1 at random, and the sampler returns
      `p x_1 + (1 - p) x_2` with `p = s_1 / (s_1 + s_2)`, `s = softplus(z + g) ** (1 / temperature)`. If fewer than k
      others exist, as many random members of S1 are paired and the rest stay unmixed.
    * straight_through: the same draw; returns the pure `x_1` with the gradient of the mixture.
    * with_replacement: k independent draws of the highest z + g; returns the pure token with the gradient of
      `sum_i s_i x_i / sum_i s_i` over all tokens of the graph times `1 / k`, which the paper found necessary. This mode
      needs `n k` numbers for noise and weights.

    A graph of fewer than k tokens returns all of them once (with replacement: k draws). Padding is never sampled.

    Evaluation (the paper does not distinguish it from training):

    * as_trained: the same, noise and mixtures included ("we accept the noise" of S2, section 4.2). The noise is a hash
      of the tokens' names (`graphbench_sft.sampler`), so a graph always gets the same answer, whatever its batch.
    * topk: the k tokens of highest z, unmixed. Ties are broken in favour of the lowest names: names are hashes, so
      these can be anywhere in the graph. In the first layer of a sequence z depends only on the kind of a token, and
      taking the first of equal tokens would select the beginning of the sequence.

    Without names, noise depends on the place in the graph and its size, and ties go to the first token.

    Random numbers for training come from `generator`, a CPU generator seeded from torch's at construction. Its state is
    part of the module's state, so training resumed from a checkpoint continues the same samples. Programs of
    torch.compile, which cannot contain a generator, use torch's global generator.

    Args:
        dim: width d of the tokens.
        num_samples: tokens to sample k.
        mode: see above.
        temperature: temperature of the mixture; towards 0 the higher score takes all. The paper uses 1 throughout.
        evaluation: as_trained or topk, see above.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> sampler = DifferentiableSampler(dim=4, num_samples=3).eval()
        >>> sample = sampler(torch.randn(2, 10, 4))
        >>> tuple(sample.tokens.shape), tuple(sample.index.shape)
        ((2, 3, 4), (2, 3))
    """

    def __init__(
        self,
        dim: int,
        num_samples: int,
        mode: SamplingMode = "without_replacement",
        temperature: float = 1.0,
        evaluation: Evaluation = "as_trained",
    ) -> None:
        super().__init__()
        check_range("num_samples", num_samples, at_least=1, whole=True)
        check_choice("sampler", mode, get_args(SamplingMode))
        check_choice("evaluation", evaluation, get_args(Evaluation))
        check_range("temperature", temperature, above=0, below=math.inf)
        self.num_samples = num_samples
        self.mode = mode
        self.temperature = temperature
        self.evaluation = evaluation
        self.score = nn.Linear(dim, 1)
        self.generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))

    def forward(self, x: Tensor, mask: Tensor | None = None, names: Tensor | None = None) -> Sample:
        """Sample tokens of each graph.

        Args:
            x: tokens `[..., n, d]`.
            mask: which of them are real, bool `[..., n]`; None: all.
            names: names of the tokens, int64 `[..., n]`, distinct within a graph; only evaluation reads them.

        Raises:
            BadInput: `mask` is not bool or not shaped like the tokens.
        """
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:-1]):
            raise BadInput(f"mask must be bool {list(x.shape[:-1])}, but is {mask.dtype} {list(mask.shape)}.")
        score = self.score(x).squeeze(-1)
        # In half precision many scores would tie, and ties are broken by place or name.
        score = score if score.dtype == torch.float64 else score.float()
        if not self.training and self.evaluation == "topk":
            return self._best(x, score, mask, names)
        if self.training:
            names = None
        elif names is None:
            names = _places(score, mask)
        if self.mode == "with_replacement":
            return self._with_replacement(x, score, mask, names)
        return self._without_replacement(x, score, mask, names)

    def _best(self, x: Tensor, score: Tensor, mask: Tensor | None, names: Tensor | None) -> Sample:
        index = _largest(_hide(score, mask), min(self.num_samples, x.shape[-2]), names)
        filled = _first_slots(index, _count(mask))
        index = index if filled is None else index.masked_fill(~filled, 0)
        return Sample(_fill(_take(x, index), filled), index, mask=filled)

    def _without_replacement(self, x: Tensor, score: Tensor, mask: Tensor | None, names: Tensor | None) -> Sample:
        num_slots = min(self.num_samples, x.shape[-2])
        # Gumbel top-k: the k largest z + g are k draws without replacement with odds exp(z).
        noisy = score + (self._gumbel(score) if names is None else gumbel(names).to(score))
        best = _largest(_hide(noisy, mask), num_slots)
        taken = torch.zeros_like(score, dtype=torch.bool).scatter_(-1, best, True)
        # Both sets are in random order, so which tokens are paired, and which have no partner, is also random.
        # Hashes rather than `uniform` of names: these may be equal, and ties would go by the place of a token.
        order = self._uniform(score) if names is None else _hash(names, ORDER)
        real = taken.new_ones(()) if mask is None else mask
        index = _largest(order.masked_fill(~(taken & real), -1), num_slots)
        partner = _largest(order.masked_fill(taken | ~real, -1), num_slots)
        count = torch.tensor(x.shape[-2], device=x.device) if mask is None else mask.sum(-1)
        filled = _first_slots(index, _count(mask))
        # A graph has count - k tokens left for S2; further slots keep their token unmixed.
        paired = torch.arange(num_slots, device=x.device) < (count - num_slots).unsqueeze(-1)
        index = index if filled is None else index.masked_fill(~filled, 0)
        partner = torch.where(paired, partner, index)
        # p = s_1 / (s_1 + s_2) from logarithms: powers of 1 / temperature may overflow. Only p passes gradients to z.
        share = _log_softplus(noisy.gather(-1, index)) - _log_softplus(noisy.gather(-1, partner))
        weight = torch.where(paired, torch.sigmoid(share / self.temperature), 1.0).to(x.dtype)
        chosen = _take(x, index)
        tokens = torch.lerp(_take(x, partner), chosen, weight.unsqueeze(-1))
        if self.mode == "without_replacement":
            return Sample(_fill(tokens, filled), index, partner, weight, filled)
        return Sample(_fill(_straight_through(chosen, tokens), filled), index, mask=filled)

    def _with_replacement(self, x: Tensor, score: Tensor, mask: Tensor | None, names: Tensor | None) -> Sample:
        if names is None:
            noise = self._gumbel(score, (*score.shape[:-1], self.num_samples, score.shape[-1]))
        else:
            slot = torch.arange(self.num_samples, device=x.device).unsqueeze(-1)
            noise = gumbel(scramble(names).unsqueeze(-2) + scramble(slot)).to(score)
        # A graph without tokens hides none of its padding: a softmax over nothing would be NaN.
        shown = None if mask is None else mask | ~mask.any(-1, keepdim=True)
        noisy = _hide(score, shown).unsqueeze(-2) + noise
        index = noisy.argmax(-1)
        # softmax of log s is s / sum s.
        shares = (_log_softplus(noisy) / self.temperature).softmax(-1)
        tokens = _straight_through(_take(x, index), shares.to(x.dtype) @ x)
        return Sample(tokens.detach() + (tokens - tokens.detach()) / self.num_samples, index, repeats=True)

    def _uniform(self, like: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return torch.rand_like(like, dtype=torch.float32)
        noise = torch.rand(like.shape, generator=self.generator, dtype=torch.float32, pin_memory=like.is_cuda)
        return noise.to(like.device, non_blocking=True)

    def _gumbel(self, like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """Return standard Gumbel noise: minus the logarithm of an exponential variable."""
        if torch.compiler.is_compiling():
            drawn = torch.empty(shape or like.shape, dtype=torch.float32, device=like.device).exponential_()
            return -drawn.clamp_min(torch.finfo(torch.float32).tiny).log().to(like.dtype)
        # float32, since bfloat16 (if that is the default) is too coarse; pinned, to copy without a sync.
        empty = torch.empty(shape or like.shape, dtype=torch.float32, pin_memory=like.is_cuda)
        exponential = empty.exponential_(generator=self.generator)
        noise = exponential.clamp_min_(torch.finfo(torch.float32).tiny).log_().neg_()
        return noise.to(like.device, like.dtype, non_blocking=True)

    def get_extra_state(self) -> Tensor:
        """Return the state of the generator, for checkpoints."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Continue the draws of a checkpoint."""
        self.generator.set_state(state.cpu())

    def extra_repr(self) -> str:
        """Return the options, for `print(module)`."""
        return (
            f"num_samples={self.num_samples}, mode={self.mode}, temperature={self.temperature}, "
            f"evaluation={self.evaluation}"
        )


def _places(score: Tensor, mask: Tensor | None) -> Tensor:
    """Name tokens `[..., n]` by their place and the size of the graph."""
    place = torch.arange(score.shape[-1], device=score.device)
    size = torch.full_like(place[:1], score.shape[-1]) if mask is None else mask.sum(-1, keepdim=True)
    return scramble(place + scramble(size)).expand(score.shape)


def _count(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.sum(-1)


def _hide(score: Tensor, mask: Tensor | None) -> Tensor:
    return score if mask is None else score.masked_fill(~mask, -torch.inf)


def _largest(keys: Tensor, count: int, names: Tensor | None = None) -> Tensor:
    """Find the `count` largest keys, descending; ties go to the lowest names, or to the first."""
    if names is None:
        return keys.detach().sort(dim=-1, descending=True, stable=True).indices[..., :count]
    order = names.sort(dim=-1, stable=True).indices
    return order.gather(-1, _largest(keys.gather(-1, order), count))


def _first_slots(index: Tensor, count: Tensor | None) -> Tensor | None:
    """Mask the slots of `index` that `count` tokens fill; None if that is all of them (checked on CPUs only)."""
    if count is None:
        return None
    filled = torch.arange(index.shape[-1], device=index.device) < count.unsqueeze(-1)
    if filled.device.type == "cpu" and not torch.compiler.is_compiling() and bool(filled.all()):
        return None
    return filled


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Gather tokens `[..., K, d]` at `index [..., K]`."""
    return x.gather(-2, index.unsqueeze(-1).expand(*index.shape, x.shape[-1]))


def _fill(tokens: Tensor, filled: Tensor | None) -> Tensor:
    return tokens if filled is None else tokens.masked_fill(~filled.unsqueeze(-1), 0.0)


def _straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return the value of `hard` with the gradient of `soft`."""
    return hard.detach() + (soft - soft.detach())


def _log_softplus(score: Tensor) -> Tensor:
    """Compute `log(softplus(score))` without underflow of softplus."""
    # Clamped as well as selected: the unused branch would be log 0, whose gradient is NaN even times 0.
    ordinary = F.softplus(score.clamp_min(_EXPONENTIAL)).log()
    return torch.where(score > _EXPONENTIAL, ordinary, score)


def scramble(value: Tensor) -> Tensor:
    """Hash the low 32 bits of whole numbers to 32 bits, one to one.

    Two rounds of multiplying and folding, as in the finalizer of MurmurHash3. Factors are odd and below `2^31`, so
    products fit into int64 and are the same on every device.

    Args:
        value: int64 of any shape.

    Examples:
        >>> scramble(torch.arange(3)).unique().numel()
        3
    """
    value = value & _BITS
    value = ((value ^ (value >> 16)) * 0x21F0AAAD) & _BITS
    value = ((value ^ (value >> 15)) * 0x735A2D97) & _BITS
    return value ^ (value >> 15)


def _hash(names: Tensor, stream: int) -> Tensor:
    """Hash names to 32 bits, one to one, independently for each stream."""
    return scramble(scramble(names + stream) + stream)


def uniform(names: Tensor, stream: int = ORDER) -> Tensor:
    """Hash names to float32 numbers in (0, 1), practically uniform and independent for distinct names."""
    # 23 bits plus a half are exact in float32 and never 0 or 1, for which Gumbel numbers would be infinite.
    return ((_hash(names, stream) >> 9).float() + 0.5) * 2.0**-23


def gumbel(names: Tensor) -> Tensor:
    """Hash names to standard Gumbel numbers, float32: `-log(-log(u))` of uniform ones."""
    return -(-uniform(names, GUMBEL).log()).log()


def names_of_places(graph_of: Tensor, ptr: Tensor) -> Tensor:
    """Name tokens `[T]` by their place in the graph and its size, if they have no other inputs.

    Args:
        graph_of: graph of each token `[T]`, ascending.
        ptr: first token of each graph `[B + 1]`.
    """
    place = torch.arange(graph_of.shape[0], device=graph_of.device) - ptr[graph_of]
    return scramble(place + scramble(ptr.diff())[graph_of])


def names_of_tokens(graph_of: Tensor, ptr: Tensor, columns: Sequence[Tensor], edge_index: Tensor | None) -> Tensor:
    """Name tokens `[T]` by their inputs, those of their neighbours and those of their graph.

    A token keeps its name if the tokens are renumbered, except among tokens with equal columns and equal three-step
    neighbourhoods: these are distinguished by their order.

    Args:
        graph_of: graph of each token `[T]`, ascending.
        ptr: first token of each graph `[B + 1]`.
        columns: integer or real inputs of each token, each `[T, c]`.
        edge_index: sources and targets `[2, E]`; None for tokens without edges.
    """
    names: Tensor = (_name_as_operation if in_program() else _name_tokens)(graph_of, ptr, columns, edge_index)
    return names


def _name_tokens(graph_of: Tensor, ptr: Tensor, columns: Sequence[Tensor], edge_index: Tensor | None) -> Tensor:
    names = torch.zeros_like(graph_of)
    for column in (single for tensor in columns for single in tensor.unbind(1)):
        names = scramble(scramble(names) + _bits(column))
    if edge_index is not None and edge_index.shape[1]:
        # A graph without edges keeps these names, as in a batch without any.
        linked = torch.zeros_like(ptr[:-1], dtype=torch.bool).index_fill_(0, graph_of[edge_index[1]], True)[graph_of]
        for _ in range(_STEPS):
            # A sum does not depend on the order of neighbours; sums of 32-bit hashes do not overflow.
            around = torch.zeros_like(names).index_add_(0, edge_index[1], scramble(names + 1)[edge_index[0]])
            names = torch.where(linked, scramble(scramble(names) + around), names)
    # Include a hash of the whole graph, so that equal nodes of different graphs get different noise.
    whole = torch.zeros_like(ptr[:-1]).index_add_(0, graph_of, scramble(names))
    return scramble(scramble(names + scramble(whole)[graph_of]) + _occurrence(graph_of, names))


#: One operation of a compiled program: chains of hashes take minutes to compile and no time to compute.
_name_as_operation = torch.library.custom_op("graphbench_sft::name_tokens", _name_tokens, mutates_args=())
_name_as_operation.register_fake(lambda graph_of, ptr, columns, edge_index: torch.empty_like(graph_of))


def _bits(column: Tensor) -> Tensor:
    """Convert to integers; real numbers by their bits in float32, with 0 and -0 as one number."""
    if not column.is_floating_point():
        return column.long()
    return (column.float() + 0.0).view(torch.int32).long() & _BITS


def _occurrence(graph_of: Tensor, names: Tensor) -> Tensor:
    """Count the tokens of the same graph and name before each, `[T]`."""
    # Names are below 2^32, so this sorts by graph and then by name.
    ordered, order = (graph_of * (_BITS + 1) + names).sort(stable=True)
    first = torch.searchsorted(ordered, ordered)
    return torch.empty_like(names).index_copy_(0, order, torch.arange(len(names), device=names.device) - first)
