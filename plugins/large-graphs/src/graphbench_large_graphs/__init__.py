"""Linear attention, hop tokens and re-tuned message passing for graphs of any size; graphs stay independent."""

from graphbench_large_graphs.adv_difformer import AdvDIFFormer
from graphbench_large_graphs.difformer import DIFFormer
from graphbench_large_graphs.gcnii import GCNII
from graphbench_large_graphs.linear import linear_attention
from graphbench_large_graphs.nagphormer import NAGphormer
from graphbench_large_graphs.nodeformer import NodeFormer
from graphbench_large_graphs.polynormer import Polynormer
from graphbench_large_graphs.sgformer import SGFormer
from graphbench_large_graphs.tuned_gnn import TunedGNN

__all__ = [
    "GCNII",
    "AdvDIFFormer",
    "DIFFormer",
    "NAGphormer",
    "NodeFormer",
    "Polynormer",
    "SGFormer",
    "TunedGNN",
    "linear_attention",
]
