"""What a configuration expects of its runs, as data, and whether a run reached it.

    expected:
      metric: test/MAE
      value: 0.070
      sd: 0.004
      source: GraphGPS, table 2
      parameters: 423717
      epochs: 2000

A run that differs from the recipe in an option that decides the score, such as its data, says so in `altered` of its
own `config.yaml`, and is held against nothing.

An overlay that changes the model names itself in `variant`; what is expected of it then comes from `variants` of the
recipe that it goes over, so that a score is never held against one of another model.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.errors import BadInput, check_choice

#: Where graphs are from: published files, sampled here, files of a package or of one's own; `redrawn`: validation and
#: test are the published ones, and training graphs another sample of the set that the published ones were drawn from.
Data = Literal["published", "generated", "local", "redrawn"]


@dataclass(frozen=True)
class Variant:
    """What is expected where an overlay changes the model.

    Args:
        value: score.
        sd: its standard deviation over seeds.
        parameters: trainable parameters.
        source: where the score stands, if not where that of the recipe does.
    """

    value: float | None = None
    sd: float | None = None
    parameters: int | None = None
    source: str | None = None


@dataclass(frozen=True)
class Expected:
    """What a run of a configuration should reach, by whose word, and under which conditions.

    Args:
        metric: what is scored, as it is logged: `test/MAE`.
        value: score in the unit of the log, so 0.72 for 72 %.
        sd: its standard deviation over seeds.
        source: where the score stands.
        parameters: trainable parameters of the model.
        epochs: epochs that the score took.
        steps: optimizer steps that the score took.
        data: which graphs the score is of: `published` files, graphs `generated` here, or `local` ones: files of a
            package or of one's own.
        hardware: what the source, or a run here, was computed on.
        cost: how long it took there.
        variant: name of the overlay that changed the model.
        variants: name of an overlay -> what is expected with it.
        altered: options that decide the score and that a run gives other values than the recipe, in words; `fit` writes
            them into the run's configuration, and nothing is expected of such a run.
        resumed: options that were changed while the run was continued, with the steps, in words; so are these.
    """

    metric: str | None = None
    value: float | None = None
    sd: float | None = None
    source: str | None = None
    parameters: int | None = None
    epochs: int | None = None
    steps: int | None = None
    data: Data | None = None
    hardware: str | None = None
    cost: str | None = None
    variant: str | None = None
    variants: dict[str, Variant] = field(default_factory=dict)
    altered: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.metric is not None and self.metric.partition("/")[0] not in ("val", "test"):
            raise BadInput(f"expected.metric {self.metric}: must begin with val/ or test/, such as test/MAE.")
        if self.sd is not None and not self.sd > 0:
            raise BadInput(f"expected.sd {self.sd}: must be positive; leave it out where none is known.")

    @classmethod
    def parse(cls, content: Any, where: str) -> Expected:
        """From the mapping in a file.

        Raises:
            BadInput: a key is unknown, which is named, or the kind of data is.

        Examples:
            >>> Expected.parse({"metric": "test/MAE", "value": 0.07}, "zinc.yaml").value
            0.07
        """
        if content is None:
            return cls()
        _check_keys(content, cls, where, "expected")
        variants = content.get("variants") or {}
        for name, variant in variants.items():
            _check_keys(variant, Variant, where, f"expected.variants.{name}")
        if content.get("data") is not None:
            check_choice(f"{where}: expected.data", content["data"], get_args(Data))
        made = {name: Variant(**variant) for name, variant in variants.items()}
        return cls(**{**content, "variants": made})

    @property
    def chosen(self) -> Expected:
        """What is expected of the model at hand: that of the recipe, or of the variant that an overlay made of it.

        Examples:
            >>> recipe = Expected("test/MAE", 0.078, variants={"no-deepnorm": Variant(0.080)})
            >>> dataclasses.replace(recipe, variant="no-deepnorm").chosen.value
            0.08
            >>> dataclasses.replace(recipe, variant="another").chosen.value is None
            True
        """
        if self.variant is None:
            return self
        own = self.variants.get(self.variant, Variant())
        return dataclasses.replace(
            self,
            value=own.value,
            sd=own.sd,
            parameters=own.parameters,
            source=own.source or self.source,
            variant=None,
            variants={},
        )


def _check_keys(content: Any, of: type[Any], where: str, key: str) -> None:
    """Raises `BadInput` where a mapping is none, or has a key that the class does not know."""
    if not isinstance(content, Mapping):
        raise BadInput(f"{where}: {key} must be a mapping such as 'metric: test/MAE', not {content!r}.")
    known = [one.name for one in dataclasses.fields(of)]
    for name in content:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(f"{where}: {key} has no key {name!r}.{hint} Known: {', '.join(known)}.")


def kind_of_data(spec: BenchmarkSpec) -> Data:
    """Where the graphs of a benchmark are from, by its description."""
    if spec.source.startswith("generated"):
        return "generated"
    if spec.extra.get("training") == "redrawn":
        return "redrawn"
    return "local" if spec.offline else "published"


def stands_for(data: str, wanted: str | None) -> bool:
    """Whether a score on graphs of one origin compares with one on graphs of another.

    Scores are taken on the published test graphs where training graphs alone are redrawn: another sample of the same
    size from the same set.

    Examples:
        >>> stands_for("redrawn", "published"), stands_for("local", "published"), stands_for("local", None)
        (True, False, True)
    """
    return not wanted or data == wanted or (data, wanted) == ("redrawn", "published")


@dataclass(frozen=True)
class Obtained:
    """What a run reached.

    Args:
        scores: logged name -> score.
        parameters: trainable parameters.
        epochs: finished; None where it is not recorded.
        steps: optimizer steps; None where it is not recorded.
        data: where its graphs are from.
        higher_is_better: whether more of the benchmark's metric is better.
        ended_by_rate: the schedule ended the training, which then is as long as it is to be, whatever the most epochs.
    """

    scores: Mapping[str, float]
    parameters: int | None = None
    epochs: int | None = None
    steps: int | None = None
    data: Data = "published"
    higher_is_better: bool = False
    ended_by_rate: bool = False


@dataclass(frozen=True)
class Comparison:
    """A score beside the expected one.

    Args:
        metric: as it is logged.
        obtained: score of the run.
        value: expected score.
        sd: its standard deviation; None where none is known.
        source: where it stands.
        better: by how much the run is better; negative where it is worse.
        obstacles: why the two do not compare; empty where they do.
    """

    metric: str
    obtained: float
    value: float
    sd: float | None
    source: str
    better: float
    obstacles: tuple[str, ...] = ()

    @property
    def deviations(self) -> float | None:
        """Standard deviations between the two; None where none is known or the scores do not compare."""
        return None if self.sd is None or self.obstacles else abs(self.better) / self.sd

    @property
    def verdict(self) -> str:
        """Whether the score is the expected one, or why that cannot be said."""
        if self.obstacles:
            return f"not comparable: {'; '.join(self.obstacles)}"
        if not math.isfinite(self.obtained):
            return "not reached: the score is not finite"
        how = f"{abs(self.better):.4f} {'better' if self.better >= 0 else 'worse'}"
        if self.deviations is None:
            return f"{how}; no standard deviation is known"
        # Rounding of decimal fractions must not push a score that lies on a bound over it.
        for bound, words in ((1, "within one standard deviation"), (2, "within two standard deviations")):
            if self.deviations <= bound * (1 + 1e-9):
                return f"{words} ({how})"
        return f"beyond two standard deviations ({how})"

    @property
    def expected(self) -> str:
        """The expected score with its standard deviation."""
        return f"{self.value:.4f}" + (f" ± {self.sd:.4f}" if self.sd is not None else "")

    def as_dict(self) -> dict[str, Any]:
        """For `results.json`, with the verdict."""
        return dataclasses.asdict(self) | {"verdict": self.verdict}

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"{self.metric} {self.obtained:.4f}, expected {self.expected}{source}: {self.verdict}."


def compare(expected: Expected, obtained: Obtained) -> Comparison | None:
    """Hold a run against what its configuration expects.

    Returns:
        The comparison; None where nothing is expected, the run is not the recipe's, or the metric was not scored.

    Examples:
        >>> expected = Expected("test/MAE", 0.070, 0.004, "GraphGPS, table 2", epochs=2000)
        >>> print(compare(expected, Obtained({"test/MAE": 0.072}, epochs=2000)))
        test/MAE 0.0720, expected 0.0700 ± 0.0040 (GraphGPS, table 2): within one standard deviation (0.0020 worse).
        >>> compare(expected, Obtained({"test/MAE": 0.3}, epochs=40)).verdict
        'not comparable: 40 of 2,000 epochs'
    """
    chosen = expected.chosen
    if chosen.metric is None or chosen.value is None or chosen.metric not in obtained.scores:
        return None
    if expected.altered or expected.resumed:
        return None
    score = obtained.scores[chosen.metric]
    better = (score - chosen.value) * (1 if obtained.higher_is_better else -1)
    return Comparison(
        chosen.metric, score, chosen.value, chosen.sd, chosen.source or "", better, _obstacles(chosen, obtained)
    )


def _obstacles(expected: Expected, obtained: Obtained) -> tuple[str, ...]:
    """Why a score does not compare: another model, a shorter training, other data."""
    found = []
    if expected.parameters is not None and obtained.parameters not in (None, expected.parameters):
        found.append(f"{obtained.parameters:,} parameters where {expected.parameters:,} are expected")
    for wanted, had, unit in (
        (expected.epochs, obtained.epochs, "epochs"),
        (expected.steps, obtained.steps, "steps"),
    ):
        if obtained.ended_by_rate:
            continue
        if wanted is not None and had is None:
            found.append(f"the number of {unit} is not recorded, {wanted:,} are expected")
        elif wanted is not None and had is not None and had < wanted:
            found.append(f"{had:,} of {wanted:,} {unit}")
    if not stands_for(obtained.data, expected.data):
        found.append(f"{obtained.data} data where {expected.data} ones are expected")
    return tuple(found)
