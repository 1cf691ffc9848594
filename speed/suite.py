"""One table of all comparisons of speed: `make speed`.

Runs the short form of every timing script, one after the other, and prints what each of them held against what: median
seconds with quartiles, and the median over rounds of the ratio to the other (below 1: quicker than the other).

    python speed/suite.py                       # all; about twenty minutes on a quiet machine
    python speed/suite.py --only gps sparse     # scripts whose name begins so
    python speed/suite.py --json now.json       # for speed/compare.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from timing import VARIABLE, provenance

HERE = Path(__file__).parent
#: Script and the options of its short form.
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "limit": ((),),
    "gps_throughput": (("--steps", "30"), ("--kind", "peptides", "--steps", "8")),
    "sparse_flow": (("--only", "speed", "--rounds", "7", "--clock", "cpu"),),
    "sft_attention": (("--rounds", "5", "--no-compile", "--tables", "scores", "layers"),),
    "deepgraph": (("--quick",),),
    "encodings": ((),),
    "allocator": ((),),
    "data_path": ((),),
    "large_graph": (("--quick", "--rounds", "5"),),
    "scaling": ((),),
    "growth": (("--quick",),),
}


def measured(script: str, options: tuple[str, ...], threads: int) -> list[dict[str, object]]:
    """Comparisons of one call; what the script prints is shown.

    Raises:
        SystemExit: the script failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notes.json"
        environment = os.environ | {VARIABLE: str(path), "OMP_NUM_THREADS": str(threads)}
        print(f"== {script} {' '.join(options)}", flush=True)
        done = subprocess.run([sys.executable, str(HERE / f"{script}.py"), *options], env=environment)
        if done.returncode:
            raise SystemExit(f"speed/{script}.py failed with exit code {done.returncode}.")
        found: list[dict[str, object]] = json.loads(path.read_text()) if path.is_file() else []
        return found


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of the scripts' names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args()
    chosen = [name for name in PARTS if name.startswith(tuple(options.only))]
    if not chosen:
        raise SystemExit(f"--only {' '.join(options.only)}: there is {', '.join(PARTS)}.")
    where = provenance(options.threads)
    rows = [row for name in chosen for words in PARTS[name] for row in measured(name, words, options.threads)]
    table = Table(title=", ".join(f"{key} {value}" for key, value in where.items() if value), title_justify="left")
    for header in ("script", "case", "contender", "median s (quartiles)", "against", "ratio"):
        table.add_column(header, justify="right" if header in ("median s (quartiles)", "ratio") else "left")
    for row in rows:
        spread = f"{row['seconds']:.4g} ({row['low']:.4g} to {row['high']:.4g})"
        table.add_row(
            str(row["script"]),
            str(row["case"]),
            str(row["contender"]),
            spread,
            str(row["against"]),
            f"{row['ratio']:.2f}",
        )
    Console(width=170).print(table)
    if options.json:
        options.json.write_text(json.dumps({"provenance": where, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
