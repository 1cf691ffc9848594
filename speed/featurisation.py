"""Compare molecules per second from SMILES to arrays of atoms and bonds with chemprop's featurisers, on one core.

Every contender converts the same SMILES to the arrays of its own models: 9 numbers per atom and 3 per bond here (those
of OGB), 72 and 14 in chemprop, in Python and, if cuik-molmaker is also installed, in that package's C++. Each runs in a
separate process, the rivals in separate environments, since they need another version of RDKit than ours. They run
alternately and report the processor seconds that they used:

    python -m venv chemprop && chemprop/bin/pip install chemprop==2.2.4
    python -m venv cuik && cuik/bin/pip install cuik-molmaker-pin==2026.3.6
    python speed/featurisation.py --chemprop chemprop/bin/python --cuik-molmaker cuik/bin/python

On PyPI `cuik-molmaker` itself is a placeholder for another index; `cuik-molmaker-pin` contains the wheel.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from timing import medians, note, provenance

SMILES = Path(__file__).resolve().parents[2] / "shared" / "data" / "zinc" / "val.smi"
#: Each defines `featurise(list of SMILES)`.
GRAPHBENCH = """
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
def featurise(smiles):
    read_molecules(smiles, Recipe("ogb"), num_workers=0)
"""
CHEMPROP = """
from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
from chemprop.utils import make_mol
make_graph = SimpleMoleculeMolGraphFeaturizer()
def featurise(smiles):
    for text in smiles:
        make_graph(make_mol(text, False, False))
"""
#: As chemprop 2.2.4 calls it, for batches of its default size.
CUIK_MOLMAKER = """
import cuik_molmaker as cuik
onehot = ["atomic-number-common", "total-degree", "formal-charge", "chirality", "num-hydrogens",
          "hybridization-expanded"]
names = (cuik.atom_onehot_feature_names_to_array(onehot),
         cuik.atom_float_feature_names_to_array(["aromatic", "mass"]),
         cuik.bond_feature_names_to_array(["is-null", "bond-type-onehot", "conjugated", "in-ring", "stereo"]))
def featurise(smiles):
    for start in range(0, len(smiles), 64):
        cuik.batch_mol_featurizer(smiles[start : start + 64], *names, False, False, True, False)
"""
ASKED = """
import sys, time
smiles = open(sys.argv[1]).read().split()[:int(sys.argv[2])]
print(len(smiles), flush=True)
for _ in sys.stdin:
    started = time.process_time()
    featurise(smiles)
    print(time.process_time() - started, flush=True)
"""


@contextmanager
def asked(python: str, code: str, file: Path, count: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process that featurises the file once for every line it receives."""
    own = {name: value for name, value in os.environ.items() if python == sys.executable or name != "PYTHONPATH"}
    command = [python, "-c", code + ASKED, str(file), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own) as process:
        answer(process)
        yield process
        assert process.stdin is not None
        process.stdin.close()


def answer(process: subprocess.Popen[str]) -> float:
    """Return the next number that the process prints.

    Raises:
        SystemExit: it has exited.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args!r} exited with code {process.wait()}.")
    return float(line)


def ask(process: subprocess.Popen[str]) -> float:
    """Return the processor seconds of one pass over the file."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return answer(process)


def main() -> None:
    """Run all contenders alternately, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=SMILES, help="SMILES, one per line")
    parser.add_argument("--molecules", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chemprop", metavar="PYTHON", help="Python of an environment with chemprop")
    parser.add_argument("--cuik-molmaker", metavar="PYTHON", help="Python of an environment with cuik-molmaker")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    pythons = {"graphbench": sys.executable, "chemprop": options.chemprop, "cuik-molmaker": options.cuik_molmaker}
    codes = {"graphbench": GRAPHBENCH, "chemprop": CHEMPROP, "cuik-molmaker": CUIK_MOLMAKER}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(asked(python, codes[name], options.file, options.molecules))
            for name, python in pythons.items()
            if python
        }
        seconds: dict[str, list[float]] = {name: [] for name in processes}
        for turn in range(options.rounds + 1):
            for name, process in processes.items():
                taken = ask(process)
                seconds[name] += [taken] if turn else []  # the first one warms caches
    for name, middle in medians(seconds).items():
        ratio = note(f"{options.molecules:,} SMILES to arrays", "graphbench", name, seconds)
        print(
            f"{name:14} {options.molecules / middle:10,.0f} molecules/s   graphbench takes {ratio:.2f} of its seconds"
        )
    print(provenance(1))


if __name__ == "__main__":
    main()
