"""Manage a study in the folder of `graphbench tune`, for several processes and machines at a time, and after kills.

    study.journal  storage.json  trials/NUMBER/  best.yaml  trials.csv  report.html

The next process that requests a trial resumes that of a killed one: every process records its name in its trials, and
has a heartbeat, see `workers`.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbench.errors import BadInput, CorruptData, MissingExtra
from graphbench.experiments.tuning import workers
from graphbench.experiments.tuning.space import Space
from graphbench.experiments.tuning.storage import FolderLock, open_storage
from graphbench.runs import RunFolder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

log = logging.getLogger(__name__)

#: Optuna's defaults: random trials before the sampler learns, and complete trials before any is pruned.
_RANDOM_TRIALS, _UNPRUNED_TRIALS = 10, 5


def require_optuna() -> None:
    """Raise `MissingExtra` unless Optuna is installed."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("optuna", "tune", "graphbench tune") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Begun:
    """A new or resumed Optuna trial, with all its options and the folder of its run."""

    trial: Trial
    run: RunFolder

    @property
    def number(self) -> int:
        """Return its number, from 0."""
        return self.trial.number

    @property
    def pruned(self) -> bool:
        """Return whether the study pruned it, even if its process was killed afterwards."""
        return "pruned_in_epoch" in self.trial.user_attrs


class Study:
    """Trials of one space in one folder.

    Args:
        folder: of the study; created if missing.
        space: options to search.
        facts: the resolved configuration by dotted names, which must not change between calls.
        data: what identifies the data, by dotted names, which also must not change.
        metric: logged name of the score.
        maximize: whether the best score is the largest.
        seed: of the sampler, combined with a trial's number.
        prune: whether to stop poor trials.
        storage: URL of a database; None for a journal in the folder.

    Raises:
        BadInput: the folder has a study of another space or configuration, or a run; or the database does not exist.
        CorruptData: the journal is damaged.
        MissingExtra: Optuna is not installed.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        facts: Mapping[str, Any],
        metric: str,
        maximize: bool,
        seed: int = 0,
        prune: bool = True,
        storage: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        require_optuna()
        if RunFolder(folder).config.is_file():
            raise BadInput(f"--run {folder}: this folder has the run of a fit; name another for the study.")
        self.folder, self.space, self.metric, self.maximize = folder, space, metric, maximize
        self._seed, self._prune = seed, prune
        self._worker = workers.Worker(folder / ".workers")
        # Optuna guards single calls; finding a trial and claiming it are two.
        self._lock = FolderLock(folder / ".trials")
        try:
            with self._lock.held():
                self._study = self._open(storage)
                self._check_same(facts, data or {})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the trials of this process to others."""
        self._worker.close()

    def _open(self, url: str | None) -> Any:
        """Open or create the Optuna study."""
        import optuna

        storage, name = open_storage(self.folder, url)
        pruner = optuna.pruners.MedianPruner(_UNPRUNED_TRIALS) if self._prune else optuna.pruners.NopPruner()
        try:
            return optuna.create_study(
                storage=storage,
                study_name=name,
                direction="maximize" if self.maximize else "minimize",
                pruner=pruner,
                load_if_exists=True,
            )
        except (RuntimeError, ValueError) as error:
            first = str(error).strip().partition("\n")[0]
            raise CorruptData(f"The study of {self.folder} cannot be read: {first}") from error

    def _check_same(self, facts: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Store space, configuration and data in a new study, or compare them with those of an existing one."""
        space = {option: entry.as_dict() for option, entry in self.space.items()}
        now = {"space": space, "configuration": dict(facts), "data": dict(data)}
        # As returned by the storage, which converts tuples to lists.
        now = json.loads(json.dumps(now, default=str))
        before = self._study.user_attrs.get("of")
        if before is None:
            self._study.set_user_attr("of", now)
            return
        for part, flag in (
            ("space", "--space"),
            ("configuration", "the configuration"),
            ("data", "the content of the data"),
        ):
            if part not in before:  # earlier versions did not store what identifies the data
                continue
            differing = [
                f"{name} was {before[part].get(name, 'absent')}, now {now[part].get(name, 'absent')}"
                for name in dict.fromkeys((*before[part], *now[part]))
                if before[part].get(name) != now[part].get(name)
            ]
            if differing:
                raise BadInput(
                    f"{flag} is not that of the study in {self.folder}: {'; '.join(differing[:3])}. Name another "
                    "--run, or continue with the earlier settings."
                )

    def next(self, total: int) -> Begun | None:
        """Return a trial whose process is gone, else a new one; None once the study has `total` trials in any state.

        Before returning None, wait for processes of other machines that have missed heartbeats.
        """
        while True:
            with self._lock.held():
                if (begun := self._next(total)) is not None:
                    return begun
                owners = [trial.user_attrs.get("worker", "") for trial in self._running()]
            if not any(map(self._worker.is_doubtful, owners)):
                return None
            time.sleep(workers.BEAT)

    def _next(self, total: int) -> Begun | None:
        import optuna

        for left in self._running():
            if not self._worker.is_alive(left.user_attrs.get("worker", "")):  # "": killed before it was recorded
                log.info("Trial %d was left by its process: resuming it.", left.number)
                self._use_sampler(left.number)  # it may have been left before its options were chosen
                # Optuna has no public way to continue a running trial.
                return self._begin(optuna.trial.Trial(self._study, left._trial_id))
        count = len(self.trials())
        if count >= total:
            return None
        self._use_sampler(count)
        return self._begin(self._study.ask())

    def _use_sampler(self, number: int) -> None:
        """Draw the options of trial `number` from its own sampler, so that they do not depend on interruptions."""
        import optuna

        self._study.sampler = optuna.samplers.TPESampler(
            seed=(self._seed * 1_000_003 + number) % 2**32, n_startup_trials=_RANDOM_TRIALS
        )

    def _running(self) -> list[FrozenTrial]:
        """Return the trials that have started and not finished."""
        from optuna.trial import TrialState

        return [trial for trial in self.trials() if trial.state == TrialState.RUNNING]

    def _begin(self, trial: Trial) -> Begun:
        """Choose the options that a trial does not have yet, and record this process as its owner."""
        trial.set_user_attr("worker", self._worker.name)
        for option, entry in self.space.items():
            # A resumed trial keeps its value.
            trial._suggest(option, entry.distribution())
        return Begun(trial, RunFolder(self.folder / "trials" / str(trial.number)))

    def finish(self, begun: Begun, score: float | None, problem: str = "") -> None:
        """Record the outcome of a trial, unless another process took it over because this one seemed gone.

        The score is the best one in validation; None if the trial failed, for the reason `problem`.
        """
        from optuna.trial import TrialState

        with self._lock.held():
            now = self.trials()[begun.number]
            if now.state != TrialState.RUNNING or now.user_attrs.get("worker") != self._worker.name:
                log.warning("Trial %d was taken over by another process, whose outcome counts.", begun.number)
                return
            if begun.pruned:
                self._study.tell(begun.trial, state=TrialState.PRUNED)
            elif score is None or not math.isfinite(score):
                begun.trial.set_user_attr("problem", problem or f"{self.metric} is not a number")
                self._study.tell(begun.trial, state=TrialState.FAIL)
            else:
                self._study.tell(begun.trial, score)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number."""
        # Trials are not modified here, so none is copied.
        trials: list[FrozenTrial] = self._study.get_trials(deepcopy=False)
        return trials

    def ended(self) -> list[int]:
        """Return the numbers of all trials that are over, in any state."""
        return [trial.number for trial in self.trials() if trial.state.is_finished()]

    def best(self) -> FrozenTrial | None:
        """Return the finished trial with the best score, the first of equal ones; None if there is none."""
        from optuna.trial import TrialState

        done = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE and trial.value is not None]
        sign = -1 if self.maximize else 1
        return min(done, key=lambda trial: sign * (trial.value or 0.0), default=None)

    def importances(self) -> dict[str, float]:
        """Return the share of the scores' variance that each option explains (fANOVA; Hutter et al., 2014).

        Empty without two finished trials with different scores.
        """
        import optuna

        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        done = [trial for trial in self.trials() if trial.state == optuna.trial.TrialState.COMPLETE]
        if len({trial.value for trial in done}) < 2:
            return {}
        return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))
