"""Small random graphs, repeatable dropout, and the parameters of shipped configurations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from torch import Tensor

import graphbench_baselines
from graphbench import BenchmarkSpec, Features, GraphTable, registry
from graphbench.experiments.reproduce.recipes import merge
from graphbench.nn import DotProductHead, HeadConfig
from graphbench.testing import computed_by

#: Nodes of each graph; two of them have no edge, one of these is a single node.
SIZES = (5, 1, 9, 4, 12, 3)


@pytest.fixture
def spec() -> BenchmarkSpec:
    return BenchmarkSpec("Tiny", "graph-regression", Features((7, 3), dense=2), Features((4,)), "MAE", False, "L1")


@pytest.fixture
def graphs() -> list[dict]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for n in SIZES:
        num_edges = 0 if n in (1, 3) else 2 * n
        made.append(
            {
                "num_nodes": n,
                "edge_index": torch.randint(0, n, (2, num_edges), generator=generator),
                "x": torch.stack([torch.randint(0, size, (n,), generator=generator) for size in (7, 3)], dim=1),
                "x_dense": torch.randn(n, 2, generator=generator),
                "edge_attr": torch.randint(0, 4, (num_edges, 1), generator=generator),
                "y": torch.randn(1, generator=generator),
            }
        )
    return made


@pytest.fixture
def batch(graphs):
    return GraphTable.from_graphs(graphs).batch(range(len(graphs)))


def mask(shape: Sequence[int], p: float) -> Tensor:
    """Return the factor of the fixed dropout for a shape; about a share p of it is zero."""
    numbers = torch.arange(math.prod(shape), dtype=torch.float64)
    return ((numbers * 0.618034 % 1.0) >= p).double().reshape(tuple(shape)) / (1.0 - p)


@pytest.fixture
def fixed_dropout(monkeypatch) -> Iterator[Callable[[Tensor, float], Tensor]]:
    """Replace torch's dropout with masks that depend only on the shape."""

    def dropped(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return x * mask(x.shape, p) if training and p else x

    monkeypatch.setattr(torch.nn.functional, "dropout", dropped)
    with computed_by("torch"):  # kernels draw their own numbers
        yield dropped


class Recipe(NamedTuple):
    """A shipped configuration, its data, and the parameters of its architecture and head."""

    config: dict[str, Any]
    spec: BenchmarkSpec
    parameters: int

    @property
    def options(self) -> dict[str, Any]:
        """Options of the architecture."""
        options: dict[str, Any] = self.config["model"]["architecture"]["init_args"]
        return options


def instantiate(value: Any) -> Any:
    """Create the object of every `class_path` in a configuration."""
    if isinstance(value, list):
        return [instantiate(item) for item in value]
    if isinstance(value, dict) and "class_path" in value:
        name = value["class_path"]
        found = getattr(graphbench_baselines, name, None) or registry.load("encodings", name)
        return found(**value.get("init_args", {}))
    return value


@pytest.fixture(scope="session")
def recipe() -> Callable[..., Recipe]:
    """Function: names of a shipped configuration and its overlays -> `Recipe`, on the benchmark's specification."""

    def load(*names: str) -> Recipe:
        folder, config = Path(__file__).parents[1] / "configs", {}
        for name in names:
            config = merge(config, yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8")))
        spec = registry.load("benchmarks", config["data"]["class_path"]).spec
        part, head = config["model"]["architecture"], HeadConfig(**config["model"]["head"])
        options = {key: instantiate(value) for key, value in part["init_args"].items()}
        model = getattr(graphbench_baselines, part["class_path"])(spec, **options)
        made = (
            DotProductHead(model.dim, head.num_layers, head.l2_normalize)
            if spec.task == "link-ranking"
            else head.mlp(model.dim, spec.output_dim)
        )
        return Recipe(config, spec, sum(p.numel() for part in (model, made) for p in part.parameters()))

    return load
