"""Convert many SMILES to arrays on all cores: features, properties, scaffolds.

Workers get lists of strings and return a few NumPy arrays and strings per chunk; unusable molecules are returned as
data. Do not import torch here, so that spawned workers start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules.chemistry.descriptors import (
    DescriptorSet,
    compute_descriptors,
    descriptor_names,
)
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
from graphbench.tables.texts import Texts

_CHUNK = 256  # molecules per task: about a tenth of a second of work

#: `track(iterable, description, total, unit)` yields the items unchanged and shows a progress bar.
Track: TypeAlias = Callable[[Iterable["MoleculeArrays"], str, int, str], Iterable["MoleculeArrays"]]

Input = TypeVar("Input")
Output = TypeVar("Output")


@dataclass(frozen=True)
class Recipe:
    """Values to compute for every molecule.

    Args:
        features: columns of atoms and bonds.
        ring_term: ring term among the three terms of penalised logP; None omits all three.
        scaffold: whether to compute the Murcko scaffold.
        canonical: whether to write the canonical SMILES of what the features show (no isotopes, no map numbers), which
            is equal for molecules that a model cannot distinguish.
        descriptors: descriptors of whole molecules, if any.
    """

    features: FeatureSet
    ring_term: RingTerm | None = None
    scaffold: bool = False
    canonical: bool = False
    descriptors: DescriptorSet | None = None


@dataclass
class MoleculeArrays:
    """Molecules as arrays, one after the other. Legend: M readable molecules, A atoms, E directed edges.

    Args:
        rows: input row of each molecule `[M]`.
        num_nodes, num_edges, num_fragments: counts per molecule `[M]`.
        x: atom columns, uint8 `[A, columns]`.
        edge_index: atom numbers within the molecule, int32 `[E, 2]`.
        edge_attr: bond columns, uint8 `[E, columns]`.
        terms: terms of penalised logP, float64 `[M, 3]`, or `[M, 0]`.
        scaffolds: scaffold of each molecule `[M]`, or empty.
        problems: (input row, kind, detail) of every molecule that was left out.
        canonical: canonical SMILES without isotopes and map numbers `[M]`, or empty.
        remarks: (input row, what the features do not show) for readable molecules.
        descriptors: descriptors, float32 `[M, D]`, or `[0, 0]`.
    """

    rows: np.ndarray
    num_nodes: np.ndarray
    num_edges: np.ndarray
    num_fragments: np.ndarray
    x: np.ndarray
    edge_index: np.ndarray
    edge_attr: np.ndarray
    terms: np.ndarray
    scaffolds: Sequence[str]
    problems: list[tuple[int, str, str]]
    canonical: Sequence[str] = ()
    remarks: list[tuple[int, str]] = field(default_factory=list)
    descriptors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class ReadMolecule:
    """Values of one molecule before stacking, with fields as in `MoleculeArrays`."""

    graph: MoleculeGraph
    num_fragments: int
    terms: tuple[float, ...]
    scaffold: str
    canonical: str
    remark: str = ""


def examine(recipe: Recipe, mol: Chem.Mol) -> ReadMolecule:
    """Compute the values of a recipe for one sanitised molecule."""
    plain = without_labels(mol) if recipe.canonical or recipe.scaffold or recipe.features == "ogb_cip" else mol
    return ReadMolecule(
        GRAPH_OF[recipe.features](plain if recipe.features == "ogb_cip" else mol),
        len(Chem.GetMolFrags(mol)),
        logp_terms(mol, recipe.ring_term) if recipe.ring_term else (),
        murcko_scaffold(plain) if recipe.scaffold else "",  # a map number would make another scaffold
        Chem.MolToSmiles(plain) if recipe.canonical else "",
        remarks_about(mol),
    )


def read_each(
    read: Callable[[Input], Output], sources: Sequence[Input], start: int, name: Callable[[int, Input], str]
) -> tuple[dict[int, Output], list[tuple[int, str, str]]]:
    """Read each source, from row `start` on, without RDKit's log lines.

    Returns:
        Row -> result, and (row, kind, detail) of every problem, including any error of RDKit's C++.
    """
    results: dict[int, Output] = {}
    problems: list[tuple[int, str, str]] = []
    with rdBase.BlockLogs():
        for row, source in enumerate(sources, start):
            try:
                results[row] = read(source)
            except MoleculeProblem as problem:
                problems.append((row, problem.kind, ": ".join(filter(None, (name(row, source), problem.detail)))))
            except (ValueError, RuntimeError) as error:  # from RDKit's C++, on molecules that no check foresees
                problems.append((row, f"RDKit fails with {type(error).__name__}", f"{name(row, source)}: {error}"))
    return results, problems


def read_chunk(recipe: Recipe, chunk: tuple[int, Sequence[str]]) -> MoleculeArrays:
    """Read the SMILES `chunk[1]`, which begin at row `chunk[0]` of the input."""
    start, texts = chunk
    molecules, problems = read_each(
        lambda smiles: examine(recipe, parse_smiles(smiles)), texts, start, lambda _, smiles: quote(smiles)
    )
    arrays = stack_molecules(recipe, molecules, problems)
    if recipe.descriptors is not None:
        arrays.descriptors = compute_descriptors(
            recipe.descriptors, [texts[row - start] for row in molecules], workers=1
        )
    return arrays


def stack_molecules(
    recipe: Recipe, by_row: dict[int, ReadMolecule], problems: list[tuple[int, str, str]]
) -> MoleculeArrays:
    """Stack molecules, given by input row in ascending order, into arrays."""
    molecules = by_row.values()
    atom_columns, bond_columns = NUM_COLUMNS[recipe.features]
    num_terms = 3 if recipe.ring_term else 0
    return MoleculeArrays(
        rows=np.array(list(by_row), dtype=np.int64),
        num_nodes=np.array([len(molecule.graph.atoms) for molecule in molecules], dtype=np.int64),
        num_edges=np.array([len(molecule.graph.edges) for molecule in molecules], dtype=np.int64),
        num_fragments=np.array([molecule.num_fragments for molecule in molecules], dtype=np.int64),
        x=_stack((molecule.graph.atoms for molecule in molecules), atom_columns, np.uint8),
        edge_index=_stack((molecule.graph.edges for molecule in molecules), 2, np.int32),
        edge_attr=_stack((molecule.graph.bonds for molecule in molecules), bond_columns, np.uint8),
        terms=np.array([molecule.terms for molecule in molecules], dtype=np.float64).reshape(len(by_row), num_terms),
        scaffolds=[molecule.scaffold for molecule in molecules] if recipe.scaffold else [],
        problems=problems,
        canonical=[molecule.canonical for molecule in molecules] if recipe.canonical else [],
        remarks=[(row, molecule.remark) for row, molecule in by_row.items() if molecule.remark],
    )


def _stack(parts: Iterable[Iterable[Iterable[int]]], columns: int, dtype: type) -> np.ndarray:
    rows = chain.from_iterable(parts)
    return np.fromiter(chain.from_iterable(rows), dtype=dtype).reshape(-1, columns)


def concatenate(parts: Sequence[MoleculeArrays]) -> MoleculeArrays:
    """Concatenate chunks."""
    joined: dict[str, Any] = {}
    for item in fields(MoleculeArrays):
        values = [getattr(part, item.name) for part in parts]
        if isinstance(values[0], np.ndarray):
            joined[item.name] = np.concatenate(values)
        else:
            texts = item.name in ("scaffolds", "canonical")
            joined[item.name] = (Texts if texts else list)(chain.from_iterable(values))
    return MoleculeArrays(**joined)


def read_molecules(
    smiles: Sequence[str],
    recipe: Recipe,
    *,
    num_workers: int | None = None,
    track: Track | None = None,
    description: str = "Reading molecules",
    first: int = 0,
) -> MoleculeArrays:
    """Read SMILES on all cores; return the readable molecules in input order, and the problems of the others.

    `num_workers` is the number of processes: None for one per core, 0 to read in this process. `track` shows a progress
    bar over chunks, and `first` is the row of the first molecule in the whole input.
    """
    parts: Iterable[MoleculeArrays] = read_parts(
        smiles, recipe, num_workers=num_workers, description=description, first=first
    )
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
    first: int = 0,
) -> Iterator[MoleculeArrays]:
    """Read SMILES on all cores, `size` molecules per part, for sets that are larger than memory.

    Other arguments are those of `read_molecules`; `rows` and `problems` are rows of the whole input.
    """
    starts = range(0, max(len(smiles), 1), size)
    workers = min(available_cores() if num_workers is None else num_workers, len(starts))
    prepare = partial(warm_up, recipe)
    prepare()
    chunks = ((first + start, smiles[start : start + size]) for start in starts)
    return ordered_map(partial(read_chunk, recipe), chunks, workers, description, prepare)


def warm_up(recipe: Recipe) -> None:
    """Load tables before forking, so that processes share them instead of each loading their own."""
    if recipe.features in ("ogb", "ogb_cip"):
        ogb_vocabulary()
    if recipe.ring_term:
        sa_scorer()
    if recipe.descriptors is not None:
        descriptor_names(recipe.descriptors)
