"""Descriptors against RDKit called directly."""

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator

from graphbench.benchmarks.molecules.chemistry.descriptors import DESCRIPTOR_SETS, compute_descriptors, descriptor_names
from graphbench.data import progress

SMILES = ["CCO", "c1ccccc1C(=O)O", "[Na+].[Cl-]", "C[C@H](N)C(=O)O"]


def test_numbers_are_those_of_rdkit():
    values, names = compute_descriptors("rdkit2d", SMILES), descriptor_names("rdkit2d")
    for row, smiles in zip(values, SMILES, strict=True):
        expected = Descriptors.CalcMolDescriptors(Chem.MolFromSmiles(smiles))
        np.testing.assert_allclose(row, [expected[name] for name in names], rtol=1e-5, atol=1e-6)


def test_counts_are_those_of_rdkit():
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    expected = [generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(smiles)) for smiles in SMILES]
    np.testing.assert_array_equal(compute_descriptors("morgan", SMILES), expected)


@pytest.mark.parametrize("kind", DESCRIPTOR_SETS)
def test_no_molecules_have_the_same_columns(kind):
    assert compute_descriptors(kind, []).shape == (0, len(descriptor_names(kind)))
    assert compute_descriptors(kind, ["C"] * 300, workers=1).shape == (300, len(descriptor_names(kind)))


def test_a_part_of_an_input_prints_no_lines_of_its_own(monkeypatch, caplog):
    monkeypatch.setattr(progress, "DELAY", -1.0)
    caplog.set_level("INFO")
    many = compute_descriptors("morgan", 80 * SMILES)
    assert caplog.messages[0] == "Computing morgan descriptors: 1 of 2 chunks so far"
    caplog.clear()
    np.testing.assert_array_equal(compute_descriptors("morgan", 80 * SMILES, workers=1), many)
    assert not caplog.messages


def test_what_a_metal_leaves_undefined_is_nan_and_nothing_is_infinite():
    values = compute_descriptors("rdkit2d", ["[Os]", "C" * 400])
    assert not np.isinf(values).any()
