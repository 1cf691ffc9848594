"""Message passing, GT, SAN, GPS, Exphormer, Graph-Mamba, GRIT, PPGT, Graphormer, SAT, Sequoia, SigGate-GT and more."""

from graphbench_baselines.exphormer import Exphormer as Exphormer
from graphbench_baselines.gps import GPS as GPS
from graphbench_baselines.graph_mamba import GraphMamba as GraphMamba
from graphbench_baselines.graphormer import Graphormer as Graphormer
from graphbench_baselines.grit import GRIT as GRIT
from graphbench_baselines.gt import GT as GT
from graphbench_baselines.message_passing.classic import GAT as GAT
from graphbench_baselines.message_passing.classic import GCN as GCN
from graphbench_baselines.message_passing.classic import GIN as GIN
from graphbench_baselines.message_passing.classic import GINE as GINE
from graphbench_baselines.message_passing.classic import GatedGCN as GatedGCN
from graphbench_baselines.message_passing.classic import GraphSAGE as GraphSAGE
from graphbench_baselines.message_passing.gnn_plus import GNNPlus as GNNPlus
from graphbench_baselines.message_passing.ogb_gnn import OGBGNN as OGBGNN
from graphbench_baselines.message_passing.pna import PNA as PNA
from graphbench_baselines.message_passing.spn import SPN as SPN
from graphbench_baselines.neural_walker import NeuralWalker as NeuralWalker
from graphbench_baselines.ppgt import PPGT as PPGT
from graphbench_baselines.san import SAN as SAN
from graphbench_baselines.san import TransformerLapPE as TransformerLapPE
from graphbench_baselines.sat import SAT as SAT
from graphbench_baselines.sequoia import Sequoia as Sequoia
from graphbench_baselines.siggate import SigGateGT as SigGateGT
from graphbench_baselines.structure import RandomWalkPE as RandomWalkPE

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
