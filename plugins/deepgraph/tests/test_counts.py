"""Parameters of the experiment files and of the released model, against Appendix H and the closed form of its parts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
import yaml

from graphbench import BenchmarkModule
from graphbench.benchmarks import CLUSTER, PATTERN, PCQM4M, ZINC
from graphbench.encodings import Substructures
from graphbench.nn import HeadConfig
from graphbench_deepgraph import CoverageSampler, DeepGraph

CONFIGS = Path(__file__).parents[1] / "configs"
SPECS = {"ZINC": ZINC.spec, "CLUSTER": CLUSTER.spec, "PATTERN": PATTERN.spec, "PCQM4M": PCQM4M.spec}
NAMES = [f"{name}-{depth}" for name in ("zinc", "cluster", "pattern", "pcqm4m") for depth in (12, 24, 48)]
#: Appendix H: benchmark and layers, what it must be built with, count.
PUBLISHED = [
    ("zinc-24", {}, 1_078_225),
    ("zinc-48", {}, 2_019_025),
    ("cluster-12", {"num_layers": 16}, 382_865),
    ("cluster-24", {"num_layers": 32}, 686_225),
    ("cluster-48", {}, 989_585),
    ("pattern-12", {"walks": 15}, 612_705),
    ("pattern-24", {"walks": 15}, 1_083_105),
    ("pattern-48", {"walks": 15}, 2_023_905),
    ("pcqm4m-12", {}, 45_563_393),
    ("pcqm4m-24", {}, 88_122_881),
    ("pcqm4m-48", {}, 173_241_857),
]


@cache
def read(name):
    """Return the file of a benchmark, and the overlay of its depth if that is not 12."""
    benchmark, depth = name.split("-")
    content = yaml.safe_load((CONFIGS / f"{benchmark}.yaml").read_text())
    if depth != "12":
        above = yaml.safe_load((CONFIGS / "overlays" / f"{name}.yaml").read_text())
        content["model"]["architecture"]["init_args"] |= above["model"]["architecture"]["init_args"]
        content["expected"] |= above["expected"]
    return content


@cache
def build(name, walks=None, **changes):
    """Build the module of an experiment file, with other options, on the meta device: nothing is allocated."""
    content = read(name)
    options = dict(content["model"]["architecture"]["init_args"])
    encoding = options.pop("substructures")["init_args"]
    options["substructures"] = Substructures(**encoding | ({} if walks is None else {"walks": [walks]}))
    options["sampling"] = CoverageSampler(**options["sampling"])
    spec = SPECS[content["data"]["class_path"]]
    with torch.device("meta"):
        model = BenchmarkModule(
            spec, lambda seen: DeepGraph(seen, **options | changes), head=HeadConfig(**content["model"]["head"])
        )
    return model, spec


def count(module):
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


@pytest.mark.parametrize(("name", "changes", "published"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_released_counts_are_those_of_appendix_h(name, changes, published):
    """The released output layer is `C dim` weights and one shared scalar; ours has C biases, and one logit for two."""
    model, spec = build(name, released=True, **changes)
    outputs = spec.num_classes or spec.num_targets
    assert count(model.architecture) + outputs * model.architecture.dim + 1 == published
    if spec.num_classes is None:
        assert count(model) == published


@pytest.mark.parametrize("name", ["zinc-12", "cluster-24", "pattern-12"])
def test_released_counts_follow_the_closed_form(name):
    """The entries that the paper does not print, or prints for another model."""
    model, spec = build(name, released=True)
    architecture = model.architecture
    d, heads, layers = architecture.dim, architecture.layers[0].attention.num_heads, len(architecture.layers)
    f, s = architecture.layers[0].ffn.expand.out_features, architecture.substructures.max_size
    outputs = spec.num_classes or spec.num_targets
    base = 3 * d**2 + (1124 + s**2 + outputs) * d + 128 * heads**2 + 544 * heads + 1
    total = base + layers * (4 * d**2 + 2 * d * f + 9 * d + f)
    assert total == {"zinc-12": 607_825, "cluster-24": 534_545, "pattern-12": 601_905}[name]
    assert count(architecture) + outputs * d + 1 == total


@pytest.mark.parametrize("name", NAMES)
def test_configurations_expect_their_count_and_depth(name):
    model, _ = build(name)
    assert read(name)["expected"]["parameters"] == count(model)
    assert str(read(name)["model"]["architecture"]["init_args"]["num_layers"]) == name.split("-")[1]


def test_configurations_cover_every_benchmark():
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == {name.split("-")[0] for name in NAMES}


@pytest.mark.parametrize("name", ["zinc-12", "cluster-48", "pattern-12"])
def test_no_parameter_of_ours_is_dead(name):
    """Ours has neither pooler nor unread hops nor a second table of degrees; tables end where the data do."""
    ours, released = (build(name, released=flag)[0].architecture for flag in (False, True))
    assert ours.pooler is None
    assert ours.node_embedding.out_degree is None
    assert ours.node_embedding.in_degree.num_embeddings < released.node_embedding.in_degree.num_embeddings / 3
    assert ours.bias.edge_term is None or len(ours.bias.edge_term.hops) == 5
    assert count(ours.layers) == count(released.layers)
    assert count(ours) < count(released) - 50_000
