"""Parameters of the shipped configurations, and their settings from the released ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

import graphbench_sequences
from graphbench import benchmarks
from graphbench.nn import HeadConfig

CONFIGS = Path(__file__).parents[1] / "configs"
RECIPES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def load(name):
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))


#: Each recipe without overlays, and with each overlay for which it has a score.
CASES = [(name, variant) for name in RECIPES for variant in (None, *load(name)["expected"].get("variants", ()))]


def options_of(name, variant=None):
    """Return the options of the model."""
    options = load(name)["model"]["architecture"]["init_args"]
    return options if variant is None else options | load(f"overlays/{variant}")["model"]["architecture"]["init_args"]


def count(name, variant, root):
    """Count the parameters of model and head without allocating them."""
    config = load(name)
    data, head = config["data"], HeadConfig(**config["model"]["head"])
    spec = getattr(benchmarks, data["class_path"])(root=root, **data["init_args"]).spec
    with torch.device("meta"):
        architecture = getattr(graphbench_sequences, config["model"]["architecture"]["class_path"])
        model = architecture(spec, **options_of(name, variant))
        made = head.mlp(model.dim, spec.output_dim)
    return sum(parameter.numel() for module in (model, made) for parameter in module.parameters())


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_configurations_have_the_parameters_they_expect(name, variant, tmp_path):
    expected = load(name)["expected"]
    assert count(name, variant, tmp_path) == (expected["variants"][variant] if variant else expected)["parameters"]


def test_every_overlay_has_a_score():
    overlays = {path.stem for path in (CONFIGS / "overlays").glob("*.yaml")}
    assert overlays == {variant for _, variant in CASES if variant}
    assert all(load(f"overlays/{name}")["expected"] == {"variant": name} for name in overlays)


@pytest.mark.parametrize(("name", "variant"), [case for case in CASES if case[1]])
def test_variants_follow_the_code_of_the_arena(name, variant):
    """Options that its layers do not read, or that are defaults of no configuration.

    `performer_attention.py`: features are deterministic by default, without random directions. `reformer_attention.py`:
    queries are as wide as tokens. Neither this nor `bigbird_attention.py` drops attention weights.
    """
    options = options_of(name, variant)
    if options["attention"] == "performer":
        settings = (options["kernel"], options["num_features"])
        assert settings == (("softmax", 2) if name == "listops" else ("relu", None))
    if options["attention"] in ("bigbird", "reformer"):
        assert options["attention_dropout"] == 0.0
    if options["attention"] == "reformer":
        assert options.get("qkv_dim", options["hidden_dim"]) == options["hidden_dim"]


def test_reformer_on_images_has_the_parameters_of_the_formula():
    """Grey values and places, the learned token, four layers of two norms, three maps and a network; a norm, a head."""
    d, f = 64, 64
    layer = 3 * d * d + 2 * d * f + f + d + 4 * d
    expected = 256 * d + 1025 * d + d + 4 * layer + 2 * d + (d * d + d) + (10 * d + 10)
    assert load("image")["expected"]["variants"]["image-reformer"]["parameters"] == expected


def test_s4d_on_images_has_the_parameters_of_the_formula():
    """One step and 32 complex states per channel, and 64 numbers for each direction's read-out."""
    c, s = 512, 64
    layer = c * (s + 1) + 2 * c * s + c + 2 * c * c + 2 * c + 2 * c
    assert load("s4d-image")["expected"]["parameters"] == 2 * c + 6 * layer + (10 * c + 10)


@pytest.mark.parametrize(
    ("task", "init"),
    [("listops", "bert"), ("text", "bert"), ("retrieval", "xavier"), ("image", "xavier"), ("pathfinder", "xavier")],
)
def test_luna_starts_as_in_the_released_configurations(task, init):
    """`apply_bert_init` of `luna_lra_*` in fairseq-apollo: True except for aan, cifar10 and pf32."""
    assert options_of(f"luna-{task}")["init"] == init
