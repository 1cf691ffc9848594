"""Draw molecules from their SMILES; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.colors import to_rgb
from rdkit import Chem, rdBase

from graphbench.errors import BadInput


def rdkit_drawing() -> Any:
    """Return RDKit's drawing module; imported late, since it needs libraries that small systems lack."""
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        raise BadInput(
            f"RDKit cannot draw molecules here: {error}. On Debian: apt-get install libxrender1 libxext6"
        ) from error
    return rdMolDraw2D


def molecule_svg(smiles: str, colours: Mapping[int, str], width: int = 300, height: int = 220) -> bytes | None:
    """Render a molecule as RDKit depicts it, as an SVG without background; None if RDKit cannot read it.

    Colours map atomic numbers to "#rrggbb"; 6 is also used for bonds and all elements not listed.

    Examples:
        >>> molecule_svg("CCO", {6: "#000001"})[:5], molecule_svg("C1CC", {6: "#000001"})
        (b'<?xml', None)
    """
    drawing = rdkit_drawing()
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or not molecule.GetNumAtoms():
        return None
    drawer = drawing.MolDraw2DSVG(width, height)
    options = drawer.drawOptions()
    options.padding = 0.06
    options.clearBackground = False
    options.flagCloseContactsDist = -1  # else red frames around atoms that are close in the drawing
    options.setAtomPalette({number: to_rgb(colour) for number, colour in {**colours, -1: colours[6]}.items()})
    drawing.PrepareAndDrawMolecule(drawer, molecule)
    drawer.FinishDrawing()
    return drawer.GetDrawingText().encode()
