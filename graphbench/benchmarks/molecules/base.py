"""What all benchmarks of molecules with SMILES have in common."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from graphbench.benchmarks.molecules.chemistry.baselines import logistic_baseline, ridge_baseline
from graphbench.benchmarks.molecules.chemistry.features import FeatureSet
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
from graphbench.benchmarks.molecules.chemistry.tables import TEXTS, read_text, without
from graphbench.benchmarks.molecules.inputs import SmilesInput
from graphbench.contracts import SPLITS, GraphTable
from graphbench.data.entry import Entry
from graphbench.errors import BadInput, check_choice

logger = logging.getLogger(__name__)
#: Labels of the training split up to which a logistic regression is fitted; MolHIV has 33,000, MolPCBA 45 million.
_MOST_LABELS = 200_000
_LOGISTIC = "logistic regression on Morgan counts"


class MoleculeBenchmark(SmilesInput):
    """Base of benchmarks that store the texts `smiles` and `id` of every molecule; batches do not carry them.

    Args:
        options: see `GraphBenchmark`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._with_texts: dict[str, GraphTable] = {}

    def open_split(self, entry: Entry, split: str) -> GraphTable:
        """One split with all encodings; its texts are set aside."""
        table = super().open_split(entry, split)
        self._with_texts[split] = table
        return without(table, TEXTS)

    def smiles(self, split: str) -> list[str]:
        """SMILES of every molecule of a split, in the order of its rows, as the source spells them.

        Raises:
            BadInput: the data are not open, or their source has no SMILES.
        """
        return self._texts(split, "smiles")

    def ids(self, split: str) -> Sequence[Any]:
        """Names of the molecules of a split, in the order of its rows; row numbers where the source has no names."""
        if split in self._with_texts and "id" not in self._with_texts[split].columns:
            return super().ids(split)
        return self._texts(split, "id")

    def baseline_predictions(self) -> dict[str, dict[str, np.ndarray]]:
        """Training mean or majority class; ridge (or logistic) regression on Morgan counts for sources with SMILES."""
        found = super().baseline_predictions()
        kind = self.spec.kind
        if self.spec.level != "graph" or "smiles" not in self._with_texts["train"].columns:
            return found
        targets = [self.tables[split].columns["y"].numpy() for split in SPLITS]
        smiles = [self._used(split) for split in SPLITS]
        if kind == "regression":
            pairs = [part for pair in zip(smiles, targets, strict=True) for part in pair]
            ridge = ridge_baseline(*pairs, num_bits=None)  # type: ignore[arg-type]
            assert ridge.val_prediction is not None
            return found | {ridge.name: {"val": ridge.val_prediction, "test": ridge.prediction}}
        if targets[0].size > _MOST_LABELS:
            logger.info(
                "%s: no logistic regression beside the model, which would take long on %d labels.",
                self.spec.name, targets[0].size,
            )  # fmt: skip
            return found
        val, test = logistic_baseline(smiles, targets, self.spec.num_classes)
        return found | {_LOGISTIC: {"val": val, "test": test}}

    def baseline_answers(self, count: int, texts: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """As `baseline_predictions`, of new molecules by their SMILES."""
        found = super().baseline_answers(count)
        targets = [self.tables[split].columns["y"].numpy() for split in ("train", "val")]
        if texts is None or self.spec.level != "graph" or "smiles" not in self._with_texts["train"].columns:
            return found
        smiles = [self._used("train"), self._used("val"), texts]
        if self.spec.kind == "regression":
            unknown = np.full((len(texts), self.spec.num_targets), np.nan)
            pairs = [part for pair in zip(smiles, [*targets, unknown], strict=True) for part in pair]
            ridge = ridge_baseline(*pairs, num_bits=None)  # type: ignore[arg-type]
            return found | {ridge.name: ridge.prediction}
        if targets[0].size > _MOST_LABELS:
            return found
        return found | {_LOGISTIC: logistic_baseline(smiles, targets, self.spec.num_classes)[1]}

    def seen_in_training(self, texts: Sequence[str]) -> np.ndarray | None:
        """Return which molecules are among those of training: equal to the model, isotopes and map numbers aside."""
        if "smiles" not in self._with_texts["train"].columns:
            return None
        trained = set(self._canonical(self._used("train")).values())
        here = self._canonical(texts)
        return np.array([here.get(row) in trained for row in range(len(texts))], dtype=bool)

    def _canonical(self, smiles: Sequence[str]) -> dict[int, str]:
        """Canonical SMILES of what the features show, by the place of the molecule."""
        recipe = Recipe(cast(FeatureSet, self.spec.extra["atom_vocabulary"]), canonical=True)
        arrays = read_molecules(smiles, recipe, description=f"Comparing molecules with those of {self.spec.name}")
        return dict(zip(arrays.rows.tolist(), arrays.canonical_list(), strict=True))

    def _used(self, split: str) -> list[str]:
        """SMILES of the molecules that `train_fraction` leaves in a split, in the order of its table."""
        smiles, rows = self.smiles(split), self.tables[split].graph_ids
        return smiles if rows is None else [smiles[row] for row in rows.tolist()]

    def _texts(self, split: str, name: str) -> list[str]:
        check_choice(f"{self.spec.name}: split", split, SPLITS)
        if split not in self._with_texts:
            raise BadInput(f"{self.spec.name} is not open yet: call prepare_data() and setup() first.")
        if name not in self._with_texts[split].columns:
            raise BadInput(f"{self.spec.name}: the source of these graphs has no {name}: {self.spec.source}")
        return read_text(self._with_texts[split], name)
