"""Hold the installed configuration `molecules` against the ridge of `graphbench test`, on given splits of one file.

    python experiments/own_molecules.py ../shared/data/aqsol/thousand.csv --target logS --output runs/own
    python experiments/own_molecules.py FILE --target logS --splits split_0 -- --trainer.max_epochs 100

Every split is a column of the file with train, val and test. Each gives an ordinary `graphbench fit` and `graphbench
test` in a folder of its own; a run that has test scores is taken as it is. Options behind `--` go to every fit, so that
other settings are tried in the same way. The table has the errors on the validation molecules, by which settings are
chosen, and on the test molecules, by which none is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from graphbench.cli import main as graphbench
from graphbench.runs import RunFolder

CONFIG = Path(__file__).parents[1] / "configs" / "molecules.yaml"
RIDGE = "ridge on Morgan counts"


@dataclass(frozen=True)
class Scores:
    """Mean absolute errors on one split of the file.

    Args:
        split: name of the column.
        model: of the trained model on validation and test.
        ridge: of the ridge regression on validation and test.
        epoch: whose weights were selected.
    """

    split: str
    model: tuple[float, float]
    ridge: tuple[float, float]
    epoch: int


def score(file: Path, target: str, split: str, run: Path, options: Sequence[str]) -> Scores:
    """Train and test on one split, unless the run has test scores.

    Raises:
        SystemExit: a command failed.
    """
    folder = RunFolder(run)
    if "test" not in folder.read_results():
        data = ["--data.file", str(file), "--data.target", target, "--data.split", "column"]
        fit = ["fit", "--config", str(CONFIG), *data, "--data.split_column", split, *options]
        shown = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
        for command in ([*fit, *shown, "--run", str(run)], ["test", "--run", str(run)]):
            if code := graphbench(command):
                raise SystemExit(code)
    results = folder.read_results()
    ridge = results["baselines"][RIDGE]
    return Scores(
        split,
        (results["val"]["val/MAE"], results["test"]["test/MAE"]),
        (ridge["val"]["val/MAE"], ridge["test"]["test/MAE"]),
        results["best_epoch"],
    )


def table(found: Sequence[Scores]) -> str:
    """The scores of all splits and their means, as text."""
    lines = ["split      epoch   val: model   ridge   test: model   ridge"]
    for one in found:
        numbers = f"{one.model[0]:12.3f} {one.ridge[0]:7.3f} {one.model[1]:13.3f} {one.ridge[1]:7.3f}"
        lines.append(f"{one.split:10} {one.epoch:5} {numbers}")
    means = [fmean(values) for values in zip(*((*one.model, *one.ridge) for one in found), strict=True)]
    lines.append(f"{'mean':16} {means[0]:12.3f} {means[2]:7.3f} {means[1]:13.3f} {means[3]:7.3f}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Train, test and print."""
    words = list(arguments)
    options = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--splits", nargs="+", default=["split_0", "split_1", "split_2"], metavar="COLUMN")
    parser.add_argument("--output", type=Path, default=Path("runs/own-molecules"), help="folder of the runs")
    own = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    found = [score(own.file, own.target, split, own.output / split, options) for split in own.splits]
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
