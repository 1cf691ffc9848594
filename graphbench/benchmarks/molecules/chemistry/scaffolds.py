"""Murcko scaffolds, and the split of molecules by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from graphbench.benchmarks.molecules.chemistry.problems import TOO_LARGE, MoleculeProblem
from graphbench.contracts import SPLITS
from graphbench.errors import BadInput

#: Maximum atoms of a molecule whose scaffold is computed: RDKit's time grows with their cube, to seconds here.
MAX_ATOMS = 1_000


def murcko_scaffold(mol: Chem.Mol) -> str:
    """Return the SMILES of ring systems and the chains between them, without stereo marks (Bemis and Murcko, 1996).

    Molecules without rings have the empty scaffold ""; those of more than `MAX_ATOMS` atoms raise `MoleculeProblem`.
    """
    if mol.GetNumAtoms() > MAX_ATOMS:
        raise MoleculeProblem(TOO_LARGE, f"{mol.GetNumAtoms()} atoms, but scaffolds are computed up to {MAX_ATOMS}")
    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)


def scaffold_split(
    scaffolds: Sequence[str],
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int | None = None,
    what: str = "scaffold",
) -> dict[str, np.ndarray]:
    """Assign whole scaffold groups to one split each, largest group first, so that test ring systems are new.

    This is the rule of MoleculeNet and OGB (Wu et al., 2018): a group goes to train while train does not exceed its
    share, else to validation while both do not exceed their shares, else to test. Groups of equal size keep the order
    of their first molecules. All molecules without rings form one group, like any other scaffold.

    With a seed the groups are in random order, for repeated splits. Groups larger than half of the validation or test
    share still come first, because one of them would fill that share (the rule of Yang et al., 2019).

    Args:
        scaffolds: one per molecule, or other groups that stay together, such as clusters.
        fractions: shares of train, validation and test; a part with share 0 stays empty.
        seed: seed of the order of the groups; None for largest first.
        what: name of a group, for messages.
    """
    from graphbench.data.splits import check_fractions, group_numbers, permutation  # torch, which workers do not need

    share_train, share_val, share_test = check_fractions(fractions)
    number = group_numbers(scaffolds)
    sizes = np.bincount(number)
    # (0.7 + 0.2) * 10 is 8.999999999999998, into which nine molecules would not fit.
    limit_train, limit_val = (round(share * len(scaffolds), 6) for share in (share_train, share_train + share_val))
    ordered = np.argsort(-sizes, kind="stable")  # ties by first molecule
    if seed is not None:
        half = min((share for share in (share_val, share_test) if share), default=0) * len(scaffolds) / 2
        mixed = ordered[permutation(len(ordered), seed)]
        # The stable sort puts large groups first, and keeps the random order within both classes.
        ordered = mixed[np.argsort(sizes[mixed] <= half, kind="stable")]
    filled, split_of = [0, 0, 0], np.empty(len(sizes), dtype=np.int8)
    for group in ordered.tolist():
        size = int(sizes[group])
        if filled[0] + size <= limit_train or share_train == 1:
            split = 0
        elif filled[0] + filled[1] + size <= limit_val or not share_test:
            split = 1
        else:
            split = 2
        filled[split] += size
        split_of[group] = split
    shares = (share_train, share_val, share_test)
    empty = [name for name, count, share in zip(SPLITS, filled, shares, strict=True) if not count and share]
    if empty:
        counts = ", ".join(f"{name} {count:,}" for name, count in zip(SPLITS, filled, strict=True))
        largest = scaffolds[int(np.argmax(number == sizes.argmax()))] if len(sizes) else ""
        raise BadInput(
            f"The {what} split leaves {' and '.join(empty)} empty ({counts} molecules): {len(sizes)} {what}s, of "
            f"which {largest!r} has {max(sizes, default=0):,} molecules. Use more molecules, other fractions or a "
            "random split."
        )
    split_of_row = split_of[number]
    return {name: np.flatnonzero(split_of_row == split) for split, name in enumerate(SPLITS)}
