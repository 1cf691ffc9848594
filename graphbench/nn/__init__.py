"""Layers that several architectures share; plug-ins import them from here.

Names are loaded on first use, so that a plug-in pays only for what it takes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.nn.attention import MultiHeadAttention as MultiHeadAttention
    from graphbench.nn.attention import compute_dtype as compute_dtype
    from graphbench.nn.attention import mixed_values as mixed_values
    from graphbench.nn.dense import DenseLayout as DenseLayout
    from graphbench.nn.features import Categorical as Categorical
    from graphbench.nn.features import EdgeEncoder as EdgeEncoder
    from graphbench.nn.features import FeatureEncoder as FeatureEncoder
    from graphbench.nn.features import NodeEncoder as NodeEncoder
    from graphbench.nn.feed_forward import FeedForward as FeedForward
    from graphbench.nn.gated_gcn import EdgeGate as EdgeGate
    from graphbench.nn.gated_gcn import GatedGCNLayer as GatedGCNLayer
    from graphbench.nn.gps import GlobalAttention as GlobalAttention
    from graphbench.nn.gps import GPSBackbone as GPSBackbone
    from graphbench.nn.gps import GPSLayer as GPSLayer
    from graphbench.nn.gps import TransformerAttention as TransformerAttention
    from graphbench.nn.gps import number_traces as number_traces
    from graphbench.nn.graphormer import EMBEDDING_STD as EMBEDDING_STD
    from graphbench.nn.graphormer import FAIRSEQ_TABLES as FAIRSEQ_TABLES
    from graphbench.nn.graphormer import CentralityEmbedding as CentralityEmbedding
    from graphbench.nn.graphormer import PairBias as PairBias
    from graphbench.nn.graphormer import PathEdgeTerm as PathEdgeTerm
    from graphbench.nn.graphormer import ReleasedTables as ReleasedTables
    from graphbench.nn.graphormer import TokenReadout as TokenReadout
    from graphbench.nn.heads import DotProductHead as DotProductHead
    from graphbench.nn.heads import HeadConfig as HeadConfig
    from graphbench.nn.heads import MLPHead as MLPHead
    from graphbench.nn.heads import Pooling as Pooling
    from graphbench.nn.local import EDGE_LAYERS as EDGE_LAYERS
    from graphbench.nn.local import ConvLayer as ConvLayer
    from graphbench.nn.local import LocalName as LocalName
    from graphbench.nn.local import make_local_layer as make_local_layer
    from graphbench.nn.norms import BatchNorm as BatchNorm
    from graphbench.nn.norms import NormName as NormName
    from graphbench.nn.norms import make_norm as make_norm
    from graphbench.nn.positional import DegreeEncoder as DegreeEncoder
    from graphbench.nn.positional import ESLapPEEncoder as ESLapPEEncoder
    from graphbench.nn.positional import LapPEEncoder as LapPEEncoder
    from graphbench.nn.positional import RWSEEncoder as RWSEEncoder
    from graphbench.nn.positional import SignNetEncoder as SignNetEncoder

_HOME = {
    "BatchNorm": "norms",
    "Categorical": "features",
    "CentralityEmbedding": "graphormer",
    "ConvLayer": "local",
    "DegreeEncoder": "positional",
    "DenseLayout": "dense",
    "EDGE_LAYERS": "local",
    "DotProductHead": "heads",
    "EMBEDDING_STD": "graphormer",
    "ESLapPEEncoder": "positional",
    "EdgeEncoder": "features",
    "EdgeGate": "gated_gcn",
    "FAIRSEQ_TABLES": "graphormer",
    "FeatureEncoder": "features",
    "FeedForward": "feed_forward",
    "GPSBackbone": "gps",
    "GPSLayer": "gps",
    "GatedGCNLayer": "gated_gcn",
    "GlobalAttention": "gps",
    "HeadConfig": "heads",
    "LapPEEncoder": "positional",
    "LocalName": "local",
    "MLPHead": "heads",
    "MultiHeadAttention": "attention",
    "NodeEncoder": "features",
    "NormName": "norms",
    "PairBias": "graphormer",
    "PathEdgeTerm": "graphormer",
    "Pooling": "heads",
    "RWSEEncoder": "positional",
    "ReleasedTables": "graphormer",
    "SignNetEncoder": "positional",
    "TokenReadout": "graphormer",
    "TransformerAttention": "gps",
    "compute_dtype": "attention",
    "make_local_layer": "local",
    "make_norm": "norms",
    "mixed_values": "attention",
    "number_traces": "gps",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
