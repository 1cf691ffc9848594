"""Score a trained model on a labelled file outside of its splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from graphbench.contracts import InputPart
from graphbench.data.columns import to_exact_float
from graphbench.errors import BadInput
from graphbench.inference.answers import Answers, answer_table
from graphbench.inference.columns import target_columns
from graphbench.inference.predictor import Predictor, targets_of
from graphbench.training.baselines import scores_of_predictions

IN_TRAINING = "in_training"
_NAMED = 3  # rows that an error names


@dataclass
class ExternalResult:
    """Result of `ExternalScores`.

    Args:
        rows: of the file.
        scored: rows (nodes for node tasks) with a label and a prediction.
        unlabelled: rows (or nodes) with a prediction and no label.
        failed: rows that cannot be scored.
        in_training: scored rows that equal a training graph; None if unknown.
        scores: metric -> value.
        undefined: metric -> why it has no value.
        baselines: name -> metric -> value, for models fitted on the training part.
    """

    rows: int = 0
    scored: int = 0
    unlabelled: int = 0
    failed: int = 0
    in_training: int | None = None
    scores: dict[str, float] = field(default_factory=dict)
    undefined: dict[str, str] = field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)


class ExternalScores:
    """Score a model on an input that has labels, part by part.

    Args:
        predictor: the model.
        source: the input, for messages.
        column: of the input, as for `Benchmark.read_labelled`.
        skip: skip rows that cannot be scored instead of raising an error.
        opened: whether the benchmark's data are open, so that its training part can be compared.
    """

    def __init__(
        self, predictor: Predictor, source: str, column: str | None = None, skip: bool = False, opened: bool = False
    ) -> None:
        predictor.check_task()
        self.predictor, self.source, self.column, self.skip, self.opened = predictor, source, column, skip, opened
        self.result = ExternalResult()
        self._predictions: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []
        self._texts: list[str] | None = []

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield what `predict --input` writes for each part, with `target_NAME` and, if known, `in_training`.

        Raises:
            BadInput: the input cannot be read or lacks a target; a row cannot be scored, unless such rows are skipped;
                or no row has a label.
        """
        for part in self.predictor.data.read_labelled(self.source, self.column):
            answers = self.predictor.answers(part)
            self._refuse(answers)
            yield self._frame(part, answers)
        if not self.result.scored:
            names = ", ".join(self.predictor.data.target_labels())
            failed = f", and {self.result.failed:,} cannot be scored" if self.result.failed else ""
            raise BadInput(
                f"--input {self.source}: none of its {self.result.rows:,} rows has a label ({names}){failed}."
            )

    def finish(self) -> ExternalResult:
        """Return the scores, once `frames` is exhausted."""
        task = self.predictor.module.task
        predictions = torch.from_numpy(np.concatenate(self._predictions))
        targets = torch.from_numpy(to_exact_float(np.concatenate(self._targets)))
        scores, undefined = scores_of_predictions(task, predictions, targets, self.predictor.device)
        self.result.scores, self.result.undefined = scores, undefined
        if self.opened:
            answers = self.predictor.data.baseline_answers(len(targets), self._texts)
            for name, values in answers.items():
                self.result.baselines[name], _ = scores_of_predictions(
                    task, torch.from_numpy(values), targets, self.predictor.device
                )
        return self.result

    def _refuse(self, answers: Answers) -> None:
        if not answers.problems or self.skip:
            return
        named = sorted(answers.problems)[:_NAMED]
        listed = "; ".join(f"row {self.result.rows + row + 1:,}: {answers.problems[row]}" for row in named)
        more = len(answers.problems) - len(named)
        raise BadInput(
            f"--input {self.source}: rows cannot be scored: {listed}{f'; and {more:,} more' if more else ''}. Correct "
            "them, or skip them with --on-error skip."
        )

    def _frame(self, part: InputPart, answers: Answers) -> pd.DataFrame:
        width = answers.values.shape[1]
        targets = self._targets_of(part, answers)
        mask = ~np.isnan(targets).all(1)
        seen = self._note(part, answers, targets, mask)
        # One array for both, so that rows stay together; answers get their own type back for display.
        kind, beside = answers.values.dtype, targets if seen is None else np.column_stack([targets, seen])
        answers.values = np.concatenate([answers.values, beside], 1)

        def columns(values: np.ndarray, present: np.ndarray) -> dict[str, Any]:
            shown = self.predictor.columns(values[:, :width].astype(kind), present)
            true = values[:, width : width + targets.shape[1]]
            shown |= target_columns(self.predictor.data, true, self.predictor.classes)
            if seen is not None:
                shown[IN_TRAINING] = pd.arrays.BooleanArray(values[:, -1] == 1, ~present)
            return shown

        return answer_table(part, answers, columns, self.predictor.level)

    def _targets_of(self, part: InputPart, answers: Answers) -> np.ndarray:
        """Return targets of the answered rows (or of their nodes), NaN if there is none: float64 `[values, T]`."""
        spec = self.predictor.data.spec
        width = 1 if spec.num_classes is not None else spec.num_targets
        if "y" not in part.table.columns:
            return np.full((len(answers.values), width), np.nan)
        y = targets_of(part, answers, self.predictor.level).astype(np.float64)
        # Classes are integers in tables, negative if unknown.
        return np.where(y < 0, np.nan, y) if spec.num_classes is not None else y

    def _note(self, part: InputPart, answers: Answers, targets: np.ndarray, mask: np.ndarray) -> np.ndarray | None:
        """Store what is scored; return which of the values are from training graphs, None if unknown."""
        result, data = self.result, self.predictor.data
        result.rows += len(part.frame)
        result.failed += len(answers.problems)
        result.scored += int(mask.sum())
        result.unlabelled += int((~mask).sum())
        self._predictions.append(answers.values[mask, : self.predictor.predicted])
        self._targets.append(targets[mask])
        texts = data.input_texts(part, self.column) if self.opened and self.predictor.level == "graph" else None
        if texts is None or self._texts is None:
            self._texts = None
            return None
        answered = set(answers.rows)
        texts = [text for row, text in zip(part.rows, texts, strict=True) if row in answered]
        self._texts += [text for text, labelled in zip(texts, mask.tolist(), strict=True) if labelled]
        seen = data.seen_in_training(texts)
        if seen is not None:
            result.in_training = (result.in_training or 0) + int((seen & mask).sum())
        return seen
