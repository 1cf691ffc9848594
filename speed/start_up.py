"""Time the start of commands: help, listings, mistakes, and the first training step of the quickstart.

Every measurement runs in a separate process, and Python may cache compiled modules, which is its default. All are
compared with a process that imports torch, Lightning and PyG and exits. The first training step is timed from the end
of these imports to the end of the optimizer's first step, with data prepared in advance.

    python speed/start_up.py --rounds 7
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import in_turns, medians, note

IMPORTS = "import torch, pytorch_lightning, torch_geometric"
QUICKSTART = ("fit", "--config", "quickstart")
#: Name -> exit code, and the words after `graphbench`.
COMMANDS = {
    "--help": (0, ("--help",)),
    "list": (0, ("list",)),
    "fit --help": (0, ("fit", "--help")),
    "an unknown command": (1, ("fitt",)),
    "an unknown model": (1, (*QUICKSTART, "--model", "GPSS")),
    "an unknown option": (1, (*QUICKSTART, "--trainer.max_epoch", "3")),
    "a missing file": (1, ("fit", "--config", "missing.yaml")),
}


def until_first_step(run: Path) -> None:
    """Train in this process until the optimizer has taken a step; print the seconds since the imports, and exit."""
    from importlib import import_module

    for name in ("torch", "pytorch_lightning", "torch_geometric"):
        import_module(name)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    start = time.perf_counter()

    def stop(*_: object) -> None:
        print(f"seconds {time.perf_counter() - start}", flush=True)
        os._exit(0)

    register_optimizer_step_post_hook(stop)
    from graphbench.cli import main as graphbench

    sys.argv = ["graphbench", *QUICKSTART, "--run", str(run)]
    raise SystemExit(graphbench())


def main() -> None:
    """Print one line per command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--until-first-step", type=Path, metavar="RUN", help="train in this process, into this run")
    options = parser.parse_args()
    if options.until_first_step:
        until_first_step(options.until_first_step)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(code: int, *words: str) -> str:
        done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
        if done.returncode != code:
            raise SystemExit(f"{' '.join(words)} returned {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
        return done.stdout

    calls = {"the imports": lambda: run(0, "-c", IMPORTS)}
    for name, (code, words) in COMMANDS.items():
        calls[name] = lambda code=code, words=words: run(code, "-m", "graphbench", *words)
    seconds = in_turns(calls, options.rounds)
    steps: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, options.rounds):
            told = run(0, __file__, "--until-first-step", f"{folder}/{number}")
            found = float(told.rpartition("seconds ")[2])
            steps += [found] if number >= 0 else []
    seconds["first training step, after the imports"] = steps
    middle = medians(seconds)
    print(f"{'':<42}{'seconds':>8}{'of the imports':>16}")
    for name in seconds:
        if name != "the imports":
            ratio = note(name, "graphbench", "the imports", {"graphbench": seconds[name], **seconds})
            print(f"{name:<42}{middle[name]:8.2f}{ratio:16.2f}")
    print(f"{'the imports':<42}{middle['the imports']:8.2f}")


if __name__ == "__main__":
    main()
