"""Pre-train `LinearTransformerPE` to return the first non-trivial eigenvectors of the normalised Laplacian.

The file it writes is for `init_from` of the model: weights named as in a module with `positional_encoding`. The loss is
the authors': the mean over molecules of the sum over columns of `min ‖φ ± v‖²`; an encoding orthogonal to its target
has a loss of 2 per column. The loss on validation molecules is printed, with atoms in the file's order and shuffled.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

import torch

from graphbench import GraphTable, PositionalEncoder
from graphbench.benchmarks import NCI, ZINC
from graphbench.encodings import LapPE
from graphbench.testing import permute_nodes
from graphbench_linear_transformer import LinearTransformerPE, eigenvector_loss
from graphbench_linear_transformer.encoder import Initial

#: Molecules of one evaluation batch.
_EVALUATED = 200


def loss_on(encoder: PositionalEncoder, table: GraphTable, rows: torch.Tensor) -> torch.Tensor:
    """Compute the loss of a batch from a table that has `lap_pe_vectors`."""
    batch = table.batch(rows)
    return eigenvector_loss(encoder(batch), batch.lap_pe_vectors, batch.batch, batch.num_graphs)


@torch.no_grad()
def evaluate(encoder: PositionalEncoder, table: GraphTable) -> float:
    """Compute the mean loss over a table."""
    encoder.eval()
    parts = torch.arange(len(table)).split(_EVALUATED)
    total = sum(len(part) * float(loss_on(encoder, table, part)) for part in parts)
    encoder.train()
    return total / len(table)


def pretrain(
    encoder: PositionalEncoder, table: GraphTable, steps: int, batch_size: int = 200, lr: float = 0.01
) -> None:
    """Train with AdamW (0.9, 0.99) and weight decay 0.01, like the authors, and halve the rate at every quarter."""
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=max(1, steps // 4), gamma=0.5)
    for _ in range(steps):
        loss = loss_on(encoder, table, torch.randperm(len(table))[:batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def encoded(table: GraphTable, dim: int) -> GraphTable:
    """Add to the table the first `dim` non-trivial eigenvectors of the normalised Laplacian."""
    encoding = LapPE(dim, "symmetric", skip_trivial=True)
    return table.with_columns(encoding.compute(table).columns, encoding.layout)


def save(encoder: PositionalEncoder, path: Path) -> None:
    """Write the weights for `init_from`."""
    state = {f"positional_encoding.{name}": value for name, value in encoder.state_dict().items()}
    torch.save({"state_dict": state}, path)


def main() -> None:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("NCI", "ZINC"), default="NCI", help="benchmark with the molecules")
    parser.add_argument("--initial", choices=get_args(Initial), default="walks", help="source of Φ_0")
    parser.add_argument("--shuffle-slots", action="store_true", help="use random slots in training")
    parser.add_argument("--dim", type=int, default=6, help="eigenvectors")
    parser.add_argument("--steps", type=int, default=400, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and batches")
    parser.add_argument("--output", type=Path, help="checkpoint to write")
    options = parser.parse_args()
    data = {"NCI": NCI, "ZINC": ZINC}[options.data]()
    data.setup()
    train, val = (encoded(data.tables[split], options.dim) for split in ("train", "val"))
    torch.manual_seed(options.seed)
    encoder = LinearTransformerPE(
        options.dim, initial=options.initial, max_nodes=38, shuffle_slots=options.shuffle_slots
    )
    before = evaluate(encoder, val)
    pretrain(encoder, train, options.steps)
    scores = (
        f"{before:.2f} -> {evaluate(encoder, val):.2f}, atoms shuffled {evaluate(encoder, permute_nodes(val)[0]):.2f}"
    )
    print(f"{options.data}, {options.initial}, {options.steps} steps: {scores}")  # noqa: T201 - a script
    if options.output:
        save(encoder, options.output)


if __name__ == "__main__":
    main()
