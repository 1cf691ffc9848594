"""Molecules drawn out of their SMILES."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
from PIL import Image

from graphbench.diagnostics.figures.molecules import molecule_png


def test_a_molecule_is_a_picture_of_its_size_with_ink():
    picture = np.asarray(Image.open(io.BytesIO(molecule_png("c1ccccc1O", 200, 100))).convert("L"))
    assert picture.shape == (100, 200)
    assert 0.005 < (picture < 128).mean() < 0.3


def test_what_is_no_molecule_has_none():
    assert molecule_png("C1CC") is None
    assert molecule_png("") is None


def test_nothing_heavy_is_imported():
    code = "import sys, graphbench.diagnostics.figures.molecules; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
