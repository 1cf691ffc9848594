"""Compare waits and launches of a training step on a real GPU with the budget in its contract.

A step is model, head, loss, backward pass, clipping and AdamW on a tiny batch, as in `graphbench.testing.budget`. Waits
are PyTorch's own warnings (`torch.cuda.set_sync_debug_mode`), launches the kernels and copies that its profiler sees.
The contract counts operations on a pretended card; a real GPU launches one or several kernels for each. On a CPU
nothing is launched, so `--device cpu` shows only that each step runs.

    python speed/card_steps.py
    python speed/card_steps.py --device cpu plugins/sft/tests/test_model.py
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import torch

from graphbench.contracts import Architecture, GraphBatch
from graphbench.testing.budget import contracts_of, make_step
from graphbench.testing.pretend import Work

ROOT = Path(__file__).parents[1]
#: Names of launches by CUDA's runtime or driver in the profiler.
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")


def step_on(device: torch.device, model: Architecture, batch: GraphBatch) -> Work:
    """Count the work of a step after two that set up state and kernels."""
    step = make_step(model, batch, device)
    step()
    step()
    if device.type != "cuda":
        return Work()
    torch.cuda.synchronize()
    return Work(waits_of(step), launches_of(step))


def waits_of(step: partial[None]) -> Counter[str]:
    """Return the lines at which a step waits for the GPU."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [one for one in caught if "synchronizing CUDA operation" in str(one.message)]
    return Counter(f"{Path(one.filename).name}:{one.lineno}" for one in waits)


def launches_of(step: partial[None]) -> Counter[str]:
    """Return the launches of a step by call."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        step()
        torch.cuda.synchronize()
    return Counter(event.name for event in profiler.events() if event.name.startswith(LAUNCHES))


def test_files() -> list[Path]:
    """Return the test files of the plug-ins that define contracts of architectures."""
    files = sorted(ROOT.glob("plugins/*/tests/**/test_*.py"))
    return [file for file in files if "ArchitectureContract)" in file.read_text(encoding="utf-8")]


def main() -> int:
    """Print one line per contract; return 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="test files; by default all of the plug-ins")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options = parser.parse_args()
    sys.path.append(str(ROOT / "tests" / "helpers"))  # as pytest has it
    count, failed = partial(step_on, torch.device(options.device)), 0
    print(f"{'contract':<44}{'waits':>8}{'most':>8}{'launches':>10}{'most':>8}  where it waits")
    for file in options.files or test_files():
        try:
            contracts = contracts_of(file.resolve())
        except Exception as error:  # continues with the other files
            print(f"{file.name}: not imported: {error!r}")
            failed += 1
            continue
        for contract in contracts:
            name = f"{file.stem}.{contract.__qualname__}"
            try:
                work = contract().count_step(count)
            except Exception as error:
                print(f"{name:<44} failed: {str(error).splitlines()[:1]}", flush=True)
                failed += 1
                continue
            cells = (work.waits.total(), contract.most_waits, work.launches.total(), contract.most_launches)
            shown = "".join(f"{cell!s:>{width}}" for cell, width in zip(cells, (8, 8, 10, 8), strict=True))
            print(
                f"{name:<44}{shown}  {', '.join(f'{n} x {line}' for line, n in work.waits.most_common(4))}", flush=True
            )
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
