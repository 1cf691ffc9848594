"""Spaces of a study: how they are read, and the error for each bad one."""

import pytest

from graphbench.errors import BadInput
from graphbench.experiments.tuning.space import Choice, Range, arguments, probes, read_space

LR = "model.optimizer.init_args.lr"


def written(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return path


def test_ranges_and_values_are_read(tmp_path):
    space = read_space(
        written(
            tmp_path,
            f"{LR}: {{low: 1e-4, high: 0.01, log: true}}\n"  # YAML reads 1e-4 as text
            "--model.layers: {low: 2, high: 10, step: 4}\n"
            "model.local: {values: [GINE, null, [1, 2], 0.5]}\n",
        )
    )
    assert space == {
        LR: Range(1e-4, 0.01, log=True),
        "model.layers": Range(2, 10, step=4),
        "model.local": Choice(("GINE", "null", "[1, 2]", "0.5")),
    }
    assert space["model.layers"].whole
    assert not space[LR].whole
    assert list(probes(space))[:3] == [(LR, "0.0001"), (LR, "0.01"), ("model.layers", "2")]


def test_optuna_samples_what_the_space_says(tmp_path):
    optuna = pytest.importorskip("optuna")
    ranges = (
        "a: {low: 2, high: 10, step: 4}",
        "b: {low: 0.5, high: 1.0, step: 0.25}",
        "c: {low: 0.1, high: 0.3, step: 0.2}",
    )
    space = read_space(written(tmp_path, "\n".join(ranges)))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = [study.ask({name: entry.distribution() for name, entry in space.items()}).params for _ in range(40)]
    assert {params["a"] for params in found} == {2, 6, 10}
    assert {params["b"] for params in found} == {0.5, 0.75, 1.0}
    assert {params["c"] for params in found} == {0.1, 0.3}  # the only step is the whole range
    assert arguments(found[0])[0].startswith("--a=")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected OPTION: {values: ...]}"),
        ("- a", "expected OPTION"),
        ("a: [", "it is not YAML"),
        ("a: 3", "a is 3; expected {values: [...]} or {low: NUMBER"),
        ("a: {value: [1]}", "a has no 'value'. Did you mean values?"),
        ("a: {low: 1}", "a is {'low': 1}; expected {values"),
        ("a: {values: 3}", "a: values is 3; expected a list"),
        ("a: {values: []}", "a: values is []; expected a list"),
        ("a: {values: [1, 1]}", "expected every value once"),
        ("a: {values: [1], log: true}", "a: values and log exclude each other"),
        ("a: {low: 2, high: 1}", "a: low is 2 and high 1; low must be below high"),
        ("a: {low: x, high: 1}", "a: low is 'x'; expected a number"),
        ("a: {low: .nan, high: 1}", "a: low is nan; expected a number"),
        ("a: {low: true, high: 3}", "a: low is True; expected a number"),
        ("a: {low: 0, high: 1, log: true}", "a: low is 0; with log it must be above 0"),
        ("a: {low: 1, high: 9, log: 2}", "a: log is 2; expected true or false"),
        ("a: {low: 1, high: 9, log: true, step: 2}", "a: log and step exclude each other"),
        ("a: {low: 1, high: 2, step: 3}", "a: step is 3; it must be above 0 and at most high - low, 1"),
        ("a: {low: 0.1, high: 0.3, step: 0.21}", "a: step is 0.21; it must be above 0 and at most high - low, 0.2"),
    ],
)
def test_a_bad_space_is_one_line_that_names_option_and_value(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as refused:
        read_space(path)
    said = str(refused.value)
    assert said.startswith(f"--space {path}: ")
    assert message.replace("values: ...]", "values: [...]") in said
    assert "\n" not in said


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"--space .*absent\.yaml: there is no such file"):
        read_space(tmp_path / "absent.yaml")
