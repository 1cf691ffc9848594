"""The paper's constructions: weights with which the linear transformer provably runs an algorithm.

"Graph Transformers Dream of Electric Flow" (arXiv 2410.16699), Lemmas 1 to 6, Corollary 7 and Lemma 9. The Chebyshev
series, which the same layer can run, are not in the paper. Every function returns a module whose layers have the
lemma's weights; `module.transformer(...)` is the trainable model. Error bounds are in `bounds`.

Legend: L the Laplacian with eigenvalues 0 = λ1 < λmin <= ... <= λmax (a connected graph), δ the step, Ψ the demands,
Λ and Φ the two blocks of features next to B, in Z_0^T = [B, Ψ, 0]. W^Q^T W^K is called QK.

Errors in print that are corrected here:

* Lemma 1's bound needs λmin >= 1 (`bounds.electric_flow_printed`).
* Lemma 4 prints the second I of W^V in the block (Φ, Γ), which would give Φ+ = Φ + Γ²; the text's Φ+ = (I + Γ) Φ needs
  it at (Φ, Φ). Its third block δI leaves Φ 1 = δ 1, whereas L† 1 = 0: it must be δ(I - 11^T / n).
* Lemma 6 prints W^R = I for B, which would double B; it must be 0. Corollary 7 repeats this and prints W^V with the
  sign of Lemma 6; (μI - L) Φ needs -I.
* Lemma 9 prints 1/λmax for Lemma 2's α_l, and α^Q = α^K = 1 for the Gram-Schmidt layers, which would mix L into them;
  one of the two must be 0 there.
"""

from graphbench_linear_transformer.constructions._models import Form, IncidenceConstruction, LaplacianConstruction
from graphbench_linear_transformer.constructions.additive import electric_flow, heat_kernel, resistive_embedding
from graphbench_linear_transformer.constructions.chebyshev import electric_flow_chebyshev, heat_kernel_chebyshev
from graphbench_linear_transformer.constructions.chebyshev import (
    resistive_embedding_chebyshev as resistive_embedding_chebyshev,
)
from graphbench_linear_transformer.constructions.eigenvectors import bottom_eigenvectors, top_eigenvectors
from graphbench_linear_transformer.constructions.multiplicative import electric_flow_fast, heat_kernel_fast

__all__ = [
    "Form",
    "IncidenceConstruction",
    "LaplacianConstruction",
    "bottom_eigenvectors",
    "electric_flow",
    "electric_flow_chebyshev",
    "electric_flow_fast",
    "heat_kernel",
    "heat_kernel_chebyshev",
    "heat_kernel_fast",
    "resistive_embedding",
    "resistive_embedding_chebyshev",
    "top_eigenvectors",
]
