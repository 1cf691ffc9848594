"""Graphs of the four kinds that the constructions are tested on."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import pytest
import torch
from rdkit import Chem

from graphbench import GraphTable
from graphbench_linear_transformer.graphs import incidence_matrix, sample_incidence

#: Caffeine: rings and branches; its smallest eigenvalue is well below 1.
SMILES = "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"


def random_edges():
    graph = nx.connected_watts_strogatz_graph(14, 4, 0.4, seed=3)
    return torch.tensor(list(graph.edges)).t(), 14


def molecule_edges():
    molecule = Chem.MolFromSmiles(SMILES)
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    return torch.tensor(bonds).t(), molecule.GetNumAtoms()


def incidence_of(name):
    generator = torch.Generator().manual_seed(0)
    if name in ("FC", "CSL"):
        return sample_incidence(name, 1, generator=generator)[0]
    edges, num_nodes = random_edges() if name == "random" else molecule_edges()
    resistance = torch.exp(torch.rand(edges.shape[1], generator=generator)) if name == "random" else None
    return incidence_matrix(edges, num_nodes, resistance)


@pytest.fixture(params=["FC", "CSL", "random", "molecule"])
def graph(request):
    """One graph with everything that tests compare against: B, L, its eigenvalues and eigenvectors, demands."""
    incidence = incidence_of(request.param)
    laplacian = incidence @ incidence.mT
    values, vectors = torch.linalg.eigh(laplacian)
    demands = torch.randn(len(laplacian), 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return SimpleNamespace(
        name=request.param,
        incidence=incidence,
        laplacian=laplacian,
        values=values,
        vectors=vectors,
        lambda_min=float(values[1]),
        lambda_max=float(values[-1]),
        demands=demands - demands.mean(0),
        function=lambda f: vectors[:, 1:] @ torch.diag(f(values[1:])) @ vectors[:, 1:].mT,
    )


@pytest.fixture
def batch():
    """Return graphs of 5, 1, 9, 4, 12 and 3 nodes; some edges are repeated or loops, and two graphs have none."""
    generator = torch.Generator().manual_seed(1)
    graphs = []
    for n in (5, 1, 9, 4, 12, 3):
        edges = torch.randint(0, n, (2, 0 if n in (1, 3) else 2 * n), generator=generator)
        graphs.append({"num_nodes": n, "edge_index": edges})
    return GraphTable.from_graphs(graphs).batch(range(len(graphs)))
