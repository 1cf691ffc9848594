"""Compare an encoder over graphs of different sizes with torch's support for sequences of different lengths.

Four post-norm layers of attention within graphs and of a feed-forward network, without dropout: ours over the rows of
all graphs, and torch's `nn.TransformerEncoder` with the same weights. A call maps the rows of a batch, as in PyG, to
rows, so each side pays once for its layout of the graphs:

- nested tensors: `nn.TransformerEncoder` with its padding mask, in evaluation mode and without gradients, so it uses
  torch's fast path and computes on nested tensors. There is no such path in training;
- padding and a mask: the same encoder with the fast path disabled, over graphs padded to the largest. On a CPU this has
  been faster than the fast path, so it is also the peer to beat in inference;
- jagged tensors: torch's newer layout of nested tensors through `scaled_dot_product_attention`. Linear maps and norms
  work on the plain rows, which was faster here than using the jagged tensor in the whole layer.

Before timing, all must give the same output. Sizes are those of `kernels.py`.

    python speed/nested.py
    python speed/nested.py --threads 2 --rounds 31
    python speed/nested.py --device cuda
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from kernels import BATCHES, sizes_of
from timing import in_turns, medians, note
from torch import Tensor, nn
from torch_geometric.utils import to_dense_batch

from graphbench.cli.process import keep_memory
from graphbench.nn import DenseLayout, FeedForward, MultiHeadAttention

DIM, NUM_HEADS, NUM_LAYERS = 64, 4, 4
#: Rows and the graph of each -> rows.
Encode = Callable[[Tensor, Tensor], Tensor]
NESTED, PADDED, JAGGED = "nested tensors", "padding and a mask", "jagged tensors"


class EncoderLayer(nn.Module):
    """A post-norm layer built from our parts."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(DIM, NUM_HEADS)
        self.feed_forward = FeedForward(DIM, 2 * DIM)
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Return rows `[T, DIM]`."""
        x = self.norms[0](x + self.attention(x, layout))
        out: Tensor = self.norms[1](x + self.feed_forward(x))
        return out

    @classmethod
    def like(cls, other: nn.Module) -> EncoderLayer:
        """Create a layer with the weights of torch's."""
        layer = cls()
        assert isinstance(other, nn.TransformerEncoderLayer)
        layer.load(other)
        return layer

    @torch.no_grad()
    def load(self, other: nn.TransformerEncoderLayer) -> None:
        """Copy the weights of torch's layer."""
        pairs = (
            (self.attention.out_proj, other.self_attn.out_proj),
            (self.feed_forward.expand, other.linear1),
            (self.feed_forward.contract, other.linear2),
            (self.norms[0], other.norm1),
            (self.norms[1], other.norm2),
        )
        for own, theirs in pairs:
            own.load_state_dict(theirs.state_dict())
        self.attention.in_proj.weight.copy_(other.self_attn.in_proj_weight)
        self.attention.in_proj.bias.copy_(other.self_attn.in_proj_bias)


class Encoder(nn.Module):
    """Layers that share one layout."""

    def __init__(self, other: nn.TransformerEncoder) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer.like(layer) for layer in other.layers)

    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        """Return rows `[T, DIM]`."""
        layout = DenseLayout.from_batch(batch)
        for layer in self.layers:
            x = layer(x, layout)
        return x


def their_encoder() -> nn.TransformerEncoder:
    """Return torch's encoder, which uses nested tensors automatically when its fast path is available."""
    layer = nn.TransformerEncoderLayer(DIM, NUM_HEADS, 2 * DIM, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, NUM_LAYERS, enable_nested_tensor=True)
    with torch.no_grad():  # its layers are copies of one
        for parameter in encoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return encoder


def with_mask(encoder: nn.TransformerEncoder, fast: bool, x: Tensor, batch: Tensor) -> Tensor:
    """Run torch's encoder over padded graphs, with or without its fast path."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        padded, mask = to_dense_batch(x, batch)
        out: Tensor = encoder(padded, src_key_padding_mask=~mask)[mask]
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    return out


def jagged(encoder: nn.TransformerEncoder, x: Tensor, batch: Tensor) -> Tensor:
    """Run the same layers, with jagged tensors around `scaled_dot_product_attention`."""
    sizes = batch.bincount()
    offsets, least, most = F.pad(sizes.cumsum(0), (1, 0)), int(sizes.min()), int(sizes.max())

    def heads_of(rows: Tensor) -> Tensor:
        nested = torch.nested.nested_tensor_from_jagged(rows.contiguous(), offsets, min_seqlen=least, max_seqlen=most)
        return nested.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)

    for layer in encoder.layers:
        attention = layer.self_attn
        maps = F.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
        query, key, value = map(heads_of, maps)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(-2).values()
        x = layer.norm1(x + attention.out_proj(mixed))
        x = layer.norm2(x + layer.linear2(F.relu(layer.linear1(x))))
    return x


def contenders(training: bool) -> dict[str, Encode]:
    """Return ours and the peers available in this mode, all with the same weights."""
    theirs = their_encoder().train(training)
    found: dict[str, Encode] = {"ours": Encoder(theirs).train(training), PADDED: partial(with_mask, theirs, False)}
    if not training:
        found[NESTED] = partial(with_mask, theirs, True)
    if has_jagged_attention():
        found[JAGGED] = partial(jagged, theirs)
    return found


def has_jagged_attention() -> bool:
    """Return whether this torch has a kernel for jagged tensors on this device."""
    x, batch = torch.randn(3, DIM), torch.tensor([0, 0, 1])
    try:
        jagged(their_encoder(), x, batch).sum().backward()
    except (RuntimeError, NotImplementedError) as error:
        print(f"Jagged tensors fail here, their rows are left out: {str(error).splitlines()[0]}")
        return False
    return True


def batch_of(name: str) -> tuple[Tensor, Tensor]:
    """Return the rows of a batch of `BATCHES`, and the graph of each."""
    *range_of_sizes, _ = BATCHES[name]
    sizes = torch.tensor(sizes_of(*range_of_sizes))
    return torch.randn(int(sizes.sum()), DIM), torch.repeat_interleave(torch.arange(len(sizes)), sizes)


def infer(encode: Encode, x: Tensor, batch: Tensor) -> Tensor:
    """Run forward without gradients."""
    with torch.no_grad():
        return encode(x, batch)


def train(encode: Encode, x: Tensor, batch: Tensor, upstream: Tensor) -> Tensor:
    """Run forward and backward; return the gradient of the rows."""
    rows = x.clone().requires_grad_()
    encode(rows, batch).backward(upstream)
    assert rows.grad is not None
    return rows.grad


def steps_of(name: str, training: bool) -> dict[str, Callable[[], Tensor]]:
    """Return one step of each contender on a batch; raise if they do not agree."""
    x, batch = batch_of(name)
    upstream = torch.randn_like(x)
    steps: dict[str, Callable[[], Tensor]] = {}
    for contender, encode in contenders(training).items():
        steps[contender] = partial(train, encode, x, batch, upstream) if training else partial(infer, encode, x, batch)
    expected = steps["ours"]()
    for contender, step in steps.items():
        apart = float((step() - expected).norm() / expected.norm())
        # A number that rounding moves across the kink of a relu changes the gradients of its whole graph.
        assert apart < (1e-2 if training else 1e-4), f"{contender}, {name}: {apart:.1e} of the size apart"
    return steps


def to_its_end(step: Callable[[], Tensor]) -> None:
    """Run a step and wait for the GPU."""
    step()
    torch.cuda.synchronize()


def main() -> None:
    """Print one line per batch, mode and peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batches", nargs="+", choices=sorted(BATCHES), default=list(BATCHES))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors is in prototype stage")
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    torch.set_default_device(options.device)
    print(f"{f'encoder of {NUM_LAYERS} layers':<24}{'peer':<20}{'peer ms':>10}{'ours ms':>10}{'ours / peer':>13}")
    for name in options.batches:
        for training in (False, True):
            case = f"{name}, {'training' if training else 'inference'}"
            steps = steps_of(name, training)
            if options.device == "cuda":
                steps = {contender: partial(to_its_end, step) for contender, step in steps.items()}
            seconds = in_turns(steps, options.rounds, warm_up=2)
            middle = medians(seconds)
            for peer in list(seconds)[1:]:
                times = f"{1e3 * middle[peer]:10.2f}{1e3 * middle['ours']:10.2f}"
                print(f"{case:<24}{peer:<20}{times}{note(case, 'ours', peer, seconds):13.2f}", flush=True)


if __name__ == "__main__":
    main()
