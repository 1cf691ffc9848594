"""Speed and memory of SFT's attention on one CPU thread: scores, growth with tokens, and table 6 of the paper.

Contenders alternate in each round, and a table shows medians of the CPU seconds of this process, which other programs
disturb less than wall time.

1. Scores, forward and backward, 4 x 1,024 tokens, 8 heads of 32, k = 256: ours in eager mode, ours fused by
   torch.compile, the L1 identity with torch.cdist, the broadcast form, and dot products.
2. Growth: one SFT layer (training step), k = 256, 1,024 to 65,536 tokens; every size in a separate process. Memory is
   the peak relative to the process's memory before the step (Linux). The last row is one graph of 100,000 nodes and
   1,000,000 directed edges.
3. Table 6: an SFT layer with relative terms compared with torch's TransformerEncoderLayer and the same layer around
   scaled_dot_product_attention, 4 x 1,024 tokens of width 256, for 16 heads (the paper's number at this width) and 8.

    python speed/sft_attention.py --quick
    python speed/sft_attention.py --rounds 7 --no-compile
    python speed/sft_attention.py --tables growth
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import in_turns, medians, note
from torch import Tensor, nn

from graphbench.experiments import write_csv
from graphbench.nn import DenseLayout
from graphbench_sft import SampledAttention, SFTLayer, maxout_scores
from graphbench_sft.attention import Relation
from graphbench_sft.relative import DistanceRelation, edge_relations

BATCH, TOKENS, WIDTH = 4, 1024, 256
EDGES_PER_TOKEN = 4
#: Nodes and directed edges of the large graph.
LARGE = (100_000, 1_000_000)
SAMPLES = (32, 64, 128, 256, 512)
TABLES = ("scores", "growth", "layers")
Step = Callable[[], object]
CLOCK = time.process_time


class SDPALayer(nn.Module):
    """A post-norm transformer layer around the fused attention of PyTorch."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj, self.out_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens `[batch, n, dim]`."""
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.out_proj(mixed))
        return self.norms[1](x + self.ffn(x))


def train(call: Callable[[], Tensor]) -> None:
    """Run forward and backward."""
    call().square().mean().backward()


# -- 1: scores ---------------------------------------------------------------------------------------------------


def identity_scores(query: Tensor, key: Tensor) -> Tensor:
    """Compute the scores with the L1 identity `max(a, b) = (a + b + |a - b|) / 2`."""
    sums = query.sum(-1, keepdim=True) + key.sum(-1).unsqueeze(-2)
    return (sums + torch.cdist(query, key, p=1)) * (0.5 * query.shape[-1] ** -0.5)


def broadcast_scores(query: Tensor, key: Tensor) -> Tensor:
    """Compute the definition, over a tensor of queries, keys and channels."""
    return torch.maximum(query.unsqueeze(-2), key.unsqueeze(-3)).sum(-1) * query.shape[-1] ** -0.5


def dot_scores(query: Tensor, key: Tensor) -> Tensor:
    """Compute scaled dot products."""
    return query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5


def differentiate(scores: Callable[[Tensor, Tensor], Tensor], query: Tensor, key: Tensor, weight: Tensor) -> object:
    """Compute scores, and gradients of their weighted sum."""
    return torch.autograd.grad(scores(query, key), (query, key), weight)


def score_table(rounds: int, compiled: bool) -> None:
    """Time forward and backward of every form of scores."""
    heads, k = 8, 256
    query = torch.randn(BATCH, heads, TOKENS, WIDTH // heads, requires_grad=True)
    key = torch.randn(BATCH, heads, k, WIDTH // heads, requires_grad=True)
    weight = torch.randn(BATCH, heads, TOKENS, k)
    forms: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"maxout, eager": maxout_scores}
    if compiled:
        forms["maxout, compiled"] = lambda query, key: maxout_scores(query, key, compiled=True)
    forms |= {"maxout by cdist": identity_scores, "dot product": dot_scores}

    steps: dict[str, Step] = {name: partial(differentiate, form, query, key, weight) for name, form in forms.items()}
    # One graph at a time, or it would need several gigabytes; this favours the broadcast form.
    steps["maxout by broadcast"] = lambda: [
        differentiate(broadcast_scores, *part) for part in zip(query, key, weight, strict=True)
    ]
    turns = in_turns(steps, rounds, CLOCK, rarely=["maxout by broadcast"])
    seconds = medians(turns)
    for other in ("dot product", "maxout by broadcast"):
        note(f"scores, {TOKENS} tokens, k = {k}", "maxout, eager", other, turns)
    print(f"\nScores, forward + backward, {BATCH} x {TOKENS} tokens, {heads} heads of {WIDTH // heads}, k = {k}")
    print(f"{'form':<22}{'s':>9}{'/ dot product':>16}{'broadcast /':>14}")
    for name, value in seconds.items():
        ratios = f"{value / seconds['dot product']:16.2f}{seconds['maxout by broadcast'] / value:14.1f}"
        print(f"{name:<22}{value:9.3f}{ratios}")


# -- 2: growth ---------------------------------------------------------------------------------------------------


def make_layout(batch: int, tokens: int) -> DenseLayout:
    """Lay out `batch` graphs of `tokens` nodes."""
    graph_of = torch.repeat_interleave(torch.arange(batch), tokens)
    return DenseLayout.from_rows(graph_of, torch.arange(0, (batch + 1) * tokens, tokens), tokens)


def make_edges(layout: DenseLayout, edges_per_token: int = EDGES_PER_TOKEN) -> tuple[Relation, ...]:
    """Draw random edges with one feature."""
    batch, tokens = layout.mask.shape
    sources = torch.randint(tokens, (2, batch, edges_per_token * tokens)) + torch.arange(batch)[:, None] * tokens
    edge_index = sources.flatten(1)
    return edge_relations(edge_index, torch.ones(edge_index.shape[1], 1), layout)


def make_sft(num_heads: int, k: int, compiled: bool = False, relation_dim: int = 1) -> SFTLayer:
    """Create an SFT layer of the benchmark's width with relative terms."""
    return SFTLayer(WIDTH, SampledAttention(WIDTH, num_heads, k, relation_dim=relation_dim, compiled_scores=compiled))


def resident_megabytes(field: str) -> float:
    """Return the resident memory of this process, now (`VmRSS`) or at its peak (`VmHWM`); Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def growth_step(tokens: int, edges_per_token: int, rounds: int) -> tuple[float, float]:
    """Return median CPU seconds and peak megabytes of a training step of one layer; runs in a separate process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer, layout = make_sft(8, 256), make_layout(1, tokens)
    x, relations = torch.randn(tokens, WIDTH), make_edges(layout, edges_per_token)
    before = resident_megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    seconds = medians(in_turns({"step": partial(train, partial(layer, x, layout, relations))}, rounds, CLOCK))["step"]
    return seconds, resident_megabytes("VmHWM") - before


def growth_table(sizes: list[int], rounds: int) -> None:
    """Print time and memory by number of tokens."""
    print("\nGrowth: training step of an SFT layer, width 256, 8 heads, k = 256, relative terms from edges")
    print(f"{'tokens':>8}{'edges':>10}{'s':>9}{'ms / 1k tokens':>17}{'peak MB':>10}{'MB / 1k tokens':>17}")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        shapes = [(tokens, EDGES_PER_TOKEN * tokens) for tokens in sizes]
        for tokens, edges in [*shapes, LARGE]:
            seconds, megabytes = pool.apply(growth_step, (tokens, edges // tokens, rounds))
            per_thousand = f"{seconds / tokens * 1e6:17.1f}{megabytes:10.0f}{megabytes / tokens * 1e3:17.1f}"
            print(f"{tokens:8d}{edges:10d}{seconds:9.3f}{per_thousand}", flush=True)


# -- 3: table 6 --------------------------------------------------------------------------------------------------


def make_layers(num_heads: int, compiled: bool, training: bool) -> dict[str, Callable[[], Tensor]]:
    """Return a forward call of every layer, on the same tokens, without dropout."""
    layout = make_layout(BATCH, TOKENS)
    x = torch.randn(BATCH * TOKENS, WIDTH)
    edges = make_edges(layout)
    points: tuple[Relation, ...] = (DistanceRelation(torch.rand(BATCH, TOKENS, 3), torch.rand(BATCH, TOKENS, 3)),)
    encoder = nn.TransformerEncoderLayer(
        WIDTH, num_heads, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True
    ).train(training)
    fused = SDPALayer(WIDTH, num_heads).train(training)
    batched = x.view(BATCH, TOKENS, WIDTH)
    calls: dict[str, Callable[[], Tensor]] = {
        "TransformerEncoderLayer": lambda: encoder(batched),
        "SDPA layer": lambda: fused(batched),
    }

    def add(name: str, k: int, relations: tuple[Relation, ...], compiled: bool = False) -> None:
        layer = make_sft(num_heads, k, compiled, relation_dim=1 if relations is edges else 2).train(training)
        calls[name] = lambda: layer(x, layout, relations)

    for k in SAMPLES:
        add(f"SFT, edges, k = {k}", k, edges)
    add("SFT, distances, k = 256", 256, points)
    for k in SAMPLES if compiled else ():
        add(f"SFT, edges, k = {k}, compiled", k, edges, compiled=True)
    return calls


def layer_table(num_heads: int, rounds: int, compiled: bool) -> dict[str, float]:
    """Time inference and training of every layer, and their ratio to the encoder layer; return inference."""
    with torch.inference_mode():
        inference_turns = in_turns(make_layers(num_heads, compiled, training=False), rounds, CLOCK)
    calls = make_layers(num_heads, compiled, training=True)
    training_turns = in_turns({name: partial(train, call) for name, call in calls.items()}, rounds, CLOCK)
    inference, training = medians(inference_turns), medians(training_turns)
    for name in inference:
        if name.startswith("SFT"):
            note(f"layer, {num_heads} heads, inference", name, "TransformerEncoderLayer", inference_turns)
            note(f"layer, {num_heads} heads, training", name, "TransformerEncoderLayer", training_turns)
    print(f"\nTable 6: layers, {BATCH} x {TOKENS} tokens of width {WIDTH}, {num_heads} heads, no dropout")
    print(f"{'':<32}{'inference s':>12}{'/ encoder':>11}{'/ SDPA':>9}{'training s':>12}{'/ encoder':>11}{'/ SDPA':>9}")
    for name in inference:
        row = f"{name:<32}"
        for seconds in (inference, training):
            encoder, fused = seconds["TransformerEncoderLayer"], seconds["SDPA layer"]
            row += f"{seconds[name]:12.3f}{seconds[name] / encoder:11.2f}{seconds[name] / fused:9.2f}"
        print(row)
    return inference


def can_compile() -> bool:
    """Return whether torch.compile works here, and print the reason if not."""
    query, key = torch.randn(8, 32, 16, requires_grad=True), torch.randn(8, 40, 16)
    try:
        maxout_scores(query, key, compiled=True).sum().backward()
        with torch.inference_mode():
            maxout_scores(query, key, compiled=True)
    except RuntimeError as error:
        print(f"torch.compile fails here, its rows are left out: {str(error).splitlines()[0]}")
        return False
    return True


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Speed and memory of SFT's attention on one CPU thread.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every table")
    parser.add_argument("--quick", action="store_true", help="two rounds, 16 heads, growth up to 8,192 tokens")
    parser.add_argument("--no-compile", action="store_true", help="skip the forms fused by torch.compile")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, help="which tables to print")
    parser.add_argument("--output", type=Path, help="folder for table_6.csv, inference with 16 heads as in the paper")
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    compiled = not options.no_compile and can_compile()
    print(f"torch {torch.__version__}, {platform.processor() or platform.machine()}, 1 thread, medians of {rounds}")
    if "scores" in options.tables:
        score_table(rounds, compiled)
    if "growth" in options.tables:
        growth_table([1024 * 2**i for i in range(4 if options.quick else 7)], 1 if options.quick else min(rounds, 3))
    for num_heads in (16,) if options.quick else (16, 8):
        if "layers" in options.tables:
            seconds = layer_table(num_heads, rounds, compiled)
            if options.output is not None and num_heads == 16:
                sampled = {f"k-{k}": f"{seconds[f'SFT, edges, k = {k}']:.4f}" for k in SAMPLES}
                dense = {f"k-{TOKENS}": f"{seconds['TransformerEncoderLayer']:.4f}"}
                keys = dict.fromkeys([*sampled, *dense], "")
                rows = [{"row": "sft", **keys, **sampled}, {"row": "transformer", **keys, **dense}]
                write_csv(options.output / "table_6.csv", rows)


if __name__ == "__main__":
    main()
