"""Store the score that a configuration expects of its runs, and compare runs with it.

    expected:
      metric: test/MAE
      value: 0.070
      sd: 0.004
      source: GraphGPS, table 2
      parameters: 423717
      epochs: 2000
      weights: {page: ..., file: ..., layout: ...}    # where the authors released theirs, see `ReleasedWeights`

A run that differs from the recipe in an option that determines the score, such as its data, lists it in `altered` of
its `config.yaml`, and is not compared.

An overlay that changes the model names itself in `variant`; its expected score is then in `variants` of the recipe
that it changes, so that a score is never compared with that of another model.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.errors import BadInput, check_choice

#: Origin of graphs: published files, generated here, or files of a package or the user; `redrawn`: validation and test
#: graphs are the published ones, and training graphs are another sample of the same set.
Data = Literal["published", "generated", "local", "redrawn"]
_EXAMPLE = "metric: test/MAE"


@dataclass(frozen=True)
class Variant:
    """Score expected of the model that an overlay defines.

    Args:
        value: score.
        sd: its standard deviation over seeds.
        parameters: trainable parameters.
        source: reference of the score, by default that of the recipe.
    """

    value: float | None = None
    sd: float | None = None
    parameters: int | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        _check_deviation(self.sd)


@dataclass(frozen=True)
class ReleasedWeights:
    """Checkpoint that the authors of a model released, for `graphbench test --weights official`.

    Args:
        page: address where the authors offer it.
        file: its name.
        layout: `module:function` that maps the content of the file, and the `state_dict` of the recipe's model, to a
            new `state_dict` of the model; it raises `BadInput` unless it uses every tensor of both.
        url: address of the file; None if it must be fetched by hand.
        member: pattern of the checkpoint's path in an archive; if several match, that of the last epoch is used.
        sha256: hash of the file in hexadecimal, as printed by the authors.
    """

    page: str
    file: str
    layout: str
    url: str | None = None
    member: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Expected:
    """Score that a run of a configuration should reach, with its source and conditions.

    Args:
        metric: logged name: `test/MAE`.
        value: score in the unit of the log, so 0.72 for 72 %.
        sd: its standard deviation over seeds.
        source: reference of the score.
        parameters: trainable parameters of the model.
        epochs: epochs of training for the score.
        steps: optimizer steps of training for the score.
        data: origin of the graphs: `published` files, `generated` here, `local` files of a package or the user, or
            `redrawn` only in training.
        hardware: of the source, or of a run here.
        cost: duration on that hardware.
        variant: name of the overlay that changed the model.
        variants: name of an overlay -> the score expected with it.
        weights: checkpoint that the authors released for this recipe.
        altered: descriptions of options that determine the score and differ from the recipe; `fit` writes them into the
            run's configuration, and such a run is not compared.
        resumed: descriptions of options changed when the run resumed, with the steps; such a run is not compared.
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
    weights: ReleasedWeights | None = None
    altered: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.metric is not None and self.metric.partition("/")[0] not in ("val", "test"):
            raise BadInput(f"expected.metric {self.metric}: must begin with val/ or test/, such as test/MAE.")
        _check_deviation(self.sd)

    @classmethod
    def parse(cls, content: Any, where: str) -> Expected:
        """Parse the mapping in a file, `where` for messages.

        Raises:
            BadInput: a key or the kind of data is unknown.

        Examples:
            >>> Expected.parse({"metric": "test/MAE", "value": 0.07}, "zinc.yaml").value
            0.07
        """
        if content is None:
            return cls()
        keys, of_variants, of_weights = (
            [one.name for one in dataclasses.fields(kind)] for kind in (cls, Variant, ReleasedWeights)
        )
        check_keys(content, keys, f"{where}: expected", _EXAMPLE)
        variants, released = content.get("variants") or {}, content.get("weights")
        if not isinstance(variants, Mapping):
            raise BadInput(f"{where}: expected.variants must be a mapping of overlays to scores, not {variants!r}.")
        for name, variant in variants.items():
            check_keys(variant, of_variants, f"{where}: expected.variants.{name}", _EXAMPLE)
        if content.get("data") is not None:
            check_choice(f"{where}: expected.data", content["data"], get_args(Data))
        if released is not None:
            check_keys(released, of_weights, f"{where}: expected.weights")
            if lacking := [name for name in ("page", "file", "layout") if not released.get(name)]:
                raise BadInput(f"{where}: expected.weights lacks {' and '.join(lacking)}.")
            released = ReleasedWeights(**released)
        made = {name: Variant(**variant) for name, variant in variants.items()}
        return cls(**{**content, "variants": made, "weights": released})

    @property
    def chosen(self) -> Expected:
        """Return the score expected of the current model: that of the recipe, or of an overlay's variant.

        Examples:
            >>> recipe = Expected("test/MAE", 0.078, variants={"no-deepnorm": Variant(0.080)})
            >>> dataclasses.replace(recipe, variant="no-deepnorm").chosen.value
            0.08
            >>> dataclasses.replace(recipe, variant="another").chosen.value is None
            True
        """
        if self.variant is None:
            return self
        # Released weights and the other variants belong to the recipe's model.
        variant = dataclasses.asdict(self.variants.get(self.variant, Variant()))
        variant["source"] = variant["source"] or self.source
        return dataclasses.replace(self, **variant, variant=None, variants={}, weights=None)


def _check_deviation(sd: float | None) -> None:
    if sd is not None and not sd > 0:
        raise BadInput(f"expected.sd {sd}: must be positive; omit it if none is known.")


def check_keys(content: Any, keys: Sequence[str], where: str, example: str = "") -> Mapping[str, Any]:
    """Return `content`; raise `BadInput` if it is not a mapping or has an unknown key."""
    if not isinstance(content, Mapping):
        raise BadInput(f"{where} must be a mapping{f' such as {example!r}' if example else ''}, not {content!r}.")
    for key in content:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(f"{where} has no key {key!r}.{hint} Known: {', '.join(dict.fromkeys(keys))}.")
    return content


def kind_of_data(spec: BenchmarkSpec) -> Data:
    """Return the origin of a benchmark's graphs."""
    if spec.source.startswith("generated"):
        return "generated"
    if spec.extra.get("training") == "redrawn":
        return "redrawn"
    return "local" if spec.offline else "published"


def stands_for(data: str, wanted: str | None) -> bool:
    """Tell whether a score on graphs of one origin is comparable with one on graphs of another.

    Redrawn graphs are comparable with published ones: they are a sample of the same size from the same set, only for
    training.

    Examples:
        >>> stands_for("redrawn", "published"), stands_for("local", "published"), stands_for("local", None)
        (True, False, True)
    """
    return not wanted or data == wanted or (data, wanted) == ("redrawn", "published")


@dataclass(frozen=True)
class Obtained:
    """Scores of a run and their conditions.

    Args:
        scores: logged name -> score.
        parameters: trainable parameters.
        epochs: finished epochs; None if not recorded.
        steps: optimizer steps; None if not recorded.
        data: origin of its graphs.
        higher_is_better: whether a larger value of the expected metric is better.
        ended_by_rate: whether the schedule stopped training, which is then complete after any number of epochs.
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
    """A score and the expected one, with the improvement (negative if worse), or obstacles to a comparison."""

    metric: str
    obtained: float
    value: float
    sd: float | None
    source: str
    better: float
    obstacles: tuple[str, ...] = ()

    @property
    def deviations(self) -> float | None:
        """Return the difference in standard deviations; None if unknown or not comparable."""
        return None if self.sd is None or self.obstacles else abs(self.better) / self.sd

    @property
    def verdict(self) -> str:
        """Say whether the score is the expected one, or why they are not comparable."""
        if self.obstacles:
            return f"not comparable: {'; '.join(self.obstacles)}"
        if not math.isfinite(self.obtained):
            return "not reached: the score is not finite"
        gap = f"{self._show(abs(self.better))} {'better' if self.better >= 0 else 'worse'}"
        if self.deviations is None:
            return f"{gap}; no standard deviation is known"
        # the tolerance keeps a score that is on a bound from exceeding it by rounding
        for bound, words in ((1, "within one standard deviation"), (2, "within two standard deviations")):
            if self.deviations <= bound * (1 + 1e-9):
                return f"{words} ({gap})"
        return f"beyond two standard deviations ({gap})"

    @property
    def expected(self) -> str:
        """Format the expected score with its standard deviation."""
        return self._show(self.value) + (f" ± {self._show(self.sd)}" if self.sd is not None else "")

    def _show(self, number: float) -> str:
        """Format a number with as many decimals as all numbers of this comparison have.

        There are four, more for a small score or standard deviation, and fewer beyond the seven digits of float32.
        """
        value, sd = (
            math.floor(math.log10(abs(one))) if one and math.isfinite(one) else 0 for one in (self.value, self.sd)
        )
        decimals = min(max(4, 2 - value), max(0, 6 - value))
        return f"{number:.{max(decimals, -sd)}f}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the verdict, for `results.json`."""
        return dataclasses.asdict(self) | {"verdict": self.verdict}

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"{self.metric} {self._show(self.obtained)}, expected {self.expected}{source}: {self.verdict}."


def compare(expected: Expected, obtained: Obtained) -> Comparison | None:
    """Compare a run with the score that its configuration expects.

    Return None if no score is expected, the run differs from its recipe, or the metric was not scored.

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
    # Not trained like the recipe, so a comparison would be meaningless.
    if expected.altered or expected.resumed:
        return None
    score = obtained.scores[chosen.metric]
    better = (score - chosen.value) * (1 if obtained.higher_is_better else -1)
    return Comparison(
        chosen.metric, score, chosen.value, chosen.sd, chosen.source or "", better, _obstacles(chosen, obtained)
    )


def _obstacles(expected: Expected, obtained: Obtained) -> tuple[str, ...]:
    """Say why a score is not comparable: another model, shorter training, or other data."""
    obstacles = []
    if expected.parameters is not None and obtained.parameters not in (None, expected.parameters):
        obstacles.append(f"{obtained.parameters:,} parameters where {expected.parameters:,} are expected")
    for unit in ("epochs", "steps") if not obtained.ended_by_rate else ():
        full, done = getattr(expected, unit), getattr(obtained, unit)
        if full is not None and done is None:
            obstacles.append(f"the number of {unit} is not recorded, {full:,} are expected")
        elif full is not None and done < full:
            obstacles.append(f"{done:,} of {full:,} {unit}")
    if not stands_for(obtained.data, expected.data):
        obstacles.append(f"{obtained.data} data where {expected.data} ones are expected")
    return tuple(obstacles)
