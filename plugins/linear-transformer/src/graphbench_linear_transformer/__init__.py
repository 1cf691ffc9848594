"""The linear graph transformer that computes electric flow, for graphbench."""

from graphbench_linear_transformer import bounds, constructions, graphs
from graphbench_linear_transformer.encoder import (
    LinearTransformerPE,
    Positions,
    eigenvector_loss,
    sign_invariant_errors,
)
from graphbench_linear_transformer.incidence import DenseIncidence, EvolvingIncidence, Incidence, SparseIncidence
from graphbench_linear_transformer.layers import BlockLayer, EfficientLayer, GeneralLayer, MolecularLayer
from graphbench_linear_transformer.resistance import effective_resistances
from graphbench_linear_transformer.synthetic import LinearTransformer
from graphbench_linear_transformer.transformers import (
    BlockTransformer,
    EfficientTransformer,
    GeneralTransformer,
    MolecularTransformer,
)

__all__ = [
    "BlockLayer",
    "BlockTransformer",
    "DenseIncidence",
    "EfficientLayer",
    "EfficientTransformer",
    "EvolvingIncidence",
    "GeneralLayer",
    "GeneralTransformer",
    "Incidence",
    "LinearTransformer",
    "LinearTransformerPE",
    "MolecularLayer",
    "MolecularTransformer",
    "Positions",
    "SparseIncidence",
    "bounds",
    "constructions",
    "effective_resistances",
    "eigenvector_loss",
    "graphs",
    "sign_invariant_errors",
]
