"""Similarity of molecules by fingerprints: clusters, diverse picks, and the distance to the nearest neighbour.

The distance is 1 - |A & B| / |A | B| (Tanimoto), where A and B are the Morgan bits of two molecules: circular
substructures up to radius 2, folded to 2,048 bits (ECFP4 of Rogers and Hahn, 2010).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from rdkit import DataStructs, rdBase
from rdkit.Chem import rdFingerprintGenerator
from rdkit.SimDivFilters import rdSimDivPickers

from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles
from graphbench.data.progress import progress
from graphbench.errors import BadInput

logger = logging.getLogger(__name__)
#: Maximum number of molecules for Butina's clusters: a bit for each pair takes 200 MB, and minutes.
MOST_OF_BUTINA = 40_000
_BITS = 2_048
#: Molecules from which RDKit's pickers, which show no progress, take long.
_LONG = 20_000
#: Molecules, and others, whose bits are unpacked at once; and molecules of a product, which fits into the cache.
_ROWS, _COLUMNS, _TILE = 4_096, 1_024, 256

Bits = Sequence[DataStructs.ExplicitBitVect]


def morgan_bits(smiles: Iterable[str]) -> Bits:
    """Compute the fingerprint of each readable molecule."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=_BITS)
    with rdBase.BlockLogs():
        return [generator.GetFingerprint(parse_smiles(text)) for text in smiles]


def check_pairs(count: int) -> None:
    """Refuse more molecules than Butina's clusters can compare with each other."""
    if count > MOST_OF_BUTINA:
        raise BadInput(
            f"split=butina compares each pair of {count:,} molecules, and takes at most {MOST_OF_BUTINA:,}. Use "
            "split=leader, whose clusters of the same radius compare molecules only with leaders."
        )


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
    check_pairs(count)
    # RDKit's ClusterData needs a matrix of float64, 64 times as large as these bits.
    near = np.zeros((count, -(-count // 8)), dtype=np.uint8)
    sizes = np.zeros(count, dtype=np.int64)
    for rows, columns, similarity in _compare(bits, bits):
        is_near = 1 - similarity <= distance
        near[rows, columns.start // 8 : -(-columns.stop // 8)] = np.packbits(is_near, axis=1)
        sizes[rows] += is_near.sum(1)
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
    _announce("leaders", len(bits))
    leaders = list(rdSimDivPickers.LeaderPicker().LazyBitVectorPick(bits, len(bits), distance))
    return _nearest(bits, [bits[leader] for leader in leaders])[0]


def maxmin_picks(bits: Bits, count: int, first: int) -> list[int]:
    """Pick diverse molecules (MaxMin of Ashton et al., 2002, by RDKit's `MaxMinPicker`).

    Each pick is a molecule whose nearest neighbour among the previous picks is as far away as possible.

    Examples:
        >>> maxmin_picks(morgan_bits(["CCCCO", "c1ccccc1", "CCCCCO"]), 2, 0)
        [0, 1]
    """
    _announce("diverse molecules", len(bits))
    return list(rdSimDivPickers.MaxMinPicker().LazyBitVectorPick(bits, len(bits), count, [first]))


def _announce(picked: str, count: int) -> None:
    if count >= _LONG:
        logger.info("Picking %s among %s molecules, which may take minutes", picked, f"{count:,}")


def nearest_distances(bits: Bits, others: Bits) -> np.ndarray:
    """Return the distance of each molecule to the nearest of `others`: float64 `[M]`.

    Examples:
        >>> nearest_distances(morgan_bits(["CCO"]), morgan_bits(["c1ccccc1", "OCC"])).tolist()
        [0.0]
    """
    return 1 - _nearest(bits, others)[1]


def _nearest(bits: Bits, others: Bits) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the most similar of `others` (the first on ties) for each molecule, and the similarity."""
    nearest, best = np.zeros(len(bits), dtype=np.int64), np.full(len(bits), -1.0)
    for rows, columns, similarity in _compare(bits, others):
        place = similarity.argmax(1)
        value = similarity[np.arange(len(place)), place]
        nearest[rows] = np.where(value > best[rows], columns.start + place, nearest[rows])
        best[rows] = np.maximum(value, best[rows])
    return nearest, best


def _compare(bits: Bits, others: Bits) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield rows of `bits`, ascending rows of `others`, and the similarity of each pair of them, that of RDKit.

    Common bits are a product of matrices, several times as fast as RDKit's loops on one core, and on all cores.
    """
    packed = [np.frombuffer(b"".join(map(DataStructs.BitVectToBinaryText, one)), np.uint8) for one in (bits, others)]
    molecules, further = (one.reshape(-1, _BITS // 8) for one in packed)
    with progress("Comparing molecules", len(bits) * len(others), "pairs") as advance:
        for start in range(0, len(bits), _ROWS):
            left = _unpack(molecules[start : start + _ROWS])
            for first in range(0, len(others), _COLUMNS):
                right = _unpack(further[first : first + _COLUMNS])
                columns = slice(first, first + len(right))
                for row in range(0, len(left), _TILE):
                    tile = left[row : row + _TILE]
                    common = (tile @ right.T).astype(np.float64)  # exact: at most 2,048
                    either = tile.sum(1)[:, None] + right.sum(1) - common
                    yield slice(start + row, start + row + len(tile)), columns, common / either
                if len(bits) > _COLUMNS:  # a part of an input needs no lines of its own
                    advance(len(left) * len(right))


def _unpack(packed: np.ndarray) -> np.ndarray:
    return np.unpackbits(packed, axis=1).astype(np.float32)
