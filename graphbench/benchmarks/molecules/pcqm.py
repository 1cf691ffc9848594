"""PCQM4Mv2 and PCQM4M of OGB's Large-Scale Challenge: millions of molecules and their HOMO-LUMO gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from rdkit import rdBase

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.problems import RowProblem, refuse_problems
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_parts
from graphbench.benchmarks.molecules.chemistry.tables import to_table, with_targets, with_text
from graphbench.benchmarks.molecules.ogb import load_split_dict, read_table_file
from graphbench.contracts import GraphTable
from graphbench.data.download import fetch_members
from graphbench.data.progress import progress
from graphbench.data.splits import permutation
from graphbench.errors import BadInput, CorruptData, check_range

_HELD_OUT, _SPLIT_SEED = 150_000, 42  # as in GraphGPS
_PART = 16_384  # molecules per part: about 8 MB of graphs
_DATA, _SPLIT = "data.csv.gz", "split_dict.pt"


class LargeScaleChallenge(MoleculeBenchmark):
    """Base of both data sets: `data.csv.gz` and `split_dict.pt` of OGB's archive, graphs built by RDKit on all cores.

    The organisers do not publish the labels of their test molecules, so the test split here is their validation split.
    `held_out` molecules of their training set are used for validation, as in GraphGPS; with `held_out=0` the test split
    is also used for validation, as for most published figures.

    Args:
        held_out: training molecules used for validation.
        split_seed: seed of their choice.
        options: see `GraphBenchmark`.
    """

    address: ClassVar[str]
    #: MD5 of the archive, as stated by OGB.
    checksum: ClassVar[str]
    #: Folder inside the archive, also the archive's name.
    published_name: ClassVar[str]

    def __init__(self, held_out: int = _HELD_OUT, split_seed: int = _SPLIT_SEED, **options: Any) -> None:
        super().__init__(**options)
        spec = type(self).spec
        train, val, test = spec.split_sizes or (0, 0, 0)
        check_range("held_out", held_out, at_least=0, at_most=train + val - 1, whole=True)
        if split_seed != _SPLIT_SEED and not held_out:
            raise BadInput(
                f"split_seed={split_seed} chooses held-out molecules, and held_out=0 has none: leave it out."
            )
        self.held_out, self.split_seed = held_out, split_seed
        if held_out:
            self.spec = replace(spec, split_sizes=(train + val - held_out, held_out, test))
        else:
            self.spec = replace(spec, split_sizes=(train + val, test, test), extra={**spec.extra, "validation": "test"})

    def source_key(self) -> dict[str, Any]:
        """Return the published data set, the split, and the version of RDKit that builds the graphs."""
        return {
            "address": self.address,
            "held_out": self.held_out,
            "split_seed": self.split_seed if self.held_out else 0,
            "rdkit": rdBase.rdkitVersion,
        }

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Fetch the archive, and build the graphs part by part."""
        name, folder = self.spec.name, Path(self.root, self.spec.name)
        inside = {_DATA: f"{self.published_name}/raw/{_DATA}", _SPLIT: f"{self.published_name}/{_SPLIT}"}
        advice = "NCI and QM9 need no download."
        paths = fetch_members(self.address, folder, inside, what=name, md5=self.checksum, advice=advice)
        data = read_table_file(paths[_DATA], {"smiles": str, "homolumogap": float})
        split = load_split_dict(paths[_SPLIT], ("train", "valid"), len(data))
        order = permutation(len(split["train"]), self.split_seed)
        val, train = (np.sort(part) for part in np.split(order, [self.held_out]))
        rows = {"train": split["train"][train], "val": split["train"][val], "test": split["valid"]}
        if not self.held_out:
            rows["val"] = rows["test"]
        return {part: self._parts(data, chosen, paths[_DATA], part) for part, chosen in rows.items()}

    def _parts(self, data: pd.DataFrame, rows: np.ndarray, path: Path, split: str) -> Iterator[GraphTable]:
        smiles, gap = data["smiles"].to_numpy()[rows].tolist(), data["homolumogap"].to_numpy(np.float64)[rows]
        if np.isnan(gap).any():
            raise CorruptData(
                f"{path} lacks the target of molecule {rows[np.isnan(gap).argmax()]} of the {split} split."
            )
        description, done = f"Reading {self.spec.name} {split}", 0
        parts = read_parts(smiles, Recipe("ogb"), description=description, size=_PART)
        with progress(description, len(smiles), "molecules") as advance:
            for arrays in parts:
                stop = min(done + _PART, len(smiles))
                # Line numbers start at 1, and the first line is the header.
                problems = [RowProblem(kind, int(rows[row]) + 2, detail) for row, kind, detail in arrays.problems]
                refuse_problems(problems, str(path), len(data), "Fetch the file again, or use another RDKit.")
                texts = {"smiles": smiles[done:stop], "id": [str(row) for row in rows[done:stop]]}
                yield with_text(with_targets(to_table(arrays), gap[done:stop]), texts)
                advance(stop - done)
                done = stop


class PCQM4Mv2(LargeScaleChallenge):
    """3,452,151 labelled molecules of PubChemQC and their HOMO-LUMO gaps in eV (OGB-LSC, NeurIPS 2021 to 2022).

    Args:
        held_out: training molecules used for validation; the test split is the challenge's validation split.
        split_seed: seed of their choice.
        options: see `GraphBenchmark`.
    """

    address: ClassVar[str] = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip"
    checksum: ClassVar[str] = "65b742bafca5670be4497499db7d361b"
    published_name: ClassVar[str] = "pcqm4m-v2"
    spec = specs.PCQM4M_V2


class PCQM4M(LargeScaleChallenge):
    """3,426,030 labelled molecules of the first challenge (PCQM4M-LSC, KDD Cup 2021), HOMO-LUMO gap in eV.

    It is superseded by `PCQM4Mv2`, and serves for comparison with results published on it (DeepGraph, Graphormer).

    Args:
        held_out: training molecules used for validation; the test split is the challenge's validation split.
        split_seed: seed of their choice.
        options: see `GraphBenchmark`.
    """

    address: ClassVar[str] = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m_kddcup2021.zip"
    checksum: ClassVar[str] = "5144ebaa7c67d24da1a2acbe41f57f6a"
    published_name: ClassVar[str] = "pcqm4m_kddcup2021"
    spec = specs.PCQM4M
