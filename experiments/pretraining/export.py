"""Write the architecture's weights of a run as float16 safetensors, for others to start from.

    python experiments/pretraining/export.py runs/pretrain/run plugins/weights/weights/molecules-base.safetensors

Head, target scaling and positional options are not exported: they belong to the labels of the run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint, trained_weights
from graphbench.runs.weights import save_weights


def main() -> None:
    """Read, round and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    state = load_checkpoint(trained_weights(RunFolder(options.run)))["state_dict"]
    kept = {name: value for name, value in state.items() if name.startswith("architecture.")}
    for name, value in kept.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            kept[name] = value.half()
            if not kept[name].isfinite().all():
                raise SystemExit(f"{name} does not fit into float16.")
    save_weights(kept, options.output)
    print(f"{options.output}: {len(kept)} tensors, {options.output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
