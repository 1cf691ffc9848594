"""The targets of QM9: names, units, where each stands in the published files, and how its unit is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphbench.errors import BadInput, check_choice

#: Computed from the molecule alone, see `graphbench.benchmarks.molecules.chemistry.properties`.
CONSTRAINED_SOLUBILITY = "constrained_solubility"

HARTREE = 27.211386246  # eV (CODATA 2018)
KCAL_MOL = 0.04336414  # eV, as PyG takes it

_Dimension = Literal["hartree", "kcal/mol", "other"]
_FACTORS: dict[_Dimension, float] = {"hartree": HARTREE, "kcal/mol": KCAL_MOL, "other": 1.0}


@dataclass(frozen=True)
class QM9Target:
    """One physical target (Ramakrishnan et al., Scientific Data 1, 140022 (2014), Table 3).

    Args:
        unit: of the target here; all energies are in eV, as in PyG.
        csv_column: in `gdb9.sdf.csv`.
        csv_dimension: what that column is in.
        pack_column: in the files of qm9pack, where energies are in hartree.
        atom_energies: hartree of a free H, C, N, O and F atom, for atomisation energies; qm9pack has none, so they
            are its total energy less these.
    """

    unit: str
    csv_column: str
    pack_column: str
    csv_dimension: _Dimension = "other"
    atom_energies: tuple[float, ...] = ()

    @property
    def pack_factor(self) -> float:
        """From the unit in qm9pack to `unit`."""
        return HARTREE if self.unit == "eV" else 1.0

    @property
    def csv_factor(self) -> float:
        """From the unit in `gdb9.sdf.csv` to `unit`."""
        return _FACTORS[self.csv_dimension]


def _energy(csv_column: str, pack_column: str) -> QM9Target:
    return QM9Target("eV", csv_column, pack_column, "hartree")


def _atomisation(csv_column: str, pack_column: str, *atom_energies: float) -> QM9Target:
    return QM9Target("eV", csv_column, pack_column, "kcal/mol", atom_energies)


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
    "u0_atom": _atomisation(
        "u0_atom", "InternalEnergy_0K_au", -0.500273, -37.846772, -54.583861, -75.064579, -99.718730
    ),
    "u298_atom": _atomisation(
        "u298_atom", "InternalEnergy_298K_au", -0.498857, -37.845355, -54.582445, -75.063163, -99.717314
    ),
    "h298_atom": _atomisation(
        "h298_atom", "Enthalphy_298K_au", -0.497912, -37.844411, -54.581501, -75.062219, -99.716370
    ),
    "g298_atom": _atomisation(
        "g298_atom", "GibbsFreeEnergy_298K_au", -0.510927, -37.861317, -54.598897, -75.079532, -99.733544
    ),
    "rotational_a": QM9Target("GHz", "A", "RotA_GHz"),
    "rotational_b": QM9Target("GHz", "B", "RotB_GHz"),
    "rotational_c": QM9Target("GHz", "C", "RotC_GHz"),
}
_ELEMENTS = ("H", "C", "N", "O", "F")


def csv_targets(columns: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Targets `[molecules, T]`, float64, out of the columns of `gdb9.sdf.csv`."""
    targets = [QM9_TARGETS[name] for name in names]
    return np.stack([columns[target.csv_column] * target.csv_factor for target in targets], axis=1)


def pack_targets(columns: Mapping[str, np.ndarray], formulas: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Targets `[molecules, T]`, float64, out of the columns of qm9pack.

    Args:
        columns: name -> values `[molecules]`.
        formulas: atoms of each element H, C, N, O, F `[molecules, 5]`.
        names: of targets.
    """
    found = []
    for name in names:
        target = QM9_TARGETS[name]
        values = columns[target.pack_column]
        if target.atom_energies:
            values = values - formulas @ np.array(target.atom_energies)
        found.append(values * target.pack_factor)
    return np.stack(found, axis=1)


def count_elements(elements: Sequence[str]) -> list[int]:
    """Atoms of H, C, N, O and F among the symbols of a molecule."""
    return [elements.count(symbol) for symbol in _ELEMENTS]


def check_physical(targets: Sequence[str]) -> None:
    """Refuse targets that QM9 does not have.

    Args:
        targets: names of what is measured or computed, one or several.

    Raises:
        BadInput: names all that there are.
    """
    if CONSTRAINED_SOLUBILITY in targets:
        raise BadInput(f"target={CONSTRAINED_SOLUBILITY} is computed: it must be the only target.")
    if not targets or len(set(targets)) != len(targets):
        raise BadInput(f"target: expected one or several distinct targets, got {list(targets)}.")
    for name in targets:
        check_choice("target", name, (*QM9_TARGETS, CONSTRAINED_SOLUBILITY))
