"""Message passing, GT, SAN, GPS, Exphormer, Graph-Mamba, GRIT, PPGT, Graphormer, SAT, Sequoia, SigGate-GT and more."""

from graphbench_baselines.exphormer import Exphormer
from graphbench_baselines.gps import GPS
from graphbench_baselines.graph_mamba import GraphMamba
from graphbench_baselines.graphormer import Graphormer
from graphbench_baselines.grit import GRIT
from graphbench_baselines.gt import GT
from graphbench_baselines.message_passing.classic import GAT, GCN, GIN, GINE, GatedGCN, GraphSAGE
from graphbench_baselines.message_passing.gnn_plus import GNNPlus
from graphbench_baselines.message_passing.ogb_gnn import OGBGNN
from graphbench_baselines.message_passing.pna import PNA
from graphbench_baselines.message_passing.spn import SPN
from graphbench_baselines.neural_walker import NeuralWalker
from graphbench_baselines.ppgt import PPGT
from graphbench_baselines.san import SAN, TransformerLapPE
from graphbench_baselines.sat import SAT
from graphbench_baselines.sequoia import Sequoia
from graphbench_baselines.siggate import SigGateGT
from graphbench_baselines.structure import RandomWalkPE

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GINE",
    "GPS",
    "GRIT",
    "GT",
    "OGBGNN",
    "PNA",
    "PPGT",
    "SAN",
    "SAT",
    "SPN",
    "Exphormer",
    "GNNPlus",
    "GatedGCN",
    "GraphMamba",
    "GraphSAGE",
    "Graphormer",
    "NeuralWalker",
    "RandomWalkPE",
    "Sequoia",
    "SigGateGT",
    "TransformerLapPE",
]
