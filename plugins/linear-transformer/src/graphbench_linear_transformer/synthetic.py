"""The linear transformer as a model that maps resistances and demands to the answer.

"Graph Transformers Dream of Electric Flow" (arXiv 2410.16699), sections 3.5 and 4.1 and figures 1, 2 and 15.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout
from graphbench_linear_transformer.incidence import SparseIncidence
from graphbench_linear_transformer.transformers import EfficientTransformer, FeatureNorm, GeneralTransformer

#: "general": equation (3) with full matrices. "efficient": equation (7).
TrainedForm = Literal["general", "efficient"]
#: Weights of a fresh model. "gaussian": all sampled with standard deviation 0.1. "near_identity": W^Q = W^K = I, and
#: W^V and W^R a tenth of the sampled values. "identity": W^Q = W^K = I and W^V = W^R = 0.
Start = Literal["gaussian", "near_identity", "identity"]
_SHARE = {"near_identity": 0.1, "identity": 0.0}
#: Name of the edge column with resistances.
_RESISTANCE = "resistance"
_INITIAL_STD = 0.1  # of Φ_0, as for the weights
#: Rows of Z up to which the general form is built; the weights of a layer with more take over 17 GB, and training four
#: times as much.
_MOST_ROWS = 2**15


class LinearTransformer(Architecture):
    """Attention without softmax on `Z^T = [B, Φ]`: currents, heat kernels and eigenvectors from the incidence matrix.

    If nodes have demands Ψ (`x_dense [num_nodes, k]`), Z_0^T is [B, Ψ, 0], B and (Λ, Φ) are divided by their Frobenius
    norms after every layer, and the last k columns are the answer (section 3.5). Without demands Φ_0 is a trained
    matrix with one row per node slot and 2 n columns, every column of Φ is scaled to unit length instead, and the first
    `spec.num_targets` of the last n columns are the answer (section 4.1). That variant depends on the numbering of the
    nodes. Attention is divided by the number of nodes.

    The answer is learned only up to scale, because of the norms. The general form has a row of weights for every edge,
    so it supports graphs with at most `num_edges` edges, and its answer depends on the order of the edges.

    Resistances are read from the edge column "resistance"; without it they are 1. Features other than the demands are
    ignored. Edges are made simple and undirected.

    Time and memory: `B L (N E^2 + N^2 E)`, `L (B N E + E^2)`.

    Args:
        spec: the benchmark's description.
        form: "general", equation (3), or "efficient", equation (7).
        num_layers: L.
        num_edges: undirected edges of the largest graph, for the general form; by default the number of the
            benchmark if known, otherwise that of all pairs of nodes.
        evolve_incidence: let layers change more than the scale of B, for the efficient form.
        frozen: the authors' other stack of figure 1, for the general form on demands: `Z^T = [B, Ψ]` without the block
            of zeros, no layer changes B, one Frobenius norm for all of Z, and the last k columns are the answer.
        start: see `Start`; by default "gaussian" on demands and "identity" on eigenvectors, as in the authors' code.
            "identity" cannot learn from demands: the answer would start at 0, which has no direction.

    Raises:
        BadInput: an option is out of range or of the other form, the benchmark has no `max_nodes`, or graphs have too
            many edges for the general form.

    Examples:
        >>> from graphbench.benchmarks import ElectricFlow
        >>> model = LinearTransformer(ElectricFlow(family="CSL", num_nodes=8).spec, num_layers=2, form="efficient")
        >>> sum(parameter.numel() for parameter in model.parameters())
        2056
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        form: TrainedForm = "general",
        num_layers: int = 9,
        num_edges: int | None = None,
        evolve_incidence: bool = True,
        start: Start | None = None,
        frozen: bool = False,
    ) -> None:
        demands = spec.node.dense
        super().__init__(spec, demands or spec.num_targets)
        check_choice("form", form, get_args(TrainedForm))
        if num_edges is not None:
            check_range("num_edges", num_edges, at_least=1, whole=True)
        if form == "general" and not evolve_incidence:
            raise BadInput("evolve_incidence=False is for form=efficient; the general form keeps B with frozen=True.")
        start = start or ("gaussian" if demands else "identity")
        check_choice("start", start, [name for name in get_args(Start) if not (demands and name == "identity")])
        if frozen and not (demands and form == "general"):
            raise BadInput("frozen=True needs form=general and nodes with demands: omit it, or set form=general.")
        self.form, self.demands, self.frozen = form, demands, frozen
        self.width = demands or _max_nodes(spec)
        if self.width < self.dim:
            raise BadInput(f"Graphs of {self.width} nodes do not have {self.dim} eigenvectors: use fewer targets.")
        self._resistance = _resistance_column(spec)
        if self._resistance is not None:
            self.waits_for_device = "resistances are checked to be positive and the same both ways"
        # One norm for all demands keeps their relative lengths; each eigenvector has length 1.
        feature_norm: FeatureNorm = "frobenius" if demands else "columns"
        self.num_edges = (num_edges or _max_edges(spec)) if form == "general" else 0
        rows = self.num_edges + (self.width if frozen else 2 * self.width)
        if form == "general" and rows > _MOST_ROWS:
            raise BadInput(
                f"The general form has a row of weights for each of {self.num_edges:,} edges: {16e-9 * rows**2:,.0f} "
                "GB per layer. Use form=efficient, whose weights do not depend on the edges, or num_edges if graphs "
                "have fewer."
            )
        self.transformer: GeneralTransformer | EfficientTransformer
        if frozen:
            self.transformer = GeneralTransformer(
                num_layers, self.num_edges, self.width, scale_by_nodes=True, frozen=True
            )
        elif form == "general":
            self.transformer = GeneralTransformer(
                num_layers, self.num_edges, 2 * self.width, "frobenius", feature_norm, scale_by_nodes=True
            )
        else:
            self.transformer = EfficientTransformer(
                num_layers, 2 * self.width, evolve_incidence, "frobenius", feature_norm, scale_by_nodes=True
            )
            for name, parameter in self.transformer.layers[-1].named_parameters():
                if name in ("alpha_value", "alpha_residual"):  # B is unused after the last layer
                    parameter.requires_grad_(False)
        self.initial: nn.Parameter | None = None
        if not demands:
            self.initial = nn.Parameter(_INITIAL_STD * torch.randn(_max_nodes(spec), 2 * self.width))
        if start != "gaussian":
            start_as_identity(self.transformer, _SHARE[start])

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Count the columns of the incidence matrix."""
        return {"incidence_columns": SparseIncidence.from_batch(batch).count_columns()}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return the map, up to scale, `[num_nodes, dim]`.

        Raises:
            BadInput: a graph has more nodes or edges than the model supports.
        """
        # In the eight bits of bfloat16, products of many layers would hide a small loss.
        with torch.autocast(batch.batch.device.type, enabled=False):
            layout = DenseLayout.from_batch(batch, limit=0)
            dtype = next(self.parameters()).dtype
            features = self._initial_features(batch, layout, dtype)
            incidence = self.incidence(batch, dtype)
            _, features = self.transformer(incidence, features, batch.ptr.diff())
            # The answer is Φ of Z^T = [B, Λ, Φ]; the frozen stack has a single block.
            first = 0 if self.frozen else self.width
            return Representation(layout.to_ragged(features[..., first : first + self.dim]))

    def incidence(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        """Return B `[num_graphs, max_nodes, d]` of equation (1); d = `num_edges` in the general form."""
        resistance = None if self._resistance is None else batch.edge_dense[:, self._resistance]
        edges = SparseIncidence.from_batch(batch, dtype, resistance)
        matrix = edges.dense(batch.get("incidence_columns")).matrix
        missing = self.num_edges - matrix.shape[-1]
        if self.form == "efficient" or missing == 0:
            return matrix
        if missing < 0:
            raise BadInput(
                f"A graph of the batch has {matrix.shape[-1]} edges, but LinearTransformer was made for "
                f"{self.num_edges}: raise num_edges, or use form='efficient', which has no such limit."
            )
        return nn.functional.pad(matrix, (0, missing))

    def _initial_features(self, batch: GraphBatch, layout: DenseLayout, dtype: torch.dtype) -> Tensor:
        """Return Φ_0 `[num_graphs, max_nodes, 2 width]`: demands and zeros (no zeros if frozen), or trained rows."""
        if self.initial is None:
            demands = layout.to_dense(batch.x_dense.to(dtype))
            return demands if self.frozen else nn.functional.pad(demands, (0, self.width))
        if batch.max_nodes > len(self.initial):
            raise BadInput(
                f"A graph of the batch has {batch.max_nodes} nodes, but LinearTransformer has {len(self.initial)} rows "
                "of initial features, as many as the benchmark's max_nodes."
            )
        return self.initial[: batch.max_nodes].expand(batch.num_graphs, -1, -1)


@torch.no_grad()
def start_as_identity(transformer: nn.Module, share: float) -> None:
    """Set W^Q = W^K = I and scale W^V, W^R and the scalars like them by a share; 0 is the authors' start."""
    # Only W^V, W^R and the corresponding scalars change Z: at a share of 0, a layer is the identity.
    for name, parameter in transformer.named_parameters():
        kind = name.rpartition(".")[2]
        if kind in ("value", "residual", "alpha_value", "alpha_residual"):
            parameter.mul_(share)
        elif kind in ("query", "key"):
            parameter.copy_(torch.eye(len(parameter)))


def _max_nodes(spec: BenchmarkSpec) -> int:
    if spec.max_nodes is None:
        raise BadInput(f"{spec.name} does not specify the largest number of nodes, which LinearTransformer needs.")
    return spec.max_nodes


def _max_edges(spec: BenchmarkSpec) -> int:
    """Return the number of undirected edges of the largest graph, or of a complete one without `max_edges`."""
    max_edges = spec.extra.get("max_edges")
    return int(max_edges) if max_edges else max(1, _max_nodes(spec) * (_max_nodes(spec) - 1) // 2)


def _resistance_column(spec: BenchmarkSpec) -> int | None:
    """Return the column of `edge_dense` with resistances, or None."""
    if _RESISTANCE not in spec.edge.names:
        return None
    return spec.edge.names.index(_RESISTANCE) - len(spec.edge.vocabularies)
