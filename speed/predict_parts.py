"""Measure seconds and peak memory of `graphbench predict --output DIR/` on one core, by length of the input.

A small GCN is trained for one epoch, then the command predicts files of 10^4, 10^5, ... SMILES in parts, each file in a
separate process with one core. A line gives rows per second without the shortest file, so that starting Python does not
count, and the peak; its growth is the memory that every further row keeps. Then the same command reads the longest file
for a share without any part. This gives the rate at which a job skips rows of other shares, since each job reads all.

    python speed/predict_parts.py
    python speed/predict_parts.py --most 10000000 --hidden-dim 64
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from predict_memory import run, write_rows
from timing import provenance

FIRST = 10_000
#: A share of the parts that is empty for an input of less than 65,536 x 10^6 rows.
OTHERS = "1000000/1000000"


def main() -> None:
    """Train, predict the files, and print a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="rows of the longest file")
    parser.add_argument("--hidden-dim", type=int, default=16, help="width of the model")
    parser.add_argument("--folder", type=Path, help="folder of the files; by default a temporary one")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["OMP_NUM_THREADS"] = "1"
    lengths = [FIRST]
    while lengths[-1] * 10 <= options.most:
        lengths.append(lengths[-1] * 10)
    print(f"{'rows':>12} {'seconds':>9} {'rows/s':>8} {'peak MB':>9} {'bytes/row':>10} {'output MB':>10}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        data = ["--data", "Molecules", "--data.target", "length", "--data.file", str(write_rows(folder / "a.csv", 200))]
        model = ["--model.architecture", "GCN", "--model.architecture.hidden_dim", str(options.hidden_dim),
                 "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu", "--trainer.logger", "false"]  # fmt: skip
        run(["fit", *data, "--data.root", name, *model, "--run", f"{name}/run"])
        before = (0.0, 0.0)
        for rows in lengths:
            source = write_rows(folder / "input.csv", rows)
            words = ["predict", "--run", f"{name}/run", "--input", str(source), "--output"]
            seconds, _, peak = run([*words, f"{name}/parts/"])
            size = sum(path.stat().st_size for path in (folder / "parts").glob("*.parquet"))
            if rows == FIRST:
                rate = growth = ""
                start = seconds
            else:
                rate = f"{(rows - FIRST) / (seconds - start):,.0f}"
                growth = f"{(peak - before[1]) / (rows - before[0]):.1f}"
            print(
                f"{rows:>12,} {seconds:>9.1f} {rate:>8} {peak / 1e6:>9.1f} {growth:>10} {size / 1e6:>10.1f}", flush=True
            )
            shutil.rmtree(folder / "parts")
            before = (rows, peak)
        passing, _, _ = run([*words, f"{name}/others/", "--part", OTHERS])
        print(
            f"{lengths[-1] / passing:,.0f} rows per second are passed over by the job of another share, with its start"
        )
    print(", ".join(f"{key} {value}" for key, value in provenance().items() if value))  # imports torch: the last step


if __name__ == "__main__":
    main()
