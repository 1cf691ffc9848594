"""Similarity of molecules by fingerprints: clusters, diverse picks, and the distance to the nearest neighbour.

The distance is 1 - |A & B| / |A | B| (Tanimoto), where A and B are the Morgan bits of two molecules: circular
substructures up to radius 2, folded to 2,048 bits (ECFP4 of Rogers and Hahn, 2010).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rdkit import DataStructs, rdBase
from rdkit.Chem import rdFingerprintGenerator
from rdkit.SimDivFilters import rdSimDivPickers

from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles
from graphbench.errors import BadInput

#: Maximum number of molecules for Butina's clusters: a bit for each pair takes 200 MB, and minutes.
MOST_OF_BUTINA = 40_000
_BITS = 2_048

Bits = Sequence[DataStructs.ExplicitBitVect]


def morgan_bits(smiles: Iterable[str]) -> Bits:
    """Compute the fingerprint of each readable molecule."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=_BITS)
    with rdBase.BlockLogs():
        return [generator.GetFingerprint(parse_smiles(text)) for text in smiles]


def butina_clusters(bits: Bits, distance: float) -> np.ndarray:
    """Cluster molecules around those with the most neighbours (Taylor 1995; Butina 1999).

    Molecules are processed in descending order of their number of neighbours (the last row first on ties, as in RDKit's
    `Butina.ClusterData`). One that is in no cluster yet becomes a centroid, and its neighbours in no cluster join it.
    Members are within `distance` of their centroid; molecules of different clusters may be closer than that.

    Returns:
        Number of each molecule's cluster `[M]`; clusters are numbered in the order of their creation.

    Examples:
        >>> butina_clusters(morgan_bits(["CCCCO", "c1ccccc1", "CCCCCO"]), 0.5).tolist()
        [0, 1, 0]
    """
    count = len(bits)
    if count > MOST_OF_BUTINA:
        raise BadInput(
            f"split=butina compares each pair of {count:,} molecules, and takes at most {MOST_OF_BUTINA:,}. Use "
            "split=leader, whose clusters of the same radius compare molecules only with leaders."
        )
    # RDKit's ClusterData needs a matrix of float64, 64 times as large as these bits.
    near = np.zeros((count, -(-count // 8)), dtype=np.uint8)
    sizes = np.zeros(count, dtype=np.int64)
    for row, one in enumerate(bits):
        is_near = 1 - np.array(DataStructs.BulkTanimotoSimilarity(one, bits)) <= distance
        near[row], sizes[row] = np.packbits(is_near), is_near.sum()
    clusters, number = np.full(count, -1, dtype=np.int64), 0
    for row in np.lexsort((np.arange(count), sizes))[::-1].tolist():
        if clusters[row] < 0:
            members = np.unpackbits(near[row], count=count).astype(bool) & (clusters < 0)
            clusters[members], number = number, number + 1
    return clusters


def leader_clusters(bits: Bits, distance: float) -> np.ndarray:
    """Cluster molecules around leaders (sphere exclusion, by RDKit's `LeaderPicker`), for large sets.

    The first molecule is a leader, and so is each molecule farther than `distance` from all previous leaders. Every
    molecule joins its nearest leader. This needs a row of distances for each leader, but no memory for all pairs.

    Returns:
        Number of each molecule's cluster `[M]`, in the order of the leaders.

    Examples:
        >>> leader_clusters(morgan_bits(["CCCCO", "c1ccccc1", "CCCCCO"]), 0.5).tolist()
        [0, 1, 0]
    """
    leaders = list(rdSimDivPickers.LeaderPicker().LazyBitVectorPick(bits, len(bits), distance))
    clusters, best = np.zeros(len(bits), dtype=np.int64), np.full(len(bits), -1.0)
    for number, leader in enumerate(leaders):
        similarity = np.array(DataStructs.BulkTanimotoSimilarity(bits[leader], bits))
        nearer = similarity > best
        clusters[nearer], best[nearer] = number, similarity[nearer]
    return clusters


def maxmin_picks(bits: Bits, count: int, first: int) -> list[int]:
    """Pick diverse molecules (MaxMin of Ashton et al., 2002, by RDKit's `MaxMinPicker`).

    Each pick is a molecule whose nearest neighbour among the previous picks is as far away as possible.

    Examples:
        >>> maxmin_picks(morgan_bits(["CCCCO", "c1ccccc1", "CCCCCO"]), 2, 0)
        [0, 1]
    """
    return list(rdSimDivPickers.MaxMinPicker().LazyBitVectorPick(bits, len(bits), count, [first]))


def nearest_distances(bits: Bits, others: Bits) -> np.ndarray:
    """Return the distance of each molecule to the nearest of `others`: float64 `[M]`.

    Examples:
        >>> nearest_distances(morgan_bits(["CCO"]), morgan_bits(["c1ccccc1", "OCC"])).tolist()
        [0.0]
    """
    return np.array([1 - max(DataStructs.BulkTanimotoSimilarity(one, others)) for one in bits], dtype=np.float64)
