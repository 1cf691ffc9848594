"""The linear graph transformer that computes electric flow, for graphbench."""

from graphbench_linear_transformer import bounds as bounds
from graphbench_linear_transformer import constructions as constructions
from graphbench_linear_transformer import graphs as graphs
from graphbench_linear_transformer.encoder import LinearTransformerPE as LinearTransformerPE
from graphbench_linear_transformer.encoder import Positions as Positions
from graphbench_linear_transformer.encoder import eigenvector_loss as eigenvector_loss
from graphbench_linear_transformer.encoder import sign_invariant_errors as sign_invariant_errors
from graphbench_linear_transformer.incidence import DenseIncidence as DenseIncidence
from graphbench_linear_transformer.incidence import EvolvingIncidence as EvolvingIncidence
from graphbench_linear_transformer.incidence import Incidence as Incidence
from graphbench_linear_transformer.incidence import SparseIncidence as SparseIncidence
from graphbench_linear_transformer.layers import BlockLayer as BlockLayer
from graphbench_linear_transformer.layers import EfficientLayer as EfficientLayer
from graphbench_linear_transformer.layers import GeneralLayer as GeneralLayer
from graphbench_linear_transformer.layers import MolecularLayer as MolecularLayer
from graphbench_linear_transformer.resistance import effective_resistances as effective_resistances
from graphbench_linear_transformer.synthetic import LinearTransformer as LinearTransformer
from graphbench_linear_transformer.transformers import BlockTransformer as BlockTransformer
from graphbench_linear_transformer.transformers import EfficientTransformer as EfficientTransformer
from graphbench_linear_transformer.transformers import GeneralTransformer as GeneralTransformer
from graphbench_linear_transformer.transformers import MolecularTransformer as MolecularTransformer

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
