"""Compute descriptors of whole molecules with RDKit: physical and structural numbers, or hashed substructures."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, get_args

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import rdFingerprintGenerator

from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles
from graphbench.data.worker_pool import map_in_processes

DescriptorSet = Literal["rdkit2d", "morgan"]
DESCRIPTOR_SETS: tuple[DescriptorSet, ...] = get_args(DescriptorSet)
#: Length of the hashed fingerprint.
MORGAN_BITS = 2048
#: Ipc grows with the factorial of the atoms and overflows float32; qed takes a fifth of the time and combines others.
_LEFT_OUT = ("Ipc", "qed")
_CHUNK = 256


@functools.cache
def _functions() -> dict[str, Callable[[Chem.Mol], float]]:
    from rdkit.Chem import Descriptors  # slow to import

    return {name: function for name, function in Descriptors.descList if name not in _LEFT_OUT}


def descriptor_names(kind: DescriptorSet) -> tuple[str, ...]:
    """Name the columns of `compute_descriptors`.

    Examples:
        >>> "MolLogP" in descriptor_names("rdkit2d"), len(descriptor_names("morgan"))
        (True, 2048)
    """
    return tuple(_functions()) if kind == "rdkit2d" else tuple(f"morgan_{bit}" for bit in range(MORGAN_BITS))


def compute_descriptors(kind: DescriptorSet, smiles: Sequence[str], workers: int | None = None) -> np.ndarray:
    """Compute descriptors of readable molecules, float32 `[M, D]`.

    Args:
        kind: `rdkit2d`: RDKit's list of descriptors without Ipc and qed, NaN where one is undefined (partial charges of
            some metals); `morgan`: counts of circular substructures up to radius 2, hashed to 2,048 columns (Rogers and
            Hahn, 2010).
        smiles: SMILES of each molecule.
        workers: number of processes, by default one per core; a single one shows no progress.

    Examples:
        >>> columns = descriptor_names("rdkit2d")
        >>> round(float(compute_descriptors("rdkit2d", ["CCO"])[0, columns.index("TPSA")]), 2)
        20.23
    """
    return np.concatenate(list(descriptor_parts(kind, smiles, workers)))


def descriptor_parts(kind: DescriptorSet, smiles: Sequence[str], workers: int | None = None) -> Iterator[np.ndarray]:
    """Yield the rows of `compute_descriptors` in parts, the first of which is empty."""
    yield np.zeros((0, len(descriptor_names(kind))), np.float32)
    chunks = [smiles[start : start + _CHUNK] for start in range(0, len(smiles), _CHUNK)]
    if workers == 1:  # for a part of an input, which shows its own progress
        yield from map(partial(_compute, kind), chunks)
        return
    description = f"Computing {kind} descriptors"
    yield from map_in_processes(partial(_compute, kind), chunks, len(chunks), description, workers=workers)


def _compute(kind: DescriptorSet, smiles: Sequence[str]) -> np.ndarray:
    with rdBase.BlockLogs():
        molecules = [parse_smiles(text) for text in smiles]
        if kind == "morgan":
            generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=MORGAN_BITS)
            return np.array([generator.GetCountFingerprintAsNumPy(mol) for mol in molecules], dtype=np.float32)
        return np.array([[_value(f, mol) for f in _functions().values()] for mol in molecules], dtype=np.float32)


def _value(function: Callable[[Chem.Mol], float], mol: Chem.Mol) -> float:
    try:
        value = float(function(mol))
    except (ValueError, RuntimeError, ZeroDivisionError):  # RDKit's errors for an undefined value
        return math.nan
    return value if abs(value) < np.finfo(np.float32).max else math.nan
