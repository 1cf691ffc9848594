"""Penalised logP ("constrained solubility"), the target of ZINC: definition, terms and constants."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
from rdkit import Chem, RDConfig
from rdkit.Chem import rdMolDescriptors

from graphbench.data.package_files import load_module

RingTerm = Literal["smallest_rings", "cycle_basis"]
ConstantsName = Literal["zinc-full", "zinc-train"]

_FREE_RING_SIZE = 6  # rings up to this size have no penalty


@dataclass(frozen=True)
class Constants:
    """Mean and standard deviation of the three terms: logP, minus the synthetic accessibility, ring penalty."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


#: "zinc-full": over all 249,456 molecules, with the software of 2018; these values are widely copied (You et al., 2018,
#: GCPN). "zinc-train": over the 220,011 training molecules, with RDKit 2026.9.
CONSTANTS: dict[ConstantsName, Constants] = {
    "zinc-full": Constants(
        (2.4570953396190123, -3.0525811293166134, -0.0485696876403053),
        (1.434324401111988, 0.8335207024513095, 0.2860212110245455),
    ),
    "zinc-train": Constants((2.4577998, -3.0535715, -0.0488839), (1.4334181, 0.8346995, 0.2890764)),
}


@functools.cache
def sa_scorer() -> ModuleType:
    """Load RDKit's contributed scorer of synthetic accessibility (Ertl and Schuffenhauer, 2009) with its table."""
    scorer = load_module(Path(RDConfig.RDContribDir, "SA_Score", "sascorer.py"), "rdkit_contrib_sascorer")
    scorer.readFragmentScores()
    return scorer


def logp_terms(mol: Chem.Mol, ring_term: RingTerm = "smallest_rings") -> tuple[float, float, float]:
    """Compute the terms of penalised logP before normalisation: Crippen's logP, -SA score, -max(longest ring - 6, 0).

    The longest ring is from RDKit's `smallest_rings`, a property of the molecule, or from networkx's `cycle_basis` (as
    in the first publications), which depends on the order of atoms and networkx's version, and differs in 0.5% of ZINC.
    """
    rings = mol.GetRingInfo().AtomRings()
    if ring_term == "cycle_basis":
        import networkx as nx  # slow to import and seldom needed

        rings = nx.cycle_basis(nx.Graph(Chem.GetAdjacencyMatrix(mol)))
    penalty = max(max(map(len, rings), default=0) - _FREE_RING_SIZE, 0)
    return rdMolDescriptors.CalcCrippenDescriptors(mol)[0], -sa_scorer().calculateScore(mol), -float(penalty)


def combine_terms(terms: np.ndarray, constants: ConstantsName = "zinc-full") -> np.ndarray:
    """Sum the normalised terms, `sum_k (terms[:, k] - mean_k) / std_k`: `[molecules, 3]` to `[molecules]`."""
    chosen = CONSTANTS[constants]
    return ((terms - np.array(chosen.mean)) / np.array(chosen.std)).sum(axis=1)


def penalized_logp(
    mol: Chem.Mol, ring_term: RingTerm = "smallest_rings", constants: ConstantsName = "zinc-full"
) -> float:
    """Compute the penalised logP of a sanitised molecule, `z(logP) + z(-SA) + z(-ring penalty)`.

    Gómez-Bombarelli et al., 2018; Kusner et al., 2017; normalised as in Jin et al., 2018.
    """
    return float(combine_terms(np.array([logp_terms(mol, ring_term)]), constants)[0])
