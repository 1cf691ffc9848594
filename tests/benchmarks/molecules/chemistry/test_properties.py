"""Penalised logP against the sum of terms from RDKit's Crippen module, its contributed scorer and networkx."""

import runpy
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from rdkit import Chem, RDConfig
from rdkit.Chem import Crippen

from graphbench.benchmarks.molecules.chemistry import properties
from graphbench.benchmarks.molecules.chemistry.properties import CONSTANTS, combine_terms, logp_terms, penalized_logp
from graphbench.errors import MissingData

SCORER = runpy.run_path(str(Path(RDConfig.RDContribDir, "SA_Score", "sascorer.py")))
SMILES = ("CCN(Cc1ccc(OC)c(OC)c1)C(=O)c1ccsc1", "C1CCCCCCCC1", "CCO", "C1CC2CCC1CC2", "O=C1CCCCCCCCC(=O)OCC1")


@pytest.mark.parametrize("smiles", SMILES)
@pytest.mark.parametrize("constants", ["zinc-full", "zinc-train"])
def test_equals_the_sum_of_normalised_terms(smiles, constants):
    mol = Chem.MolFromSmiles(smiles)
    longest = max((len(cycle) for cycle in nx.cycle_basis(nx.Graph(Chem.GetAdjacencyMatrix(mol)))), default=0)
    terms = (Crippen.MolLogP(mol), -SCORER["calculateScore"](mol), -float(max(longest - 6, 0)))
    known = CONSTANTS[constants]
    expected = sum((term - mean) / std for term, mean, std in zip(terms, known.mean, known.std, strict=True))
    assert penalized_logp(mol, "cycle_basis", constants) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("smiles", "penalty"), [("CCO", 0), ("c1ccccc1", 0), ("C1CCCCCC1", -1), ("C1CCCCCCCC1", -3)])
@pytest.mark.parametrize("ring_term", ["smallest_rings", "cycle_basis"])
def test_ring_term_counts_atoms_beyond_six(smiles, penalty, ring_term):
    assert logp_terms(Chem.MolFromSmiles(smiles), ring_term)[2] == penalty


def test_ring_terms_differ_where_rings_share_bonds():
    """Bicyclo[2.2.2]octane: every smallest ring has six atoms, a basis of cycles may contain one of eight."""
    mol = Chem.MolFromSmiles("C1CC2CCC1CC2")
    orders = [np.random.RandomState(seed).permutation(8).tolist() for seed in range(20)]
    shuffled = [Chem.RenumberAtoms(mol, order) for order in orders]
    assert {logp_terms(m, "smallest_rings")[2] for m in shuffled} == {0.0}
    assert {logp_terms(m, "cycle_basis")[2] for m in shuffled} <= {0.0, -2.0}


def test_combining_terms_is_vectorised():
    mols = [Chem.MolFromSmiles(smiles) for smiles in SMILES]
    together = combine_terms(np.array([logp_terms(mol) for mol in mols]))
    assert together == pytest.approx([penalized_logp(mol) for mol in mols], abs=1e-12)


def test_missing_scorer_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(properties.RDConfig, "RDContribDir", str(tmp_path))
    with pytest.raises(MissingData, match=r"sascorer\.py is missing"):
        properties.sa_scorer.__wrapped__()
