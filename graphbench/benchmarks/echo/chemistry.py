"""ECHO-Chem: partial charges and total energies of large molecules from density functional theory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from graphbench.benchmarks.base import Chunks, GraphBenchmark
from graphbench.benchmarks.echo import specs
from graphbench.benchmarks.echo.files import addresses, read_part
from graphbench.contracts.table import NODE
from graphbench.errors import check_choice

ChemTarget = Literal["charge", "energy"]

_ADVICE = "Without a network, QM9 with source=qm9pack has quantum-chemical targets of small molecules."


class ECHOChem(GraphBenchmark):
    """ECHO-Chem: the partial charge of every atom, or the total energy of a molecule, of about 200,000 molecules.

    This is the chemical half of ECHO (Miglior et al., ICLR 2026, arXiv 2512.17762): molecules of ChEMBL with diameters
    from 17 to 40, computed with B3LYP. The authors' files are train_data.pt, val_data.pt and test_data.pt in
    `root`/ECHO/echo-chem/charge (or energy): lists of PyG's `Data` with `x [n, 2]`, atomic number and distance from the
    centroid, `edge_attr [m, 2]`, type and length of the bond, and `y`, whose first column is the target. All columns
    are read as numbers, as in the authors' models. Reading the files runs no code from them.

    The files contain log10 of an energy: models train on it, and scores are in the unit of the energy, as published.
    That unit, the dropped sign, and the number of molecules in each split could not be established. Charges are in
    elementary charges; published errors are in 10^-3 e. For the authors' loss see `ECHOSynth`.

    Args:
        target: charge or energy.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: there is no such target.
    """

    spec = specs.ECHO_CHEM

    def __init__(self, target: ChemTarget = "charge", **options: Any) -> None:
        super().__init__(**options)
        check_choice("target", target, get_args(ChemTarget))
        self.target = target
        if target == "energy":
            self.spec = replace(
                type(self).spec, task="graph-regression", target_names=("energy",), target_units=("",),
                log10_targets=(True,),
            )  # fmt: skip

    @property
    def _folder(self) -> str:
        return f"echo-chem/{self.target}"

    def source_key(self) -> dict[str, Any]:
        """Return the addresses of the files."""
        return {"addresses": list(addresses(self._folder).values())}

    def read(self) -> Mapping[str, Chunks]:
        """Fetch and read the files."""
        is_energy = self.target == "energy"
        return read_part(
            self._folder,
            Path(self.root),
            lambda y: 10 ** y[:, 0] if is_energy else y[:, 0],
            self.spec.level or NODE,
            _ADVICE,
        )
