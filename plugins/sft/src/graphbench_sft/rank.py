"""Rank of the tokens by depth in networks of random SFT layers (SFT, figure 3).

    python -m graphbench_sft.rank --draws 30 --output plugins/sft/results/rank.csv

All tokens are equal at first (rank 1), and only the relative information distinguishes them. Without the leak every row
of attention weights with a positive score sums to one, so all tokens stay equal; with it they become different.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from graphbench.diagnostics import numerical_rank
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sft.attention import AttentionName, SampledAttention
from graphbench_sft.model import SFTLayer
from graphbench_sft.relative import DenseRelation

FIELDS = ("draw", "layer", "leaky", "without_leak", "num_tokens", "dim")
_NETWORKS = FIELDS[2:4]


@torch.no_grad()
def rank_by_depth(
    attention: AttentionName = "maxout_leaky",
    num_tokens: int = 256,
    dim: int = 512,
    num_layers: int = 100,
    seed: int = 0,
    rtol: float = 1e-6,
) -> Tensor:
    """Compute the numerical rank of the tokens at the input and after every layer `[num_layers + 1]`, int64.

    Each single-head layer has newly drawn weights and attends to all tokens; all layers share one relative matrix of
    standard normal numbers. Computed in float64.

    Args:
        attention: maxout_leaky, maxout_relu (without the leak) or softmax_dot.
        num_tokens: tokens.
        dim: width of the tokens.
        num_layers: layers.
        seed: seed of the weights and the relative matrix.
        rtol: singular values below this share of the largest count as zero.
    """
    ptr = torch.tensor([0, num_tokens])
    layout = DenseLayout.from_rows(torch.zeros(num_tokens, dtype=torch.int64), ptr, num_tokens)
    # Equal tokens, so all rank comes from the relation; float64 keeps rounding far below `rtol`.
    x = torch.ones(num_tokens, dim, dtype=torch.float64)
    ranks = [numerical_rank(x, rtol)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        relation = DenseRelation(torch.randn(1, 1, num_tokens, num_tokens, dtype=torch.float64))
        for _ in range(num_layers):
            mixer = SampledAttention(dim, 1, num_tokens, attention, sampler="none", relation_dim=1)
            x = SFTLayer(dim, mixer).double().eval()(x, layout, [relation])
            ranks.append(numerical_rank(x, rtol))
    return torch.stack([torch.as_tensor(rank) for rank in ranks]).long()


def measure(file: Path, draws: int, num_tokens: int = 256, dim: int = 512, num_layers: int = 100) -> int:
    """Append the ranks of every draw missing from the file, a row per layer; draw i has seed i.

    Args:
        file: CSV with the columns of `FIELDS`; its rows are kept, so an interrupted run can be resumed.
        draws: number of draws, each a network with the leak and one without it.
        num_tokens: tokens.
        dim: width of the tokens.
        num_layers: layers.

    Returns:
        The number of draws added.

    Raises:
        BadInput: a draw in the file has another number of layers or tokens, or another width.
    """
    rows_before = _rows(file) if file.exists() else []
    for row in rows_before:
        for name, value in (("num_tokens", num_tokens), ("dim", dim)):
            if row.get(name) != str(value):
                raise BadInput(
                    f"{file} has draws with {name} {row.get(name)}, but {name} is {value}: use another file, or the "
                    "same number."
                )
    measured = Counter(int(row["draw"]) for row in rows_before)
    for draw, rows in measured.items():
        if rows != num_layers + 1:
            raise BadInput(
                f"{file} has {rows - 1} layers of draw {draw}, but num_layers is {num_layers}: use another file, or "
                "the same number."
            )
    file.parent.mkdir(parents=True, exist_ok=True)
    missing = [draw for draw in range(draws) if draw not in measured]
    for draw in missing:
        ranks = [
            rank_by_depth(attention, num_tokens, dim, num_layers, seed=draw).tolist()
            for attention in ("maxout_leaky", "maxout_relu")
        ]
        with file.open("a", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            if not stream.tell():
                writer.writerow(FIELDS)
            writer.writerows(
                [draw, layer, *pair, num_tokens, dim] for layer, pair in enumerate(zip(*ranks, strict=True))
            )
    return len(missing)


def by_layer(file: Path) -> dict[str, Tensor]:
    """Read the ranks `[draws, num_layers + 1]` of networks with the leak ("leaky") and without it ("without_leak")."""
    rows = _rows(file)
    num_layers = 1 + max(int(row["layer"]) for row in rows)
    return {name: torch.tensor([int(row[name]) for row in rows]).view(-1, num_layers) for name in _NETWORKS}


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def draw_figure(file: Path, picture: Path) -> None:
    """Plot the mean rank by layer and the range of the draws, as in figure 3."""
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    labels = {"leaky": "maxout, leaky ReLU", "without_leak": "maxout, ReLU without leak"}
    for name, ranks in by_layer(file).items():
        layers = range(ranks.shape[1])
        (line,) = axes.plot(layers, ranks.float().mean(0), label=labels[name])
        axes.fill_between(layers, ranks.amin(0), ranks.amax(0), alpha=0.25, color=line.get_color())
    axes.set(xlabel="layer", ylabel="rank of the tokens", title=f"{len(ranks)} draws: mean and range")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Measure, draw the figure next to the CSV and write the medians, one layer per line."""
    parser = argparse.ArgumentParser(description="Rank of the tokens by depth in random SFT layers.")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--num-tokens", type=int, default=256)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--num-layers", type=int, default=100)
    parser.add_argument("--output", type=Path, default=Path("rank.csv"), help="CSV; the figure is saved next to it")
    options = parser.parse_args()
    measure(options.output, options.draws, options.num_tokens, options.dim, options.num_layers)
    draw_figure(options.output, options.output.with_suffix(".png"))
    medians = {name: ranks.median(0).values.tolist() for name, ranks in by_layer(options.output).items()}
    sys.stdout.write("layer  leaky  without leak\n")
    for layer, (with_leak, without) in enumerate(zip(*medians.values(), strict=True)):
        sys.stdout.write(f"{layer:5d}  {with_leak:5d}  {without:12d}\n")


if __name__ == "__main__":
    main()
