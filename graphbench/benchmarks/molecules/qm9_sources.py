"""QM9's sources: PyG's raw files or those of the package qm9pack, and the physical targets in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from graphbench.benchmarks.molecules.qm9_structures import MolBlock, PackRecord, Record
from graphbench.benchmarks.tables import read_columns
from graphbench.data.download import fetch, fetch_members
from graphbench.data.files.foreign import FETCH_AGAIN, foreign
from graphbench.data.package_files import file_sha256, package_file
from graphbench.errors import BadInput, CorruptData, check_choice
from graphbench.tables.records import records

_SDF, _CSV, _SKIPPED = "gdb9.sdf", "gdb9.sdf.csv", "uncharacterized.txt"
#: The files of qm9pack 1.0.3 with the molecules, and their SHA-256.
PACK_FILES = {
    "qm9_part1.csv": "19f0a5d595462d52cd82eef3370f3e9eb55a1f52cb14985657200349568deff3",
    "qm9_part2.csv": "2bca113fdc0b28a13563c80ed9b240e934f3da6c64c64fe74ddb4f0f36036e61",
    "qm9_part3.csv": "9c5efb5733d2af149db8d95d36ff198b4ffed12d9f7b344220a1e5877d5c6a43",
}
_ADVICE = "Or use the same molecules without a network: pip install 'graphbench-lightning[qm9]' and source=qm9pack."
#: Name of the computed target, see `graphbench.benchmarks.molecules.chemistry.properties`.
CONSTRAINED_SOLUBILITY = "constrained_solubility"
HARTREE = 27.211386246  # eV (CODATA 2018)
KCAL_MOL = 0.04336414  # eV, as in PyG
_Dimension = Literal["hartree", "kcal/mol", "other"]
_FACTORS: dict[_Dimension, float] = {"hartree": HARTREE, "kcal/mol": KCAL_MOL, "other": 1.0}
_ELEMENTS = ("H", "C", "N", "O", "F")


@dataclass(frozen=True)
class QM9Target:
    """One physical target (Ramakrishnan et al., Scientific Data 1, 140022 (2014), Table 3).

    Args:
        unit: unit of the target here; all energies are in eV, as in PyG.
        csv_column: column in `gdb9.sdf.csv`.
        csv_dimension: unit of that column.
        pack_column: column in the files of qm9pack, where energies are in hartree.
        atom_energies: energies of a free H, C, N, O and F atom in hartree. qm9pack lacks atomisation energies, so they
            are its total energy minus those of the atoms.
    """

    unit: str
    csv_column: str
    pack_column: str
    csv_dimension: _Dimension = "other"
    atom_energies: tuple[float, ...] = ()


def _energy(csv_column: str, pack_column: str, *atom_energies: float) -> QM9Target:
    # The CSV file has atomisation energies in kcal/mol, and all other energies in hartree.
    return QM9Target("eV", csv_column, pack_column, "kcal/mol" if atom_energies else "hartree", atom_energies)


#: Every physical target by name, in PyG's order.
QM9_TARGETS: dict[str, QM9Target] = {
    "mu": QM9Target("D", "mu", "Dipole_debye"),
    "alpha": QM9Target("a0^3", "alpha", "Polarizability_bohr3"),
    "homo": _energy("homo", "HOMO_au"),
    "lumo": _energy("lumo", "LUMO_au"),
    "gap": _energy("gap", "HOMO_LUMO_gap_au"),
    "r2": QM9Target("a0^2", "r2", "R2_bohr2"),
    "zpve": _energy("zpve", "ZPVE_au"),
    "u0": _energy("u0", "InternalEnergy_0K_au"),
    "u298": _energy("u298", "InternalEnergy_298K_au"),
    "h298": _energy("h298", "Enthalphy_298K_au"),
    "g298": _energy("g298", "GibbsFreeEnergy_298K_au"),
    "cv": QM9Target("cal/(mol K)", "cv", "Heatcapacity_Cv_cal_mol_K"),
    "u0_atom": _energy("u0_atom", "InternalEnergy_0K_au", -0.500273, -37.846772, -54.583861, -75.064579, -99.718730),
    "u298_atom": _energy(
        "u298_atom", "InternalEnergy_298K_au", -0.498857, -37.845355, -54.582445, -75.063163, -99.717314
    ),
    "h298_atom": _energy("h298_atom", "Enthalphy_298K_au", -0.497912, -37.844411, -54.581501, -75.062219, -99.716370),
    "g298_atom": _energy(
        "g298_atom", "GibbsFreeEnergy_298K_au", -0.510927, -37.861317, -54.598897, -75.079532, -99.733544
    ),
    "rotational_a": QM9Target("GHz", "A", "RotA_GHz"),
    "rotational_b": QM9Target("GHz", "B", "RotB_GHz"),
    "rotational_c": QM9Target("GHz", "C", "RotC_GHz"),
}


def csv_targets(columns: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Compute targets `[molecules, T]`, float64, from the columns of `gdb9.sdf.csv`."""
    targets = [QM9_TARGETS[name] for name in names]
    return np.stack([columns[one.csv_column] * _FACTORS[one.csv_dimension] for one in targets], axis=1)


def pack_targets(columns: Mapping[str, np.ndarray], formulas: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Compute targets `[molecules, T]`, float64, from the columns of qm9pack.

    `formulas` counts the atoms of each element H, C, N, O, F: `[molecules, 5]`.
    """
    targets = []
    for name in names:
        target = QM9_TARGETS[name]
        values = columns[target.pack_column]
        if target.atom_energies:
            values = values - formulas @ np.array(target.atom_energies)
        targets.append(values * (HARTREE if target.unit == "eV" else 1.0))
    return np.stack(targets, axis=1)


def check_physical(targets: Sequence[str]) -> None:
    """Refuse targets that QM9 does not have."""
    if CONSTRAINED_SOLUBILITY in targets:
        raise BadInput(f"target={CONSTRAINED_SOLUBILITY} is computed: it must be the only target.")
    if not targets or len(set(targets)) != len(targets):
        raise BadInput(f"target: expected one or several distinct targets, got {list(targets)}.")
    for name in targets:
        check_choice("target", name, (*QM9_TARGETS, CONSTRAINED_SOLUBILITY))


@dataclass(frozen=True)
class QM9Rows:
    """The consistently characterised molecules, in the published order, with requested targets `[molecules, T]`."""

    records: Sequence[Record]
    names: list[str]
    targets: np.ndarray


def addresses() -> tuple[str, str]:
    """Return PyG's addresses for QM9: the archive of structures and targets, and the list of inconsistent molecules."""
    from torch_geometric.datasets import QM9

    return QM9.raw_url, QM9.raw_url2


def fetch_published(folder: Path) -> Path:
    """Download the files that are missing in PyG's raw folder `folder/raw`, and return the folder."""
    raw = folder / "raw"
    archive, listed = addresses()
    others = {} if (raw / _SKIPPED).is_file() else {_SKIPPED: listed}
    fetch_members(archive, raw, {_SDF: _SDF, _CSV: _CSV}, what="QM9", others=others, advice=_ADVICE)
    fetch(listed, raw, _SKIPPED, what="the list of inconsistent molecules of QM9", advice=_ADVICE)
    return raw


def read_published(raw: Path, targets: Sequence[str]) -> QM9Rows:
    """Read PyG's raw files `gdb9.sdf`, `gdb9.sdf.csv` and `uncharacterized.txt`."""
    table = _read_csv(raw / _CSV, {"mol_id": str} | {QM9_TARGETS[name].csv_column: float for name in targets})
    skipped = _read_skipped(raw / _SKIPPED, len(table))
    rows = np.setdiff1d(np.arange(len(table)), skipped)
    with foreign(raw / _SDF, FETCH_AGAIN), (raw / _SDF).open(encoding="utf-8", errors="replace") as file:
        blocks = ["\n".join([*lines, ""]) for _, lines in records(file, all_end=True)]
    if len(blocks) != len(table):
        raise CorruptData(
            f"{raw / _SDF} holds {len(blocks):,} records, {_CSV} has {len(table):,} rows. Fetch both again."
        )
    columns = {str(name): table[name].to_numpy() for name in table.columns}
    values = csv_targets(columns, targets) if targets else np.empty((len(table), 0))
    names = columns["mol_id"][rows].tolist()
    return QM9Rows([MolBlock(blocks[row]) for row in rows], names, values[rows])


def _read_csv(path: Path, columns: Mapping[str, type]) -> pd.DataFrame:
    with foreign(path, FETCH_AGAIN):
        return read_columns(path, columns)


def _read_skipped(path: Path, num_rows: int) -> np.ndarray:
    """Read the rows, from 0, of inconsistent molecules: nine header lines, a line per molecule, and a closing line."""
    lines = [line.split() for line in path.read_text("utf-8", errors="replace").splitlines()[9:-1]]
    numbers = {int(cells[0]) for cells in lines if cells and cells[0].isdecimal()}
    if not lines or len(numbers) != len(lines) or min(numbers) < 1 or max(numbers) > num_rows:
        raise CorruptData(
            f"{path} is not the list of inconsistent molecules, numbers from 1 to {num_rows:,}. Delete it and fetch "
            "it again."
        )
    return np.array(sorted(numbers)) - 1


def pack_paths() -> list[Path]:
    """Return the paths of the three files of qm9pack, without importing it."""
    purpose = "QM9 with source=qm9pack"
    paths = [package_file("qm9pack", f"data/{name}", extra="qm9", purpose=purpose) for name in PACK_FILES]
    for path in paths:
        if file_sha256(path) != PACK_FILES[path.name]:
            raise CorruptData(f"{path} is not the file that qm9pack 1.0.3 ships (checksum differs).")
    return paths


def read_pack(paths: Sequence[Path], targets: Sequence[str], geometry: bool) -> QM9Rows:
    """Read the files of qm9pack, in the published order of molecules, with coordinates if `geometry`."""
    physical = {QM9_TARGETS[name].pack_column for name in targets}
    texts = ("SMILES", "Elements", *(["XYZ_Ang"] if geometry else []))
    wanted = {"Index": int} | dict.fromkeys(texts, str) | dict.fromkeys(sorted(physical), float)
    table = pd.concat([_read_csv(path, wanted) for path in paths], ignore_index=True)
    elements = [tuple(text.strip("[]").replace("'", "").split(",")) for text in table["Elements"]]
    if geometry:
        records = [PackRecord(*row) for row in zip(table["SMILES"], elements, table["XYZ_Ang"], strict=True)]
    else:
        records = [PackRecord(smiles) for smiles in table["SMILES"]]
    values = np.empty((len(table), 0))
    if targets:
        columns = {name: table[name].to_numpy() for name in physical}
        formulas = np.array([[symbols.count(one) for one in _ELEMENTS] for symbols in elements])
        values = pack_targets(columns, formulas, targets)
    return QM9Rows(records, [f"gdb_{number}" for number in table["Index"]], values)
