"""AMPPeptides: peptides of the package modlamp as molecules, split without leakage.

Legend: S sequences, L labels, some of which are unknown (NaN).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from rdkit import Chem
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
from graphbench.benchmarks.molecules.chemistry.tables import subset, to_table, with_targets, with_text
from graphbench.contracts import SPLITS, GraphTable
from graphbench.data.package_files import file_sha256, package_file
from graphbench.data.progress import track
from graphbench.errors import BadInput, CorruptData, check_choice, check_range

Labels = Literal["functions", "antimicrobial"]
_FRACTIONS, _SPLIT_SEED = (0.7, 0.15, 0.15), 0
_LENGTH = 30  # amino acids; molecules are then as large as those of Peptides-func
_ANTIMICROBIAL, _ANTICANCER, _MEMBRANE = range(3)
#: Maps a file to (label, value) pairs of its class 0 and its class 1.
_SOURCES: dict[str, tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]] = {
    "AMPvsUniProt.csv": (((_ANTIMICROBIAL, 0),), ((_ANTIMICROBIAL, 1),)),
    "AMPvsTMset.csv": (((_ANTIMICROBIAL, 0), (_MEMBRANE, 1)), ((_ANTIMICROBIAL, 1), (_MEMBRANE, 0))),
    "ACP_CancPPD_vs_TM.csv": (((_ANTICANCER, 0), (_MEMBRANE, 1)), ((_ANTICANCER, 1), (_MEMBRANE, 0))),
    "ACP_CancPPD_vs_Random.csv": (((_ANTICANCER, 0),), ((_ANTICANCER, 1),)),
}
AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWY")


class AMPPeptides(MoleculeBenchmark):
    """Natural and designed peptides as graphs of atoms, labelled as antimicrobial, anticancer, or part of a membrane.

    This is a stand-in for Peptides-func that needs no network: with other peptides, three labels instead of ten, and a
    split without leakage, scores are not comparable to those on Peptides-func. Sequences come from the package modlamp,
    which collected them from APD3, CancerPPD, UniProt and the protein data bank. RDKit turns them into linear
    molecules; atoms and bonds get OGB's nine and three columns.

    `labels=functions`: the three labels, if a peptide's source has them (others are unknown and do not count), scored
    by average precision (AP). `labels=antimicrobial`: only the file of antimicrobial peptides against UniProt's, two
    classes, scored by AUROC.

    Up to 30 amino acids, the default, molecules have the size of those in Peptides-func: 151 atoms and 306 directed
    edges on average. Repeated sequences count once; those with contradictory labels are left out. Similar sequences
    (and chains of them, see `likeness_groups`) are in the same split: 70% train, 15% validation and 15% test.

    Args:
        labels: see above.
        max_length: maximum number of amino acids; None uses all peptides, up to 174 (1,359 atoms).
        options: see `GraphBenchmark`.
    """

    spec = specs.AMP_PEPTIDES

    def __init__(self, labels: Labels = "functions", max_length: int | None = _LENGTH, **options: Any) -> None:
        super().__init__(**options)
        check_choice("labels", labels, get_args(Labels))
        if max_length is not None:
            check_range("max_length", max_length, at_least=1, whole=True)
        self.labels, self.max_length = labels, max_length
        if (labels, max_length) != ("functions", _LENGTH):
            self.spec = replace(self.spec, split_sizes=None, mean_nodes=None, mean_edges=None, disk_mb=None)
        self.files = tuple(_SOURCES)
        if labels == "antimicrobial":
            self.files = ("AMPvsUniProt.csv",)
            self.spec = replace(
                self.spec,
                task="graph-classification",
                metric="AUROC",
                loss="cross_entropy",
                num_targets=1,
                num_classes=2,
                target_names=("other", "antimicrobial"),
                source="AMPvsUniProt.csv in the package modlamp",
            )

    def source_key(self) -> dict[str, Any]:
        """Return the checksums of the files, and the options of labels and split."""
        files = {name: file_sha256(_packaged(name)) for name in self.files}
        return {
            "files": files,
            "labels": self.labels,
            "max_length": self.max_length,
            "split": [list(_FRACTIONS), _SPLIT_SEED],
        }

    def peptides(self) -> Peptides:
        """Read sequences and labels from the package's files."""
        statements = (
            (sequence, label, value)
            for name in self.files
            for sequence, number in read_sequences(_packaged(name))
            if self.max_length is None or len(sequence) <= self.max_length
            for label, value in _SOURCES[name][number]
        )
        return merge_labels(statements, self.spec.num_targets)

    def read(self) -> Mapping[str, GraphTable]:
        """Convert the sequences to molecules, and split them."""
        peptides = self.peptides()
        steps = track(peptides.sequences, f"Molecules of {self.spec.name}", unit="sequences")
        smiles = [sequence_smiles(sequence) for sequence in steps]
        arrays = read_molecules(smiles, Recipe("ogb"), track=track)
        classes = self.spec.num_classes is not None
        targets = peptides.labels[arrays.rows]
        table = with_targets(to_table(arrays), targets.astype(np.int64) if classes else targets)
        sequences = [peptides.sequences[row] for row in arrays.rows]
        table = with_text(table, {"smiles": [smiles[row] for row in arrays.rows], "id": sequences})
        fractions: dict[str, float] = dict(zip(SPLITS, _FRACTIONS, strict=True))
        rows = grouped_split(likeness_groups(sequences), targets, fractions, _SPLIT_SEED)
        return {name: subset(table, rows[name]) for name in SPLITS}


def _packaged(name: str) -> Path:
    return package_file("modlamp", f"data/{name}", extra="peptides", purpose="AMPPeptides")


@dataclass(frozen=True)
class Peptides:
    """Distinct sorted sequences, with labels 0, 1, or NaN `[S, L]`, and sequences with contradictory labels."""

    sequences: tuple[str, ...]
    labels: np.ndarray
    contradictory: tuple[str, ...]


def read_sequences(file: Path) -> list[tuple[str, int]]:
    """Read a file of modlAMP: a header `count,columns,name of class 0,name of class 1`, then rows `sequence,class`."""
    lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    rows = [tuple(part.strip() for part in line.split(",")) for line in lines]
    header, body = rows[0] if rows else (), rows[1:]
    if not header or header[0] != str(len(body)):
        raise CorruptData(f"{file} announces {header[0] if header else 'no'} sequences and holds {len(body)}.")
    wrong = [row for row in body if len(row) != 2 or not set(row[0]) <= AMINO_ACIDS or row[1] not in ("0", "1")]
    if wrong:
        raise CorruptData(f"{file}: expected a sequence of the 20 amino acids and 0 or 1, got {','.join(wrong[0])!r}.")
    return [(row[0], int(row[1])) for row in body]


def merge_labels(statements: Iterable[tuple[str, int, int]], num_labels: int) -> Peptides:
    """Merge labels of several sources, given as (sequence, number of the label, 0 or 1).

    Repetitions count once; sequences with contradictory labels are left out.
    """
    merged: dict[str, np.ndarray] = {}
    contradictory = set()
    for sequence, label, value in statements:
        labels = merged.setdefault(sequence, np.full(num_labels, np.nan))
        if labels[label] == 1 - value:
            contradictory.add(sequence)
        labels[label] = value
    sequences = sorted(set(merged) - contradictory)
    # Sorted, so that the seeded split does not depend on the order of the files.
    stacked = np.array([merged[sequence] for sequence in sequences]).reshape(-1, num_labels)
    return Peptides(tuple(sequences), stacked, tuple(sorted(contradictory)))


def likeness_groups(sequences: Sequence[str], word: int = 4, share: float = 0.3) -> np.ndarray:
    """Group similar sequences, and chains of them; return the group number of each sequence `[S]`.

    Two sequences are similar if they share at least `share` of the words (`word` residues in a row) of the one with
    fewer words. Without insertions, a fraction p of equal residues preserves about p^word of the words: 0.3 of the
    words of 4 corresponds to about 74% of the residues. Sequences shorter than `word` count as one word.
    """
    check_range("word", word, at_least=1, whole=True)
    check_range("share", share, above=0, at_most=1)
    numbers: dict[str, int] = {}
    rows, columns = [], []
    for row, sequence in enumerate(sequences):
        words = {sequence[start : start + word] for start in range(max(len(sequence) - word + 1, 1))}
        rows += [row] * len(words)
        columns += [numbers.setdefault(text, len(numbers)) for text in sorted(words)]
    ones = np.ones(len(rows), dtype=np.int32)
    holds = sparse.csr_matrix((ones, (rows, columns)), shape=(len(sequences), max(len(numbers), 1)))
    common = (holds @ holds.T).tocoo()
    count = np.bincount(rows, minlength=len(sequences))
    similar = common.data >= share * np.minimum(count[common.row], count[common.col])
    ends = (common.row[similar], common.col[similar])
    links = sparse.coo_matrix((np.ones(len(ends[0]), dtype=np.int8), ends), shape=common.shape)
    return connected_components(links, directed=False)[1].astype(np.int64)


def grouped_split(
    groups: np.ndarray, labels: np.ndarray, fractions: Mapping[str, float], seed: int
) -> dict[str, np.ndarray]:
    """Assign whole groups to splits, so that every split gets its fraction of every label's zeros and ones.

    Groups are assigned from largest to smallest, those of equal size in random order, each to the split that lacks most
    of the group's labels.

    Args:
        groups: group of each row `[S]`.
        labels: 0, 1 or NaN `[S, L]`.
        fractions: share of each split; they add up to 1.
        seed: seed of the order of groups of equal size.
    """
    shares = np.array(list(fractions.values()))
    if len(shares) < 2 or shares.min() <= 0 or abs(shares.sum() - 1) > 1e-6:
        raise BadInput(f"fractions must be shares above 0 that add up to 1, got {dict(fractions)}.")
    kinds = np.concatenate((labels == 0, labels == 1), axis=1).astype(np.float64)
    names, member = np.unique(groups, return_inverse=True)
    holds = np.zeros((len(names), kinds.shape[1]))
    np.add.at(holds, member, kinds)
    sizes = np.bincount(member)
    shuffled = np.random.RandomState(seed % (1 << 32)).permutation(len(names))
    wanted = np.outer(shares, np.maximum(kinds.sum(0), 1))  # [splits, kinds]
    given, owner = np.zeros_like(wanted), np.zeros(len(names), dtype=np.int64)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        owner[group] = int(np.argmax(((1 - given / wanted) * holds[group]).sum(1)))
        given[owner[group]] += holds[group]
    split = {name: np.flatnonzero(owner[member] == number) for number, name in enumerate(fractions)}
    empty = [name for name, rows in split.items() if not len(rows)]
    if empty:
        raise BadInput(f"{len(names)} groups of similar sequences cannot fill the split {empty[0]}.")
    return split


def sequence_smiles(sequence: str) -> str:
    """Return the SMILES of a linear peptide of L-amino acids with free ends and without disulphide bridges."""
    if not sequence or not set(sequence) <= AMINO_ACIDS:
        raise BadInput(f"{sequence!r} is not made of the 20 amino acids ({''.join(sorted(AMINO_ACIDS))}).")
    return Chem.MolToSmiles(Chem.MolFromSequence(sequence))
