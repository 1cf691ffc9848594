"""Initial weights: the model predicts a target as the old model predicted the target of that name."""

import dataclasses
import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from toys import Tiny

from graphbench.contracts import Features
from graphbench.errors import BadInput
from graphbench.runs.weights import SPECIFICATION, save_weights
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule
from graphbench.training.starting import arrange_outputs, folded, load_matching


def named(task, names, kind="categorical"):
    """Return a specification whose targets or classes have these names."""
    count = {"num_classes": max(len(names), 2)} if task.endswith("classification") else {"num_targets": len(names)}
    return replace(tiny_spec(task, kind), target_names=tuple(names), target_weights=(), **count)


def saved(module, path):
    """Write a module as a checkpoint or as an export."""
    if path.suffix == ".ckpt":
        torch.save({"state_dict": module.state_dict(), "hyper_parameters": dict(module.hparams)}, path)
    else:
        save_weights(module.state_dict(), path, {SPECIFICATION: json.dumps(dataclasses.asdict(module.spec))})
    return str(path)


def started(task, names, source, tmp_path, suffix=".ckpt", **options):
    module = BenchmarkModule(
        named(task, names),
        Tiny,
        init_from=saved(source, tmp_path / f"old{suffix}"),
        standardize_targets=None,
        **options,
    )
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.setup("fit")
    return module, before


def answers(module):
    """Return predictions and spreads for some graphs, by name of the target."""
    batch = tiny_table(named(module.spec.task, "a")).batch([0, 1, 2])
    with torch.no_grad():
        output = module.eval()(batch)
        columns = {"": module.task.predict(output, batch)[0]} | module.task.named_spreads(output)
    names = module.spec.target_names
    return {(key, name): values[:, n] for key, values in columns.items() for n, name in enumerate(names)}


TASKS = ["graph-regression", "node-regression", "edge-regression", "graph-multilabel", "node-multilabel"]
CLASSES = ["graph-classification", "node-classification", "edge-classification"]


@pytest.mark.parametrize(("task", "suffix"), [*zip([*TASKS, *CLASSES], [".ckpt", ".safetensors"] * 4, strict=True)])
@pytest.mark.parametrize(
    ("old", "new"),
    [(["a", "b", "c"], ["c", "a", "b"]), (["a", "b", "c", "d"], ["d", "b", "c"]), (["a", "b"], ["b", "a"])],
)
def test_outputs_follow_the_names_of_targets_and_classes(task, old, new, suffix, tmp_path):
    """Probabilities are taken among the classes that both models know, so a subset is renormalised."""
    source = BenchmarkModule(named(task, old), Tiny)
    module, _ = started(task, new, source, tmp_path, suffix)
    expected, obtained = answers(source), answers(module)
    if task in CLASSES:
        whole = sum(expected["", name] for name in new)
        expected = {key: value / whole for key, value in expected.items()}
    for key, values in obtained.items():
        torch.testing.assert_close(values, expected[key])


@pytest.mark.parametrize(("loss", "quantiles"), [("Gaussian", None), ("quantile", [0.1, 0.25, 0.5, 0.9])])
def test_spreads_follow_their_targets(loss, quantiles, tmp_path):
    options = {"loss": loss, "quantiles": quantiles}
    source = BenchmarkModule(named("graph-regression", "abc"), Tiny, **options)
    source.task.standardize(torch.tensor([[0.0, 10.0, 100.0], [1.0, 30.0, 101.0], [4.0, 20.0, 500.0]]))
    module, _ = started("graph-regression", "cab", source, tmp_path, **options)
    expected = answers(source)
    for key, values in answers(module).items():
        torch.testing.assert_close(values, expected[key])


@pytest.mark.parametrize(
    ("task", "old", "new"),
    [
        ("graph-regression", ["a"], ["b"]),
        ("graph-regression", ["a", "b"], ["c", "d"]),
        ("graph-classification", ["no", "yes"], ["dry", "wet"]),
        ("graph-classification", ["x", "y", "z"], ["u", "v", "w"]),
    ],
)
def test_other_targets_start_anew_beside_the_same_architecture(task, old, new, tmp_path, caplog):
    module, before = started(task, new, source := BenchmarkModule(named(task, old), Tiny), tmp_path)
    last = "task.head.mlp.layers.1."
    for name, value in module.state_dict().items():
        if torch.is_floating_point(value) and value.numel() > 3:
            expected = before if name.startswith(last) else source.state_dict()
            assert torch.equal(value, expected[name]), name
    told = " ".join(record.getMessage() for record in caplog.records)
    assert all(name in told for name in [*old, *new])


def test_a_target_that_the_file_lacks_starts_anew_beside_those_that_it_has(tmp_path, caplog):
    source = BenchmarkModule(named("graph-regression", "ab"), Tiny)
    module, before = started("graph-regression", "bx", source, tmp_path)
    last = "task.head.mlp.layers.1.weight"
    assert torch.equal(module.state_dict()[last][0], source.state_dict()[last][1])
    assert torch.equal(module.state_dict()[last][1], before[last][1])
    assert any("x start" in record.getMessage() for record in caplog.records)


def test_rows_that_are_random_are_not_frozen(tmp_path):
    source = BenchmarkModule(named("graph-regression", "ab"), Tiny)
    for names in ("xy", "bx"):
        with pytest.raises(BadInput, match="would stay random"):
            started("graph-regression", names, source, tmp_path, freeze="head")
    started("graph-regression", "ba", source, tmp_path, freeze="head")


def test_numbers_of_outputs_of_another_loss_are_no_targets(tmp_path):
    """Two targets have as many outputs as one target with a mean and a deviation."""
    source = BenchmarkModule(named("graph-regression", "ab"), Tiny)
    module, before = started("graph-regression", "b", source, tmp_path, loss="Gaussian")
    assert torch.equal(module.task.head.mlp.layers[1].weight, before["task.head.mlp.layers.1.weight"])


def test_a_file_that_names_no_targets_is_taken_by_shape(tmp_path):
    source = BenchmarkModule(named("graph-regression", "ab"), Tiny)
    torch.save({"state_dict": source.state_dict(), "hyper_parameters": {"spec": "?"}}, tmp_path / "bare.ckpt")
    module = BenchmarkModule(named("graph-regression", "ba"), Tiny, init_from=str(tmp_path / "bare.ckpt"))
    module.setup("fit")
    assert torch.equal(module.task.head.mlp.layers[1].weight, source.task.head.mlp.layers[1].weight)


def test_features_under_other_names_are_told(tmp_path, caplog):
    spec = named("graph-regression", "a")
    spec = replace(spec, node=replace(spec.node, names=tuple(f"f{n}" for n in range(len(spec.node.vocabularies)))))
    path = saved(BenchmarkModule(spec, Tiny), tmp_path / "old.ckpt")
    other = replace(spec, node=replace(spec.node, names=("g",)))
    BenchmarkModule(spec, Tiny, init_from=path).setup("fit")
    assert "features of each" not in caplog.text
    BenchmarkModule(other, Tiny, init_from=path).setup("fit")
    assert "f0" in caplog.text


COLUMNS = Features((3, 5), 2, ("colour", "order", "mass", "charge"), (("red", "green", "blue"), ()))


@pytest.mark.parametrize(
    ("changes", "now", "then"),
    [
        ({"vocabularies": (5, 3), "names": ("order", "colour", "mass", "charge"), "words": ((), COLUMNS.words[0])},
         "order (5), colour (red, green, blue)", "colour (red, green, blue), order (5)"),
        ({"names": ("colour", "order", "charge", "mass")}, "charge, mass", "mass, charge"),
        ({"words": (("blue", "green", "red"), ())}, "colour (blue, green, red)", "colour (red, green, blue)"),
        ({"words": (("red", "green", "amber"), ())}, "colour (red, green, amber)", "colour (red, green, blue)"),
        ({"vocabularies": (4, 4), "words": ()}, "colour (4), order (4)", "colour (red, green, blue), order (5)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("level", ["node", "edge", "graph"])
def test_no_column_gets_the_weights_of_another_in_silence(changes, now, then, level, tmp_path, caplog):
    """This includes all that matches by shape: reordered columns and categories, or others of the same number."""
    spec = replace(named("graph-regression", "a"), **{level: COLUMNS})
    path = saved(BenchmarkModule(spec, Tiny), tmp_path / "old.ckpt")
    other = replace(spec, **{level: replace(COLUMNS, **changes)})
    try:
        BenchmarkModule(other, Tiny, init_from=path).setup("fit")
    finally:
        told = caplog.text
    assert f"features of each {level} are {now} here and were {then} in the file's model" in told
    caplog.clear()
    BenchmarkModule(spec, Tiny, init_from=path).setup("fit")
    assert "features of each" not in caplog.text


def test_no_encoder_gets_the_weights_of_another_in_silence(tmp_path, caplog):
    """Linear maps of four eigenvectors and of four steps have the same name and shape."""
    spec = named("graph-regression", "a")
    encoders = [{"class_path": "LapPEEncoder", "init_args": {"dim": 4}}, {"class_path": "RWSEEncoder"}]

    def made(*chosen, **options):
        module = BenchmarkModule(spec, Tiny)
        arguments = {"positional_encoders": list(chosen), "num_heads": 2, "dropout": 0.1, **options}
        module.save_hyperparameters({"architecture": {"class_path": "GPS", "init_args": arguments}})
        return module

    file = torch.load(saved(made(*encoders), tmp_path / "old.ckpt"), weights_only=False)
    for module, part in [
        (made(*encoders[::-1]), "positional_encoders is"),
        (made(encoders[1]), "LapPEEncoder is nothing instead of LapPEEncoder"),
        (made(*encoders, num_heads=4), "num_heads is 4 instead of 2"),
        (made(*encoders, dropout=0.5), ""),
    ]:
        caplog.clear()
        arrange_outputs(module, dict(file["state_dict"]), file["hyper_parameters"])
        assert part in caplog.text
        assert bool(part) == ("options differ" in caplog.text)


def network(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1))


def test_matching_weights_are_copied_and_the_rest_is_named(tmp_path, caplog):
    source, target = network(), network()
    kept = target[2].bias.detach().clone()
    state = source.state_dict()
    state["2.weight"] = torch.zeros(5, 5)
    state["9.extra"] = torch.zeros(1)
    del state["2.bias"]
    torch.save({"state_dict": state}, tmp_path / "a.ckpt")
    with caplog.at_level("WARNING", logger="graphbench"):
        outcome = load_matching(target, tmp_path / "a.ckpt")
    assert outcome == {
        "loaded": ["0.weight", "0.bias"],
        "missing": ["2.bias"],
        "unused": ["9.extra"],
        "other_shape": ["2.weight"],
        "other_targets": [],
    }
    assert torch.equal(target[0].weight, source[0].weight)
    assert torch.equal(target[2].bias, kept)


def test_names_are_folded_where_a_whole_part_is_meant():
    every = ["a.0.w", "a.0.b", "a.1.w", "a.1.b", "b.w", "c", "d.x.w", "d.y"]
    assert folded([*every[:4], "b.w", "d.y"], every) == ["a.* (4)", "b.w", "d.y"]
    assert folded(["a.0.w", "a.0.b", "a.1.b", "c"], every) == ["a.0.* (2)", "a.1.b", "c"]
    assert folded([], every) == []


class Optioned(nn.Linear):
    """Keeps an option in its extra state."""

    def __init__(self, option):
        super().__init__(2, 2)
        self.option = option

    def get_extra_state(self):
        return {"option": self.option}

    def set_extra_state(self, state):
        self.option = state["option"]


def test_options_of_the_trained_model_are_left_behind(tmp_path):
    source, target = Optioned("trained"), Optioned("own")
    torch.save({"state_dict": source.state_dict()}, tmp_path / "o.ckpt")
    outcome = load_matching(target, tmp_path / "o.ckpt")
    assert outcome.pop("loaded") == ["weight", "bias"]
    assert not any(outcome.values())
    assert torch.equal(target.weight, source.weight)
    assert target.option == "own"


def test_nothing_that_fits_is_an_error(tmp_path):
    torch.save({"state_dict": {"other": torch.zeros(1)}}, tmp_path / "b.ckpt")
    with pytest.raises(BadInput, match="no weight of"):
        load_matching(network(), tmp_path / "b.ckpt")


def test_the_log_names_what_was_loaded_and_what_was_not(tmp_path, caplog):
    state = network().state_dict()
    del state["2.bias"]
    torch.save({"state_dict": state}, tmp_path / "a.ckpt")
    with caplog.at_level("INFO", logger="graphbench"):
        load_matching(network(), tmp_path / "a.ckpt")
    loaded, lacking = (record.getMessage() for record in caplog.records)
    assert "3 of the model's 4 tensors" in loaded
    assert loaded.endswith("0.* (2), 2.weight")
    assert lacking.endswith(": 2.bias")


def test_half_precision_is_read_into_full(tmp_path):
    source, target = network(), network()
    save_weights({name: value.half() for name, value in source.state_dict().items()}, tmp_path / "h.safetensors")
    load_matching(target, tmp_path / "h.safetensors")
    for name, value in target.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, source.state_dict()[name].half().float())
