"""Dropout of graphbench beside that of torch, forward and backward, on one thread.

Shapes are those of training steps on molecules.

python speed/dropout.py
python speed/dropout.py --p 0.5 --rounds 51
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from timing import in_turns, medians, note
from torch import Tensor
from torch.nn import functional as F

from graphbench.cli.allocator import keep_memory
from graphbench.nn import dropped

#: What is dropped -> shape.
SHAPES = {
    "nodes of 32 molecules": (700, 64),
    "hidden layer": (700, 512),
    "attention weights": (32, 8, 40, 40),
}


def main() -> None:
    """Print one line per shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--p", type=float, default=0.2, help="probability")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'what':<24}{'torch us':>10}{'ours us':>10}{'ratio':>8}")
    for name, shape in SHAPES.items():
        x, grad = torch.randn(shape, requires_grad=True), torch.randn(shape)

        def both(drop: Callable[[Tensor, float], Tensor], x: Tensor = x, grad: Tensor = grad) -> Callable[[], None]:
            def run() -> None:
                for _ in range(20):
                    x.grad = None
                    drop(x, options.p).backward(grad)

            return run

        seconds = in_turns({"ours": both(dropped), "torch": both(F.dropout)}, options.rounds)
        middle = medians(seconds)
        shares = f"{5e4 * middle['torch']:10.0f}{5e4 * middle['ours']:10.0f}"
        print(f"{name:<24}{shares}{note(f'{name}, p = {options.p}', 'ours', 'torch', seconds):8.2f}")


if __name__ == "__main__":
    main()
