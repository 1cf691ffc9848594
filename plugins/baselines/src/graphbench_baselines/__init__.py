"""Message passing networks, GT, SAN, GPS, Exphormer, Graph-Mamba, GRIT, Graphormer, SAT and Sequoia."""

from graphbench_baselines.exphormer import Exphormer as Exphormer
from graphbench_baselines.gnn_plus import GNNPlus as GNNPlus
from graphbench_baselines.gps import GPS as GPS
from graphbench_baselines.graph_mamba import GraphMamba as GraphMamba
from graphbench_baselines.graphormer import Graphormer as Graphormer
from graphbench_baselines.grit import GRIT as GRIT
from graphbench_baselines.gt import GT as GT
from graphbench_baselines.message_passing import GAT as GAT
from graphbench_baselines.message_passing import GCN as GCN
from graphbench_baselines.message_passing import GIN as GIN
from graphbench_baselines.message_passing import GINE as GINE
from graphbench_baselines.message_passing import GatedGCN as GatedGCN
from graphbench_baselines.message_passing import GraphSAGE as GraphSAGE
from graphbench_baselines.ogb_gnn import OGBGNN as OGBGNN
from graphbench_baselines.san import SAN as SAN
from graphbench_baselines.san import TransformerLapPE as TransformerLapPE
from graphbench_baselines.sat import SAT as SAT
from graphbench_baselines.sequoia import Sequoia as Sequoia
from graphbench_baselines.spn import SPN as SPN
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
    "SAN",
    "SAT",
    "SPN",
    "Exphormer",
    "GNNPlus",
    "GatedGCN",
    "GraphMamba",
    "GraphSAGE",
    "Graphormer",
    "RandomWalkPE",
    "Sequoia",
    "TransformerLapPE",
]
