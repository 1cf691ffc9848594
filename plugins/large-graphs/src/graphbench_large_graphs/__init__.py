"""Linear attention, hop tokens and re-tuned message passing for graphs of any size, each graph on its own."""

from graphbench_large_graphs.adv_difformer import AdvDIFFormer as AdvDIFFormer
from graphbench_large_graphs.difformer import DIFFormer as DIFFormer
from graphbench_large_graphs.gcnii import GCNII as GCNII
from graphbench_large_graphs.linear import linear_attention as linear_attention
from graphbench_large_graphs.nagphormer import NAGphormer as NAGphormer
from graphbench_large_graphs.nodeformer import NodeFormer as NodeFormer
from graphbench_large_graphs.polynormer import Polynormer as Polynormer
from graphbench_large_graphs.sgformer import SGFormer as SGFormer
from graphbench_large_graphs.tuned_gnn import TunedGNN as TunedGNN

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
