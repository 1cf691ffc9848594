"""Molecules drawn from their SMILES."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree as ET

from graphbench.diagnostics.figures.molecules import molecule_svg

COLOURS = {6: "#000001", 8: "#ff0001"}


def elements(smiles):
    return list(ET.fromstring(molecule_svg(smiles, COLOURS, 200, 100)).iter())


def test_every_bond_is_drawn_in_the_colours_of_its_elements():
    """Phenol has seven bonds; half of the last has the colour of its oxygen. There is no background."""
    found = elements("c1ccccc1O")
    bonds = {match[0] for one in found if (match := re.match(r"bond-\d+", one.get("class", "")))}
    assert len(bonds) == 7
    colours = set(re.findall("#[0-9a-f]{6}", " ".join(v for one in found for v in one.attrib.values()).lower()))
    assert colours == set(COLOURS.values())
    assert not any(one.tag.endswith("rect") for one in found)


def test_elements_without_a_colour_have_that_of_carbon():
    values = " ".join(value for one in elements("C[Se]N") for value in one.attrib.values()).lower()
    assert set(re.findall("#[0-9a-f]{6}", values)) == {COLOURS[6]}


def test_what_is_no_molecule_has_none():
    assert molecule_svg("C1CC", COLOURS) is None
    assert molecule_svg("", COLOURS) is None


def test_nothing_heavy_is_imported():
    code = "import sys, graphbench.diagnostics.figures.molecules; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
