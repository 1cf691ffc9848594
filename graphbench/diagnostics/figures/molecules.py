"""Molecules on paper, out of their SMILES; nothing here needs torch."""

from __future__ import annotations

from typing import Any

from rdkit import Chem, rdBase

from graphbench.errors import BadInput


def rdkit_drawing() -> Any:
    """RDKit's module that draws molecules; imported late, since it needs libraries that small systems lack.

    Raises:
        BadInput: a shared library is missing.
    """
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        raise BadInput(
            f"RDKit cannot draw molecules here: {error}. On Debian: apt-get install libxrender1 libxext6"
        ) from error
    return rdMolDraw2D


def molecule_png(smiles: str, width: int = 300, height: int = 220) -> bytes | None:
    r"""Render a molecule as RDKit depicts it, as a PNG; None where RDKit cannot read it.

    Examples:
        >>> molecule_png("CCO")[:4], molecule_png("C1CC")
        (b'\x89PNG', None)
    """
    drawing = rdkit_drawing()
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or not molecule.GetNumAtoms():
        return None
    drawer = drawing.MolDraw2DCairo(width, height)
    drawer.drawOptions().padding = 0.06
    drawing.PrepareAndDrawMolecule(drawer, molecule)
    drawer.FinishDrawing()
    return drawer.GetDrawingText()
