"""Rank of the tokens by depth in a network of random SFT layers (SFT, figure 3).

    python -m graphbench_sft.rank --num-layers 100

All tokens are equal at first (rank 1), and only the relative information tells them apart. Without leak every row of
attention weights sums to one, so all tokens stay equal; with it they part.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor

from graphbench.diagnostics import numerical_rank
from graphbench.nn import DenseLayout
from graphbench_sft.attention import AttentionName, SampledAttention
from graphbench_sft.layer import SFTLayer
from graphbench_sft.relative import DenseRelation


@torch.no_grad()
def rank_by_depth(
    attention: AttentionName = "maxout_leaky",
    num_tokens: int = 256,
    dim: int = 512,
    num_layers: int = 100,
    seed: int = 0,
    rtol: float = 1e-6,
) -> Tensor:
    """Numerical rank of the tokens at the input and after every layer `[num_layers + 1]`, int64.

    Single-head layers with newly drawn weights attend to all tokens; one relative matrix of standard normal numbers is
    shared by all layers. Computed in float64.

    Args:
        attention: maxout_leaky, maxout_relu (without leak) or softmax_dot.
        num_tokens: tokens.
        dim: width of the tokens.
        num_layers: layers.
        seed: of weights and relative matrix.
        rtol: singular values below this share of the largest count as zero.
    """
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    ptr = torch.tensor([0, num_tokens])
    layout = DenseLayout.from_rows(torch.zeros(num_tokens, dtype=torch.int64), ptr, num_tokens)
    relation = DenseRelation(torch.randn(1, 1, num_tokens, num_tokens, dtype=torch.float64))
    x = torch.ones(num_tokens, dim, dtype=torch.float64)
    ranks = [numerical_rank(x, rtol)]
    for _ in range(num_layers):
        mixer = SampledAttention(dim, 1, num_tokens, attention, sampler="none", relation_dim=1)
        x = SFTLayer(dim, mixer).double().eval()(x, layout, [relation])
        ranks.append(numerical_rank(x, rtol))
    torch.set_rng_state(generator_state)
    return torch.stack([torch.as_tensor(rank) for rank in ranks]).long()


def main() -> None:
    """Print the ranks with and without leak, one layer a line."""
    parser = argparse.ArgumentParser(description="Rank of the tokens by depth in random SFT layers.")
    parser.add_argument("--num-tokens", type=int, default=256)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--num-layers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    leaky, plain = rank_by_depth("maxout_leaky", **options), rank_by_depth("maxout_relu", **options)
    sys.stdout.write("layer  leaky  without leak\n")
    for layer, (with_leak, without) in enumerate(zip(leaky.tolist(), plain.tolist(), strict=True)):
        sys.stdout.write(f"{layer:5d}  {with_leak:5d}  {without:12d}\n")


if __name__ == "__main__":
    main()
