"""The command line accepts every shipped configuration, with the parameters that it expects."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from command_line import SMALL_MODEL
from parsed import model_of
from quick import one_of_each

from graphbench import registry
from graphbench.cli import main
from graphbench.cli.console import count_parameters
from graphbench.data.files.foreign import load_yaml

PLUGINS = Path(__file__).parents[2] / "plugins"
#: Plug-ins with recipes for data that PyG and OGB download, whose sizes are known only with the data; their own tests
#: count the parameters.
DOWNLOADED = ("large-graphs",)
#: Configurations that name data, model and trainer; the others are laid over one of these.
WHOLE = sorted(
    path
    for path in PLUGINS.glob("*/configs/**/*.yaml")
    if path.relative_to(PLUGINS).parts[0] not in DOWNLOADED
    and path.parent.name not in ("overlays", "model")
    and "data" in load_yaml(path.read_text())
)
OVERLAYS = sorted(
    path
    for path in PLUGINS.glob("*/configs/**/overlays/*.yaml")
    if path.relative_to(PLUGINS).parts[0] not in DOWNLOADED
)
#: The recipe for the overlays of a folder: the smallest model that accepts all of them. An overlay whose name begins
#: with that of a recipe belongs to that recipe.
BASES = {
    "classic": "zinc",
    "deepgraph": "zinc",
    "exphormer": "pattern",
    "gps": "pattern",
    "gnnplus": "gatedgcn-pattern",
    "graphmamba": "pattern",
    "graphormer": "zinc",
    "grit": "pattern",
    "gt": "zinc",
    "linear-transformer": "zinc-gt",
    "neuralwalker": "zinc",
    "pna": "zinc",
    "ppgt": "zinc",
    "san": "pattern",
    "sat": "zinc",
    "sequoia": "peptides-func",
    "siggate": "zinc",
    "sfi-former": "pattern",
    "sequences": "image",
    "sft": "listops",
}
#: Overlays that belong to another recipe than the rest.
OTHER_BASES = {
    **{f"classic/{name}-4": "mnist" for name in ("gin", "gatedgcn", "gat", "graphsage")},
    **{f"classic/{name}-16": "pattern" for name in ("gin", "gatedgcn", "gat", "graphsage")},
    **{f"classic/{name}-5": "peptides-func" for name in ("gine", "gatedgcn", "gat")},
    **{f"classic/{name}-8": "coco-sp" for name in ("gine", "gatedgcn", "gat")},
    "classic/gatedgcn-5-rwse": "peptides-func",
    "classic/gatedgcn-8-rwse": "pascalvoc-sp",
    "classic/generated": "pattern",
    "classic/transformer-lappe": "peptides-func",
    "classic/transformer-rwse": "peptides-func",
    **{f"deepgraph/walks-{steps}": "cluster" for steps in (5, 10, 15)},
    "deepgraph/generated": "cluster",
    "exphormer/generated": "pattern",
    "gt/generated": "pattern",
    "neuralwalker/generated": "pattern",
    "linear-transformer/short-pretrain": "zinc-pretrain",
    "sat/generated": "pattern",
    **{f"sft/control-{row}": "peptides-func" for row in ("messages", "encodings", "fused")},
}
#: The deepest models of PCQM4M would take long to initialise; their plug-ins count them without memory.
LARGE = ("pcqm4m-24", "pcqm4m-48", "pcqm4m-x2", "pcqm4m-x4")


def named(path):
    """Return the name of a configuration as `graphbench list configs` shows it."""
    inner = path.relative_to(PLUGINS).with_suffix("").parts
    return "/".join(inner[2:] if inner[0] == "baselines" else (inner[0], *inner[2:]))


def base_of(path):
    """Return the recipe that an overlay is tried with."""
    name, recipes = named(path), {recipe.stem: recipe for recipe in path.parents[1].glob("*.yaml")}
    own = [stem for stem in recipes if path.stem.startswith(f"{stem}-")]
    plugin = name.partition("/")[0]
    return recipes[max(own, key=len) if own else OTHER_BASES.get(f"{plugin}/{path.stem}", BASES[plugin])]


def expected_of(*paths):
    """Return what the last of some merged configurations expects of its model."""
    found = {}
    for path in paths:
        found |= load_yaml(path.read_text()).get("expected") or {}
    variant = found.get("variant")
    return found if variant is None else (found.get("variants") or {}).get(variant, {})


def check_count(*paths):
    model = model_of(*chain(*(("--config", str(path)) for path in paths)))
    assert expected_of(*paths).get("parameters") in (None, count_parameters(model))


@pytest.mark.parametrize("path", one_of_each(WHOLE, kind=lambda path: path.parent), ids=named)
def test_recipe_is_understood_and_has_the_parameters_it_expects(path):
    if "torch.optim.Muon" in path.read_text() and not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon: from 2.9")
    data = load_yaml(path.read_text())["data"]["class_path"]
    assert data in registry.benchmarks(), f"{path.name} names the benchmark {data}"
    check_count(path)


@pytest.mark.parametrize(
    "path",
    one_of_each((path for path in OVERLAYS if path.stem not in LARGE), kind=lambda path: path.parent),
    ids=named,
)
def test_overlay_is_understood_and_has_the_parameters_it_expects(path):
    check_count(base_of(path), path)


def published_variants():
    """Yield the files to merge for every variant that a recipe or an overlay for its depth lists."""
    for path in (*WHOLE, *OVERLAYS):
        content = load_yaml(path.read_text())
        folder = path.parent if path.parent.name == "overlays" else path.parent / "overlays"
        below = [base_of(path)] if path.parent.name == "overlays" else []
        for variant in (content.get("expected") or {}).get("variants") or {}:
            yield *below, path, folder / f"{variant}.yaml"


VARIANTS = list(published_variants())
#: Other sequence layers of NeuralWalker, for which the authors print no score with these settings.
NO_SCORE = ("neuralwalker/overlays/conv", "neuralwalker/overlays/transformer")


@pytest.mark.slow
@pytest.mark.parametrize("paths", VARIANTS, ids=lambda paths: "+".join(named(path) for path in paths))
def test_every_published_variant_has_the_parameters_it_expects(paths):
    assert named(paths[-1]) in NO_SCORE or expected_of(*paths)["value"]
    check_count(*paths)


CONFIGS = Path(__file__).parents[2] / "plugins" / "baselines" / "configs" / "gps"
PUBLISHED = {
    "zinc": 423_717,
    "pattern": 337_201,
    "cluster": 502_054,
    "mnist": 115_394,
    "cifar10": 112_726,
    "pascalvoc-sp": 510_453,
    "coco-sp": 516_273,
    "peptides-func": 504_442,
    "peptides-struct": 504_539,
    "pcqm-contact": 512_784,
    "pcqm4mv2-small": 6_152_285,
    "pcqm4mv2-medium": 19_415_005,
    "pcqm4mv2-deep": 13_807_581,
}


def test_no_configuration_is_left_out():
    assert {path.stem for path in CONFIGS.glob("*.yaml")} - {"tsp"} == PUBLISHED.keys(), "GPS was not published on TSP"


@pytest.mark.parametrize("name", one_of_each(PUBLISHED, number=4))
def test_parameters_are_the_published_ones(name, capsys):
    assert main(["params", "--config", str(CONFIGS / f"{name}.yaml"), "--json"]) == 0
    expected = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["expected"]
    assert (
        json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"] == PUBLISHED[name] == expected["parameters"]
    )


DIAGNOSTICS = Path(__file__).parents[2] / "configs" / "callbacks" / "diagnostics.yaml"


@pytest.mark.slow
def test_a_run_with_every_diagnostic(data_options, tmp_path):
    arguments = ["--config", str(DIAGNOSTICS), *data_options, *SMALL_MODEL, "--trainer.max_epochs", "1"]
    assert main(["fit", *arguments, "--run", str(tmp_path / "run")]) == 0
    found = tmp_path / "run" / "diagnostics"
    for name in ("attention_capacity", "rank_progression"):
        table = pd.read_csv(found / f"{name}.csv")
        assert sorted(table["epoch"].unique()) == [0, 1]
        assert table["value"].notna().all()
    assert set(pd.read_csv(found / "train_test_gap.csv")["split"]) == {"val"}
    kinds = sorted(path.stem.rpartition("_")[2] for path in (found / "attention_maps").glob("*.png"))
    assert kinds == ["drawing", "drawing", "matrices", "matrices"]
