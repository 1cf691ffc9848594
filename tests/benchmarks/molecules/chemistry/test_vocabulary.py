"""The literal vocabularies are those of OGB, of the published ZINC and of QM9."""

from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

from graphbench.benchmarks.molecules.chemistry.vocabulary import (
    OGB_ATOMS,
    OGB_BONDS,
    QM9_ATOM_TYPES,
    ZINC_ATOM_TYPES,
    ZINC_BOND_TYPES,
)


def test_sizes_are_those_of_the_installed_ogb():
    assert list(OGB_ATOMS.vocabularies) == get_atom_feature_dims()
    assert list(OGB_BONDS.vocabularies) == get_bond_feature_dims()
    assert (len(OGB_ATOMS.names), len(OGB_BONDS.names)) == (9, 3)


def test_zinc_has_28_distinct_atom_types_and_4_bond_types():
    assert len(set(ZINC_ATOM_TYPES)) == len(ZINC_ATOM_TYPES) == 28
    assert len(ZINC_BOND_TYPES) == 4


def test_qm9_has_the_15_atom_types_that_its_published_parameters_need():
    assert len(set(QM9_ATOM_TYPES)) == len(QM9_ATOM_TYPES) == 15
    assert {name.split()[0] for name in QM9_ATOM_TYPES} == {"C", "N", "O", "F"}
