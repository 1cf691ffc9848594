"""Many SMILES to arrays on all cores: parse, features, properties, scaffolds.

Workers get lists of strings and return a few NumPy arrays and strings per chunk; molecules that cannot be used come
back as data. No torch here: a worker that is started afresh must start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.features import (
    GRAPH_OF,
    NUM_COLUMNS,
    FeatureSet,
    MoleculeGraph,
    ogb_vocabulary,
)
from graphbench.benchmarks.molecules.chemistry.problems import MoleculeProblem, quote
from graphbench.benchmarks.molecules.chemistry.properties import RingTerm, logp_terms, sa_scorer
from graphbench.benchmarks.molecules.chemistry.scaffolds import murcko_scaffold
from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles, remarks_about, without_labels
from graphbench.data.worker_pool import available_cores, ordered_map

_CHUNK = 256  # molecules per task: about a tenth of a second of work

#: `track(iterable, description, total, unit)` yields the same items and shows how far they are.
Track: TypeAlias = Callable[[Iterable["MoleculeArrays"], str, int, str], Iterable["MoleculeArrays"]]


Input = TypeVar("Input")
Output = TypeVar("Output")


@dataclass(frozen=True)
class Recipe:
    """What to compute of every molecule.

    Args:
        features: which columns atoms and bonds get.
        ring_term: also compute the three terms of penalised logP with this ring term; None leaves them out.
        scaffold: also compute the Murcko scaffold.
        canonical: also write the canonical SMILES of what the features show (no isotopes, no map numbers), by which
            molecules that are one to a model are known.
    """

    features: FeatureSet
    ring_term: RingTerm | None = None
    scaffold: bool = False
    canonical: bool = False


@dataclass
class MoleculeArrays:
    """Molecules as arrays, one after the other. Legend: M readable molecules, A atoms, E directed edges.

    Args:
        rows: place of each molecule in the input `[M]`.
        num_nodes, num_edges, num_fragments: per molecule `[M]`.
        x: atom columns, uint8 `[A, columns]`.
        edge_index: atom numbers within the molecule, int32 `[E, 2]`.
        edge_attr: bond columns, uint8 `[E, columns]`.
        terms: of penalised logP, float64 `[M, 3]`; `[M, 0]` when not asked for.
        scaffolds: one per line; "" when not asked for.
        problems: (place in the input, kind, detail) of every molecule that was left out.
        canonical: canonical SMILES without isotopes and map numbers, one per line; "" when not asked for.
        remarks: (place in the input, what the features do not show) of molecules that are read all the same.
    """

    rows: np.ndarray
    num_nodes: np.ndarray
    num_edges: np.ndarray
    num_fragments: np.ndarray
    x: np.ndarray
    edge_index: np.ndarray
    edge_attr: np.ndarray
    terms: np.ndarray
    scaffolds: str
    problems: list[tuple[int, str, str]]
    canonical: str = ""
    remarks: list[tuple[int, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def scaffold_list(self) -> list[str]:
        """Scaffold SMILES of each molecule."""
        return self.scaffolds.split("\n") if len(self) else []

    def canonical_list(self) -> list[str]:
        """Canonical SMILES of each molecule."""
        return self.canonical.split("\n") if len(self) else []


@dataclass(frozen=True)
class ReadMolecule:
    """What one molecule gave, before many are stacked; fields as in `MoleculeArrays`."""

    graph: MoleculeGraph
    num_fragments: int
    terms: tuple[float, ...]
    scaffold: str
    canonical: str
    remark: str = ""


def examine(recipe: Recipe, mol: Chem.Mol) -> ReadMolecule:
    """Everything that the recipe asks for, of one sanitised molecule.

    Raises:
        MoleculeProblem: an atom or a bond is outside the vocabulary.
    """
    plain = without_labels(mol) if recipe.canonical or recipe.features == "ogb_cip" else mol
    return ReadMolecule(
        GRAPH_OF[recipe.features](plain if recipe.features == "ogb_cip" else mol),
        len(Chem.GetMolFrags(mol)),
        logp_terms(mol, recipe.ring_term) if recipe.ring_term else (),
        murcko_scaffold(mol) if recipe.scaffold else "",
        Chem.MolToSmiles(plain) if recipe.canonical else "",
        remarks_about(mol),
    )


def read_or_problem(read: Callable[[Input], Output], source: Input) -> Output | MoleculeProblem:
    """What `read` gives, or why the molecule cannot be used; also for whatever RDKit's C++ raises on it."""
    try:
        return read(source)
    except MoleculeProblem as problem:
        return problem
    except (ValueError, RuntimeError) as error:
        return MoleculeProblem(f"RDKit fails with {type(error).__name__}", str(error))


def read_chunk(recipe: Recipe, chunk: tuple[int, Sequence[str]]) -> MoleculeArrays:
    """Read the SMILES `chunk[1]`, which begin at place `chunk[0]` of the input; RDKit's log lines are held back."""
    start, texts = chunk
    found: dict[int, ReadMolecule] = {}
    problems: list[tuple[int, str, str]] = []
    with rdBase.BlockLogs():
        for row, text in enumerate(texts, start):
            outcome = read_or_problem(lambda smiles: examine(recipe, parse_smiles(smiles)), text)
            if isinstance(outcome, ReadMolecule):
                found[row] = outcome
            else:
                detail = f": {outcome.detail}" if outcome.detail else ""
                problems.append((row, outcome.kind, quote(text) + detail))
    return stack_molecules(recipe, found, problems)


def stack_molecules(
    recipe: Recipe, found: dict[int, ReadMolecule], problems: list[tuple[int, str, str]]
) -> MoleculeArrays:
    """Molecules by their places in the input as arrays, in that order."""
    molecules = found.values()
    atom_columns, bond_columns = NUM_COLUMNS[recipe.features]
    num_terms = 3 if recipe.ring_term else 0
    return MoleculeArrays(
        rows=np.array(list(found), dtype=np.int64),
        num_nodes=np.array([len(molecule.graph.atoms) for molecule in molecules], dtype=np.int64),
        num_edges=np.array([len(molecule.graph.edges) for molecule in molecules], dtype=np.int64),
        num_fragments=np.array([molecule.num_fragments for molecule in molecules], dtype=np.int64),
        x=_stack((molecule.graph.atoms for molecule in molecules), atom_columns, np.uint8),
        edge_index=_stack((molecule.graph.edges for molecule in molecules), 2, np.int32),
        edge_attr=_stack((molecule.graph.bonds for molecule in molecules), bond_columns, np.uint8),
        terms=np.array([molecule.terms for molecule in molecules], dtype=np.float64).reshape(len(found), num_terms),
        scaffolds="\n".join(molecule.scaffold for molecule in molecules),
        problems=problems,
        canonical="\n".join(molecule.canonical for molecule in molecules),
        remarks=[(row, molecule.remark) for row, molecule in found.items() if molecule.remark],
    )


def _stack(parts: Iterable[Sequence[Sequence[int]]], columns: int, dtype: type) -> np.ndarray:
    return np.array([row for part in parts for row in part], dtype=dtype).reshape(-1, columns)


def concatenate(parts: Sequence[MoleculeArrays]) -> MoleculeArrays:
    """Chunks, in order, as one."""
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("rows", "num_nodes", "num_edges", "num_fragments", "x", "edge_index", "edge_attr", "terms")
    }
    return MoleculeArrays(
        **arrays,
        scaffolds="\n".join(part.scaffolds for part in parts if len(part)),
        problems=[problem for part in parts for problem in part.problems],
        canonical="\n".join(part.canonical for part in parts if len(part)),
        remarks=[remark for part in parts for remark in part.remarks],
    )


def read_molecules(
    smiles: Sequence[str],
    recipe: Recipe,
    *,
    num_workers: int | None = None,
    track: Track | None = None,
    description: str = "Reading molecules",
) -> MoleculeArrays:
    """Read many SMILES on all cores.

    Args:
        smiles: one molecule each.
        recipe: what to compute.
        num_workers: processes; None takes every core, 0 reads in this process.
        track: shows the progress, chunk by chunk.
        description: what the progress bar says.

    Returns:
        All readable molecules in input order; the others are in `problems`.

    Raises:
        GraphbenchError: a worker process was killed.
    """
    parts: Iterable[MoleculeArrays] = read_parts(smiles, recipe, num_workers=num_workers, description=description)
    if track is not None:
        num_chunks = max(-(-len(smiles) // _CHUNK), 1)
        parts = track(parts, description, num_chunks, f"chunks of {_CHUNK} molecules")
    return concatenate(list(parts))


def read_parts(
    smiles: Sequence[str],
    recipe: Recipe,
    *,
    num_workers: int | None = None,
    description: str = "Reading molecules",
    size: int = _CHUNK,
) -> Iterator[MoleculeArrays]:
    """Read many SMILES on all cores, `size` molecules per part, for sets that are larger than memory.

    Args:
        smiles: one molecule each.
        recipe: what to compute.
        num_workers: processes; None takes every core, 0 reads in this process.
        description: what is done, for messages.
        size: molecules per part.

    Returns:
        The readable molecules in input order; `rows` and `problems` count from the beginning of the input.

    Raises:
        GraphbenchError: a worker process was killed.
    """
    starts = range(0, max(len(smiles), 1), size)
    workers = min(available_cores() if num_workers is None else num_workers, len(starts))
    prepare = partial(warm_up, recipe)
    prepare()
    chunks = ((start, smiles[start : start + size]) for start in starts)
    return ordered_map(partial(read_chunk, recipe), chunks, workers, description, prepare)


def warm_up(recipe: Recipe) -> None:
    """Load what processes would each load for themselves; done before they are forked, they share it."""
    if recipe.features in ("ogb", "ogb_cip"):
        ogb_vocabulary()
    if recipe.ring_term:
        sa_scorer()
