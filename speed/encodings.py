"""Compare graphs per second of our encodings with the usual transforms, which process one graph at a time.

Ours encode all graphs in one call, as the store does. Baselines: PyG's `AddLaplacianEigenvectorPE`, `AddRandomWalkPE`
and `degree`, SciPy's all-pairs shortest paths, NumPy's pseudo-inverse. Both sides start from graphs in memory and
alternate in each round, so a busy machine slows both; the table shows medians and the median of the ratios.

    python speed/encodings.py --molecules 1000 --communities 200 --rounds 5 --threads 1
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rdkit import Chem, RDConfig, RDLogger
from scipy.sparse.csgraph import shortest_path
from timing import in_turns, medians, note
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
from torch_geometric.utils import degree, get_laplacian, to_dense_adj, to_scipy_sparse_matrix

from graphbench import GraphTable
from graphbench.contracts import Encoding
from graphbench.encodings import RWSE, Degree, EffectiveResistance, LapPE, ShortestPaths

#: SMILES files, the first that exists is read: ZINC molecules next to the repository, else RDKit's sample of NCI.
SMILES_FILES = (
    Path(__file__).parents[2] / "shared/data/zinc/val.smi",
    Path(RDConfig.RDDataDir) / "NCI/first_5K.smi",
)

Baseline = Callable[[Data], object]


def molecules(count: int) -> list[Data]:
    """Return the first `count` molecules of the SMILES file with more than 8 atoms: PyG's LapPE(8) needs these."""
    path = next(path for path in SMILES_FILES if path.exists())
    print(f"Molecules: {path.name}")
    RDLogger.DisableLog("rdApp.*")
    parsed = (Chem.MolFromSmiles(line.split()[0]) for line in path.read_text().splitlines() if line.strip())
    return [_bond_graph(mol) for mol in islice((mol for mol in parsed if mol and mol.GetNumAtoms() > 8), count)]


def _bond_graph(mol: Chem.Mol) -> Data:
    bonds = torch.tensor([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]).t()
    return Data(edge_index=torch.cat([bonds, bonds.flip(0)], dim=1), num_nodes=mol.GetNumAtoms())


def communities(count: int) -> list[Data]:
    """Return stochastic block models as in CLUSTER: 6 blocks of 5 to 35 nodes, p = 0.55 within, q = 0.25 between."""
    torch.manual_seed(0)
    graphs = []
    for _ in range(count):
        block = torch.repeat_interleave(torch.arange(6), torch.randint(5, 36, (6,)))
        linked = torch.rand(len(block), len(block)) < torch.where(block[:, None] == block, 0.55, 0.25)
        upper = linked.triu(1)
        graphs.append(Data(edge_index=(upper | upper.t()).nonzero().t().contiguous(), num_nodes=len(block)))
    return graphs


def scipy_distances(graph: Data) -> object:
    """Return all-pairs distances by breadth-first search from every node."""
    adjacency = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes).tocsr()
    return shortest_path(adjacency, unweighted=True)


def numpy_resistances(graph: Data) -> object:
    """Return effective resistances from the dense pseudo-inverse in float64."""
    index, weight = get_laplacian(graph.edge_index, dtype=torch.float64, num_nodes=graph.num_nodes)
    inverse = np.linalg.pinv(to_dense_adj(index, edge_attr=weight, max_num_nodes=graph.num_nodes)[0].numpy())
    own = np.diag(inverse)
    return own[:, None] + own[None, :] - 2 * inverse


def degrees(graph: Data) -> object:
    """Return degrees in both directions."""
    return [degree(end, graph.num_nodes, dtype=torch.int64) for end in graph.edge_index]


PAIRS: tuple[tuple[Encoding, str, Baseline], ...] = (
    (LapPE(8), "PyG AddLaplacianEigenvectorPE(8)", AddLaplacianEigenvectorPE(8, is_undirected=True)),
    (RWSE(20), "PyG AddRandomWalkPE(20)", AddRandomWalkPE(20)),
    (Degree(), "PyG degree, both ways", degrees),
    (ShortestPaths(), "SciPy shortest_path", scipy_distances),
    (ShortestPaths(with_edges=True), "SciPy shortest_path, no edges", scipy_distances),
    (EffectiveResistance(), "NumPy pinv", numpy_resistances),
)


def compare(name: str, graphs: Sequence[Data], rounds: int) -> None:
    """Print one row of the table per encoding."""
    table = GraphTable.from_graphs([{"num_nodes": graph.num_nodes, "edge_index": graph.edge_index} for graph in graphs])
    print(f"\n{name}: {len(graphs)} graphs, {float(table.num_nodes.double().mean()):.1f} nodes and "
          f"{float(table.num_edges.double().mean()):.0f} directed edges on average")  # fmt: skip
    print(f"{'encoding':<45}{'graphs/s':>10}  {'baseline':<34}{'graphs/s':>10}{'ratio':>8}")
    for encoding, baseline_name, baseline in PAIRS:
        encoding.compute(table.slice(0, 10))
        calls = {
            "ours": lambda encoding=encoding: encoding.compute(table),
            baseline_name: lambda baseline=baseline: [baseline(graph) for graph in graphs],
        }
        seconds = in_turns(calls, rounds, warm_up=0)
        ratio = 1 / note(f"{name}, {encoding.name}", "ours", baseline_name, seconds)
        rates = [len(graphs) / middle for middle in medians(seconds).values()]
        options = ", ".join(f"{key}={value}" for key, value in encoding.parameters().items() if value)
        label = f"{encoding.name}({options})".replace(", normalization=none", "")
        print(f"{label:<45}{rates[0]:>10,.0f}  {baseline_name:<34}{rates[1]:>10,.0f}{ratio:>7.1f}x")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=1000, help="number of molecules")
    parser.add_argument("--communities", type=int, default=200, help="number of CLUSTER-like graphs")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; each runs both sides once")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, torch {torch.__version__}")
    compare("Molecules", molecules(options.molecules), options.rounds)
    compare("CLUSTER-like", communities(options.communities), options.rounds)


if __name__ == "__main__":
    main()
