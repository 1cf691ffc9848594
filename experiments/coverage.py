"""Measure how often conformal intervals contain the truth where it matters: on test molecules of new scaffolds.

    python experiments/coverage.py FILE --target logS --output runs/coverage
    python experiments/coverage.py FILE --target logS --split butina --split-seeds 0 1 2 -- --trainer.max_epochs 20
    python experiments/coverage.py --trained runs/a-0 runs/a-1 --trained runs/b-0 runs/b-1

For each seed of the split several models are trained (configuration `molecules`), each with an ordinary
`graphbench fit` in a separate folder. Finished runs are reused, and options after `--` are passed to every fit. With
`--trained`, once for each split, finished runs of any configuration are measured, and nothing is trained. The models of
a split predict together, and their intervals are fitted on its validation molecules in each of the ways of
`graphbench predict --interval-by`. The table has, for each way and nominal coverage, the share of test molecules whose
target is in its interval, over all of them, over the third nearest to the training set and the third farthest from it,
and the mean width of the intervals in the target's unit. Shares are means over the splits, with the standard deviation
between them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import graphbench
from graphbench.cli import main as command
from graphbench.inference import Ensemble
from graphbench.runs import RunFolder

CONFIG = Path(__file__).parents[1] / "configs" / "molecules.yaml"
#: Ways of `--interval-by`.
WAYS: tuple[tuple[str, ...], ...] = ((), ("distance",), ("spread",), ("distance", "spread"))


@dataclass(frozen=True)
class Measured:
    """Shares of test molecules in their intervals, on one split.

    Args:
        by: see `WAYS`.
        stated: nominal coverage.
        whole: share of all test molecules.
        near: share of the third with the smallest distances to training.
        far: share of the third with the largest.
        width: mean width of the intervals, in the target's unit.
    """

    by: tuple[str, ...]
    stated: float
    whole: float
    near: float
    far: float
    width: float


def trained(own: argparse.Namespace, split_seed: int, seed: int, options: Sequence[str]) -> Path:
    """Train a model, unless its run is finished, and return its folder.

    Raises:
        SystemExit: the command failed.
    """
    run: Path = own.output / f"{own.split}-{split_seed}-{seed}"
    if "val" not in RunFolder(run).read_results():
        data = ["--data.file", str(own.file), "--data.target", own.target, "--data.split", own.split]
        data += ["--data.split_seed", str(split_seed), "--data.fractions", own.fractions]
        shown = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
        fit = ["fit", "--config", str(CONFIG), *data, "--seed_everything", str(seed), *options, *shown]
        if code := command([*fit, "--run", str(run)]):
            raise SystemExit(code)
    return run


def measure(runs: Sequence[Path], stated: Sequence[float]) -> list[Measured]:
    """Fit intervals of the models of one split in every way, and count the test molecules that they contain."""
    members = [graphbench.load(run, accelerator="cpu") for run in runs]
    for member in members:
        member.data.prepare_data()
        member.data.setup("predict")
    together = Ensemble(members, [str(run) for run in runs])
    answers = [together.answers(views)[:2] for views in together.parts_of("test")]
    means, spreads = (np.concatenate(part) for part in zip(*answers, strict=True))
    table, distances = members[0].data.tables["test"], together.split_distances("test")
    targets = table.columns["y"].numpy().reshape(len(table), -1)
    order, third = np.argsort(distances, kind="stable"), -(-len(distances) // 3)
    found = []
    for by in (way for way in WAYS if "spread" not in way or len(runs) > 1):
        for coverage in stated:
            together.add_intervals(coverage, by)
            held = together.covered(means, spreads, targets, "test").mean(1)
            columns = together.further_columns(means, spreads, distances)
            name = members[0].data.target_labels()[0]
            width = float(np.mean(columns[f"{name}_high"] - columns[f"{name}_low"]))
            whole, near, far = (float(held[rows].mean()) for rows in (order, order[:third], order[-third:]))
            found.append(Measured(by, coverage, whole, near, far, width))
    return found


def table(splits: Sequence[Sequence[Measured]]) -> str:
    """Return the means over splits as text, with standard deviations between splits if there are several."""
    lines = ["by                 stated    all            nearest third  farthest third   width"]
    for rows in zip(*splits, strict=True):
        cells = []
        for name in ("whole", "near", "far"):
            values = 100 * np.array([getattr(row, name) for row in rows])
            deviation = f" +- {values.std(ddof=1):4.1f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():5.1f}{deviation}".ljust(14))
        way = " + ".join(rows[0].by) or "one width"
        width = np.mean([row.width for row in rows])
        lines.append(f"{way:18} {100 * rows[0].stated:5.1f}   {' '.join(cells)} {width:7.3f}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Train, measure and print."""
    words = list(arguments)
    options = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--target", help="column of the file")
    parser.add_argument("--trained", type=Path, nargs="+", action="append", metavar="RUN", help="runs of one split")
    parser.add_argument("--split", default="scaffold_balanced", help="split of `Molecules`, with a seed")
    parser.add_argument("--split-seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of the models of a split")
    parser.add_argument("--fractions", default="[0.6, 0.2, 0.2]", help="bins of distances need validation molecules")
    parser.add_argument("--stated", type=float, nargs="+", default=[0.8, 0.9])
    parser.add_argument("--output", type=Path, default=Path("runs/coverage"), help="folder of the runs")
    own = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if own.trained is None and (own.file is None or own.target is None):
        parser.error("name a file and its --target, or finished runs (--trained)")
    splits = own.trained or ([trained(own, split, seed, options) for seed in own.seeds] for split in own.split_seeds)
    found = []
    for runs in splits:
        found.append(measure(runs, own.stated))
        print(table(found[-1:]), flush=True)
    print(f"\n{len(found)} splits, {len(runs)} models each\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
