"""Measure peak memory of `graphbench prepare` for files of molecules read in parts, by length, and of two shares.

Files of 2, 4, 8, ... parts of distinct molecules are prepared, each in a separate process with one core. A line gives
the peak and the growth per further row, the same for the process's own memory without pages of mapped files (only on
Linux), and the size of the written entry. The longest file is then prepared in two shares, one after the other, and
joined; the entries are compared byte by byte.

    python speed/prepare_parts.py
    python speed/prepare_parts.py --most 1048576
    python speed/prepare_parts.py --split scaffold     # each molecule has a different scaffold
    python speed/prepare_parts.py --files 2            # the rows are in two files
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from pathlib import Path

from predict_memory import run
from timing import provenance

#: Rows of two parts.
FIRST = 1 << 15
_ATOMS = "CNOS"


def molecule(number: int, rings: bool = False) -> str:
    """Return a chain of 13 heavy atoms, a different one for each number below 4^12; or one between two rings."""
    chain = "".join(_ATOMS[number >> 2 * place & 3] for place in range(12))
    return f"C1CC1{chain}C1CC1" if rings else f"F{chain}"


def write_rows(path: Path, count: int, first: int = 0, rings: bool = False) -> Path:
    """Write a file of molecules with a target."""
    with path.open("w", encoding="utf-8") as file:
        file.write("smiles,value\n")
        file.writelines(f"{molecule(n, rings)},{n % 97}\n" for n in range(first, first + count))
    return path


def entry(store: Path) -> dict[str, bytes]:
    """Return the arrays of the one table in a store."""
    return {path.name: path.read_bytes() for path in store.glob("table-*/*.npy")}


class OwnMemory:
    """The largest memory of a process without file pages, in bytes; 0 on systems other than Linux."""

    def __init__(self) -> None:
        self.peak = 0

    def __call__(self, process: int) -> None:
        """Inspect a process, unless it has exited."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.peak = max(self.peak, int(line.split()[1]) * 1024)


def main() -> None:
    """Prepare the files, and print a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=FIRST * 8, help="rows of the longest file")
    parser.add_argument("--split", default="random", help="split of the molecules (default: random)")
    parser.add_argument("--files", type=int, default=1, help="files of a training set (default: 1)")
    parser.add_argument("--folder", type=Path, help="folder of the files; by default a temporary one")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    heads = f"{'peak MB':>9} {'bytes/row':>10} {'own MB':>9} {'bytes/row':>10}"
    print(f"{'rows':>12} {'seconds':>9} {heads} {'entry MB':>10}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, rows, before = Path(name), FIRST, (0, 0.0, 0)
        while rows <= options.most:
            each = rows // options.files
            files = [
                str(write_rows(folder / f"{rows}-{number}.csv", each, number * each, options.split != "random"))
                for number in range(options.files)
            ]
            source = files[0] if len(files) == 1 else f"[{','.join(files)}]"
            words = ["prepare", "--data", "Molecules", "--data.file", source, "--data.target", "value",
                     "--data.split", options.split, "--model.architecture", "GCN", "--data.store"]  # fmt: skip
            own = OwnMemory()
            seconds, _, peak = run([*words, f"{name}/{rows}"], own)
            size = sum(map(len, entry(folder / str(rows)).values()))
            told = ""
            for now, then in ((peak, before[1]), (own.peak, before[2])):
                added = f"{(now - then) / (rows - before[0]):.0f}" if before[0] else ""
                told += f" {now / 1e6:>9.1f} {added:>10}"
            print(f"{rows:>12,} {seconds:>9.1f}{told} {size / 1e6:>10.1f}", flush=True)
            before, rows = (rows, peak, own.peak), rows * 2
        for share in (["--part", "1/2"], ["--part", "2/2"], []):
            seconds, _, peak = run([*words, f"{name}/shares", *share])
            print(f"{' '.join(share) or 'joined':>12} {seconds:>9.1f} {peak / 1e6:>9.1f}", flush=True)
        equal = entry(folder / "shares") == entry(folder / str(before[0]))
        print("the entry of the shares is", "that of one process" if equal else "ANOTHER ONE")
    print(", ".join(f"{key} {value}" for key, value in provenance().items() if value))  # imports torch: the last step


if __name__ == "__main__":
    main()
