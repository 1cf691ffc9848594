"""Every configuration against the paper's tables 8 and 9."""

from math import ceil
from pathlib import Path

import pytest
import yaml

from graphbench import registry
from graphbench.testing import tiny_spec
from graphbench_sft import SFT

CONFIGS = Path(__file__).parents[1] / "configs"
#: k, drop token, width, heads, dropouts (score, embedding, feed-forward), norm, layers; relative information.
CLOUD = (256, 0.5, 256, 16, 0.1, 0.1, 0.2, "post", 8)
PARTS = (256, 0.2, 256, 16, 0.1, 0.1, 0.2, "post", 8)
PEPTIDES = (75, 0.3, 144, 16, 0.1, 0.0, 0.2, "post", 4)
MODELS = {
    "modelnet40": (*CLOUD, "none"),
    "modelnet40-rotation-invariant": (*CLOUD, "distances"),
    "shapenetpart": (*PARTS, "none"),
    "shapenetpart-rotation-invariant": (*PARTS, "distances"),
    "solids": (*CLOUD, "none"),
    "solids-rotation-invariant": (*CLOUD, "distances"),
    "peptides-func": (*PEPTIDES, "edges"),
    "peptides-struct": (*PEPTIDES, "edges"),
    "pascalvoc-sp": (150, 0.3, 160, 16, 0.1, 0.0, 0.2, "post", 4, "edges"),
    "listops": (256, 0.0, 128, 4, 0.0, 0.1, 0.2, "pre", 6, "positions"),
    "text": (256, 0.3, 128, 4, 0.1, 0.0, 0.2, "post", 4, "positions"),
    "retrieval": (256, 0.0, 128, 4, 0.0, 0.1, 0.2, "post", 5, "positions"),
    "image": (256, 0.3, 128, 4, 0.1, 0.1, 0.2, "pre", 8, "positions"),
    "pathfinder": (256, 0.0, 128, 4, 0.0, 0.1, 0.2, "pre", 6, "positions"),
}
#: Epochs, batch, rate, weight decay, epochs per step, decay, clip.
TRAINING = {
    "modelnet40": (600, 32, 1e-3, 0.1, 30, 0.8, 1.0),
    "modelnet40-rotation-invariant": (1000, 32, 1e-3, 0.1, 30, 0.8, 1.0),
    "shapenetpart": (600, 32, 1e-3, 0.1, 30, 0.8, 1.0),
    "shapenetpart-rotation-invariant": (1000, 32, 1e-3, 0.1, 30, 0.8, 1.0),
    "solids": (256, 32, 1e-3, 0.1, 30, 0.8, 1.0),
    "solids-rotation-invariant": (256, 32, 1e-3, 0.1, 30, 0.8, 1.0),
    "peptides-func": (600, 32, 8e-4, 0.17, 30, 0.8, 16.0),
    "peptides-struct": (600, 32, 3e-4, 0.12, 30, 0.8, 16.0),
    "pascalvoc-sp": (600, 32, 1e-3, 0.1, 30, 0.9, 1.0),
    "listops": (50, 64, 1e-3, 0.01, 20, 0.9, 1.0),
    "text": (200, 64, 1e-3, 0.01, 20, 0.9, 1.0),
    "retrieval": (80, 32, 1e-3, 0.01, 20, 0.9, 1.0),
    "image": (50, 64, 1e-3, 0.02, 20, 0.9, 1.0),
    "pathfinder": (200, 64, 1e-3, 0.01, 20, 0.9, 1.0),
}
#: Training graphs of the benchmarks that come in separate files.
GRAPHS = {"PeptidesFunc": 10_873, "PeptidesStruct": 10_873, "PascalVOCSP": 8_498}


def read(name):
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())


def spec_of(benchmark):
    if benchmark in GRAPHS:
        return tiny_spec()
    return registry.load("benchmarks", benchmark).spec


def test_every_configuration_is_checked():
    assert {file.stem for file in CONFIGS.glob("*.yaml")} == set(MODELS) == set(TRAINING)


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_published_settings(name):
    config = read(name)
    options = config["model"]["architecture"]["init_args"]
    keys = ("num_samples", "token_drop", "hidden_dim", "num_heads", "score_dropout", "embedding_dropout")
    keys += ("ffn_dropout", "norm_position", "num_layers", "relative")
    assert tuple(options[key] for key in keys) == MODELS[name]
    clouds = "modelnet40" in name or "solids" in name
    assert (options.get("readout"), options.get("readout_samples")) == (
        ("sampled_max", 512) if clouds else (None, None)
    )
    SFT(spec_of(config["data"]["class_path"]), **options)


@pytest.mark.parametrize("name", TRAINING)
def test_training_has_the_published_settings(name):
    config = read(name)
    optimizer, schedule = config["model"]["optimizer"], config["model"]["schedule"]
    epochs, batch, rate, decay, step, gamma, clip = TRAINING[name]
    benchmark = config["data"]["class_path"]
    graphs = GRAPHS[benchmark] if benchmark in GRAPHS else spec_of(benchmark).split_sizes[0]
    assert config["trainer"] == {"max_epochs": epochs, "gradient_clip_val": clip}
    assert config["data"]["init_args"]["batch_size"] == batch
    assert optimizer == {"class_path": "torch.optim.AdamW", "init_args": {"lr": rate, "weight_decay": decay}}
    untuned = {"warmup": round(2 / (1 - 0.999)), "warmup_overlaps": True}
    drops = {"step_size": step * ceil(graphs / batch), "gamma": gamma}
    assert schedule == {"name": "step", "interval": "step"} | untuned | drops


@pytest.mark.parametrize("overlay", sorted((CONFIGS / "overlays").glob("*.yaml")), ids=lambda file: file.stem)
def test_overlays_change_options_that_exist(overlay):
    content = yaml.safe_load(overlay.read_text())
    assert content["expected"] == {"variant": overlay.stem}
    architecture = content["model"]["architecture"]
    if overlay.stem in ("control-encodings", "control-messages"):
        pytest.skip("of another model, which --control trains beside it")
    options = {name: value for name, value in architecture["init_args"].items() if name != "positional_encoders"}
    assert architecture["class_path"] == "SFT"
    SFT(spec_of("Solids"), **(read("solids")["model"]["architecture"]["init_args"] | options))
