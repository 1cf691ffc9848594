"""Measure peak memory and rows per second of `graphbench predict --input` by length of the file.

A small GCN is trained for one epoch on molecules of a few atoms, or with `--kind graphs` on the same as JSON lines of
atoms and bonds, or with `--kind graph-tables` as tables of graphs, atoms and bonds. With `--run` and `--smiles` your
own run predicts your own molecules, repeated as often as needed. Then the command predicts files of n, 4n and 16n rows,
each in a separate process, alternately. The bytes per row that the last three quarters of the longest file add to the
peak are those that every further row would keep. Rows per second exclude the shortest file, so that starting Python
does not count, and are also given per second of processor time of all processes. The peak is that of the largest
process: the one that predicts, or one of those that read molecules.

    python speed/predict_memory.py
    python speed/predict_memory.py --rows 10000 --rounds 5 --suffix .parquet
    python speed/predict_memory.py --run runs/molecules --smiles FILE --rows 62500 --rounds 1
    python speed/predict_memory.py --kind graphs
    python speed/predict_memory.py --kind graph-tables
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from timing import provenance

TIMES = (1, 4, 16)
_MODEL = (
    "--model.architecture", "GCN", "--model.architecture.hidden_dim", "16", "--model.architecture.num_layers", "2",
    "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu", "--trainer.logger", "false",
)  # fmt: skip


class Kind(NamedTuple):
    """A kind of input: suffix and writer of its files, and the data options before the file name."""

    suffix: str
    write: Callable[[Path, int], Path]
    options: tuple[str, ...]


class Usage(NamedTuple):
    """Resources of a command: seconds, processor seconds, and peak bytes of its largest process."""

    seconds: float
    busy: float
    peak: float


def smiles(number: int) -> str:
    """Create an ether of 4 to 19 heavy atoms."""
    return "C" * (1 + number % 4) + "O" + "C" * (2 + number // 4 % 13)


def write_rows(path: Path, count: int) -> Path:
    """Write a file of molecules with names and lengths."""
    with path.open("w", encoding="utf-8") as file:
        file.write("name,smiles,length\n")
        file.writelines(f"molecule-{n:09},{smiles(n)},{len(smiles(n))}\n" for n in range(count))
    return path


def write_smiles(path: Path, count: int, smiles: Sequence[str]) -> Path:
    """Write a file of given molecules, repeated."""
    with path.open("w", encoding="utf-8") as file:
        file.write("smiles\n")
        file.writelines(f"{smiles[n % len(smiles)]}\n" for n in range(count))
    return path


def graph(number: int) -> str:
    """Write the same molecule as a chain of atoms, in JSON."""
    atoms = list(smiles(number))
    bonds = [[left, left + 1] for left in range(len(atoms) - 1)]
    return json.dumps(
        {"id": f"molecule-{number:09}", "nodes": {"element": atoms}, "edges": bonds, "length": len(atoms)}
    )


def write_graphs(path: Path, count: int) -> Path:
    """Write a file of such graphs, one per line."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{graph(n)}\n" for n in range(count))
    return path


def write_tables(folder: Path, count: int) -> Path:
    """Write a folder with tables of such graphs."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / f"{name}.csv").open("w")) for name in ("graphs", "nodes", "edges")]
        for file, header in zip(files, ("graph,length", "graph,element", "graph,source,target"), strict=True):
            file.write(f"{header}\n")
        for number in range(count):
            name, atoms = f"molecule-{number:09}", smiles(number)
            files[0].write(f"{name},{len(atoms)}\n")
            files[1].writelines(f"{name},{atom}\n" for atom in atoms)
            files[2].writelines(f"{name},{left},{left + 1}\n" for left in range(len(atoms) - 1))
    return folder


_GRAPHS = ("--data", "Graphs", "--data.target", "length", "--data.source")
KINDS = {
    "molecules": Kind(".csv", write_rows, ("--data", "Molecules", "--data.target", "length", "--data.file")),
    "graph-tables": Kind("", write_tables, _GRAPHS),
    "graphs": Kind(".jsonl", write_graphs, _GRAPHS),
}


def run(words: Sequence[str], watch: Callable[[int], None] | None = None) -> Usage:
    """Run a command and measure its usage.

    This process must be small: a new process includes the memory of its parent in its own. `watch` is called with the
    number of the process, twenty times a second.

    Raises:
        SystemExit: the command failed.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen([sys.executable, "-m", "graphbench", *words], stdout=said, stderr=said)
        ended = 0
        while not ended:
            if watch is not None:
                watch(process.pid)
                time.sleep(0.05)
            ended, status, used = os.wait4(process.pid, 0 if watch is None else os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"graphbench {words[0]} failed:\n{said.read()[-3000:]}")
    busy = used.ru_utime + used.ru_stime
    return Usage(time.perf_counter() - start, busy, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def growth(peaks: Sequence[float], rows: Sequence[int]) -> float:
    """Return the bytes that every row adds between the last two lengths."""
    return (peaks[-1] - peaks[-2]) / (rows[-1] - rows[-2])


def main() -> None:
    """Train, predict the files alternately, and print a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="molecules", help="what is predicted")
    parser.add_argument("--rows", type=int, default=2000, help="rows of the shortest file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--suffix", choices=(".csv", ".parquet"), default=".csv", help="suffix of the output")
    parser.add_argument("--run", metavar="FOLDER", help="run of a trained model of molecules, instead of a small one")
    parser.add_argument("--smiles", type=Path, metavar="FILE", help="molecules for it, one per line")
    options = parser.parse_args()
    if (options.run is None) != (options.smiles is None) or (options.run and options.kind != "molecules"):
        parser.error("--run and --smiles belong together, for --kind molecules")
    suffix, write, data_options = KINDS[options.kind]
    lengths = [times * options.rows for times in TIMES]
    usages: dict[int, list[Usage]] = {rows: [] for rows in lengths}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.run:
            trained, write = options.run, partial(write_smiles, smiles=options.smiles.read_text().split())
        else:
            known, trained = write(folder / f"known{suffix}", 200), f"{name}/run"
            data = [*data_options, str(known), "--data.root", name]
            run(["fit", *data, *_MODEL, "--run", trained])
        for rows in lengths:
            write(folder / f"{rows}{suffix}", rows)
        for _ in range(options.rounds):
            for rows in lengths:
                output = folder / f"answers-{rows}{options.suffix}"
                words = ["predict", "--run", trained, "--input", f"{name}/{rows}{suffix}", "--output", str(output)]
                usages[rows].append(run(words))
    medians = [Usage(*map(statistics.median, zip(*usages[rows], strict=True))) for rows in lengths]
    print(f"{'rows':>10} {'seconds':>9} {'peak MB':>9} {'lowest':>9} {'highest':>9}")
    for rows, median in zip(lengths, medians, strict=True):
        peaks = [usage.peak / 1e6 for usage in usages[rows]]
        print(f"{rows:>10,} {median.seconds:>9.2f} {median.peak / 1e6:>9.1f} {min(peaks):>9.1f} {max(peaks):>9.1f}")
    further, shortest, longest = lengths[-1] - lengths[0], medians[0], medians[-1]
    print(f"{further / (longest.seconds - shortest.seconds):,.0f} rows per second beyond the shortest file")
    print(f"{further / (longest.busy - shortest.busy):,.0f} rows per second of a processor")
    added = growth([usage.peak for usage in medians], lengths)
    print(f"{added:.0f} bytes per row from {lengths[-2]:,} to {lengths[-1]:,} rows")
    print(", ".join(f"{key} {value}" for key, value in provenance().items() if value))  # imports torch: the last step


if __name__ == "__main__":
    main()
