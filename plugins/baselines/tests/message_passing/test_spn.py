"""Shortest path networks against breadth-first search and loops over nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from graphbench import benchmarks
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench_baselines import SPN
from graphbench_baselines.message_passing.spn import distance_pairs

SPEC = tiny_spec("node-classification", "dense")
DIM, REACH = 8, 2
CONFIGS = Path(__file__).parents[2] / "configs" / "classic"


def made(**options):
    """Return a model in evaluation mode with random parameters and statistics."""
    torch.manual_seed(0)
    model = SPN(SPEC, DIM, num_layers=2, max_distance=REACH, **options).double().eval()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.5 if name.endswith("var") else 0.5 * torch.randn_like(value))
    return model


def batch_of(model, sizes):
    batch = encode(tiny_table(SPEC, sizes=sizes), model.required_encodings()).batch(range(len(sizes)))
    return batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


def distances(batch):
    """Return the steps from u to i by breadth-first search, `{(u, i): steps}` for all connected pairs."""
    leaving = {node: set() for node in range(batch.num_nodes)}
    for source, target in batch.edge_index.T.tolist():
        leaving[source].add(target)
    found = {}
    for start in leaving:
        level, seen, reached = 0, {start}, {start}
        while reached:
            found |= {(start, node): level for node in reached}
            reached = {after for node in reached for after in leaving[node]} - seen
            seen |= reached
            level += 1
    return found


def test_pairs_are_those_within_reach_once_each():
    model = made()
    batch = batch_of(model, [9, 1, 12, 5])
    sources, targets = distance_pairs(batch, REACH)
    steps, nodes = targets // batch.num_nodes + 1, targets % batch.num_nodes
    expected = distances(batch)
    assert sorted(zip(sources.tolist(), nodes.tolist(), steps.tolist(), strict=True)) == sorted(
        (*pair, step) for pair, step in expected.items() if 1 <= step <= REACH
    )
    assert max(expected.values()) > REACH


@pytest.mark.parametrize("options", [{}, {"eps": 0.5, "residual": True, "all_layers": True}])
def test_model_agrees_with_its_equation(options):
    model = made(**options)
    batch = batch_of(model, [9, 1, 12])
    apart = distances(batch)

    def normed(x, norm):
        return (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias

    with torch.no_grad():
        x = model.node_encoder(batch)
        depths = [x]
        for layer in model.layers:
            weights = layer.shell_logits.exp() / layer.shell_logits.exp().sum()
            mixed = (1 + options.get("eps", 0.0)) * x
            for (source, target), step in apart.items():
                if 1 <= step <= REACH:
                    mixed[target] += weights[step - 1] * x[source]
            first, inner, _, last, outer, _ = layer.mlp
            new = normed(mixed @ first.weight.T + first.bias, inner).clamp(min=0)
            new = normed(new @ last.weight.T + last.bias, outer).clamp(min=0)
            x = x + new if options else new
            depths.append(x)
        got = model(batch).node
    torch.testing.assert_close(got, torch.cat(depths, dim=-1) if options else x, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "variant"), [("peptides-func", "spn-5"), ("peptides-struct", "spn-5"), ("pascalvoc-sp", "spn-8")]
)
def test_recipes_have_the_parameters_they_expect_and_keep_within_the_budget(name, variant):
    """500,000, the budget of the Long Range Graph Benchmark."""
    config, overlay = (
        yaml.safe_load((CONFIGS / f"{file}.yaml").read_text(encoding="utf-8")) for file in (name, f"overlays/{variant}")
    )
    spec = getattr(benchmarks, config["data"]["class_path"]).spec
    options = overlay["model"]["architecture"]["init_args"]
    with torch.device("meta"):
        model = SPN(spec, **options)
        head = HeadConfig(**config["model"]["head"]).mlp(model.dim, spec.output_dim)
    total = sum(p.numel() for module in (model, head) for p in module.parameters())
    assert overlay["expected"]["variant"] == variant
    assert config["expected"]["variants"][variant]["parameters"] == total
    assert 450_000 < total < 500_000
    layer = 2 * model.dim * (model.dim + 1) + 4 * model.dim + options["max_distance"]
    assert sum(p.numel() for p in model.layers.parameters()) == options["num_layers"] * layer


@pytest.mark.parametrize("name", ["max_distance", "num_layers", "eps"])
def test_options_that_do_not_fit_are_refused(name):
    with pytest.raises(BadInput, match=name):
        SPN(SPEC, **{name: -2})
