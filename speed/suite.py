"""Print one table of all speed comparisons: `make speed`.

Runs the short form of every timing script, one after the other, and prints all comparisons: median seconds with
quartiles, and the median over rounds of the ratio to the other (below 1: faster than the other).

    python speed/suite.py                       # all; about twenty minutes on a quiet machine
    python speed/suite.py --only gps sparse     # scripts whose name starts with these
    python speed/suite.py --json now.json       # for speed/compare.py
    python speed/suite.py --threads 2           # for scripts that measure on several threads
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
    "roofline": ((),),
    "kernels": ((),),
    "nested": ((),),
    "architectures": ((),),
    "gps_throughput": (
        ("--steps", "30"),
        ("--kind", "peptides", "--steps", "8"),
        ("--kind", "cluster", "--steps", "8"),
    ),
    "sparse_flow": (("--only", "speed", "--rounds", "7", "--clock", "cpu"),),
    "sft_attention": (("--rounds", "5", "--no-compile", "--tables", "scores", "layers"),),
    "deepgraph": (("--quick",),),
    "encodings": ((),),
    "allocator": ((),),
    "data_path": ((),),
    "large_graph": (("--quick", "--rounds", "5"),),
    "scaling": ((),),
    "start_up": ((),),
    "growth": (("--quick",),),
}

#: Scripts that measure with `--threads` threads; the others use one.
ON_THREADS = ("kernels", "nested", "architectures", "gps_throughput", "encodings", "allocator", "large_graph")


def measured(script: str, options: tuple[str, ...], threads: int) -> tuple[list[dict[str, object]], int]:
    """Return the comparisons of one call, including those before a failure, and its exit code; show its output."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notes.json"
        environment = os.environ | {VARIABLE: str(path), "OMP_NUM_THREADS": str(threads)}
        if script in ON_THREADS:
            options = (*options, "--threads", str(threads))
        print(f"== {script} {' '.join(options)}", flush=True)
        done = subprocess.run([sys.executable, str(HERE / f"{script}.py"), *options], env=environment)
        found: list[dict[str, object]] = json.loads(path.read_text()) if path.is_file() else []
        return found, done.returncode


def main() -> int:
    """Measure, print, and optionally write JSON; return 1 if a script failed, after all others have run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="prefixes of script names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args()
    chosen = [name for name in PARTS if name.startswith(tuple(options.only))]
    if options.threads > 1:
        chosen = [name for name in chosen if name in ON_THREADS]
    if not chosen:
        there = ON_THREADS if options.threads > 1 else PARTS
        raise SystemExit(f"--only {' '.join(options.only)}: no such script; there are {', '.join(there)}.")
    where = provenance(options.threads)
    rows: list[dict[str, object]] = []
    failed: list[str] = []
    calls = [(name, words) for name in chosen for words in PARTS[name]]
    for name, words in calls:
        found, code = measured(name, words, options.threads)
        rows += found
        if code:
            failed.append(f"speed/{name}.py {' '.join(words)}".strip() + f" failed with exit code {code}.")
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
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
