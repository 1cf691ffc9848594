"""GCN and GIN of the Open Graph Benchmark against loops over edges, and the counts that it prints."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
import yaml

from graphbench.benchmarks import PCQM4M
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench_baselines import OGBGNN

DIM = 8
CONFIGS = Path(__file__).parents[2] / "configs" / "classic"


@pytest.fixture
def batch():
    table = tiny_table(tiny_spec("graph-regression", "both"), sizes=[5, 1, 7])
    return table.batch(range(3)).apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


def made(layer, **options):
    """Return a model in evaluation mode with random parameters and statistics."""
    torch.manual_seed(0)
    model = OGBGNN(tiny_spec("graph-regression", "both"), layer, DIM, num_layers=3, **options).double().eval()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.5 if name.endswith("var") else 0.5 * torch.randn_like(value))
    return model


def linear(x, module):
    return x @ module.weight.T + module.bias


def norm(x, module):
    return (x - module.running_mean) / (module.running_var + module.eps).sqrt() * module.weight + module.bias


def gcn(conv, x, edges, vectors):
    x = linear(x, conv.linear)
    leaving = [1 + sum(source == node for source, _ in edges) for node in range(len(x))]
    out = torch.stack([(x[node] + conv.root).clamp(min=0) / leaving[node] for node in range(len(x))])
    for (source, target), vector in zip(edges, vectors, strict=True):
        out[target] += (x[source] + vector).clamp(min=0) / (leaving[source] * leaving[target]) ** 0.5
    return out


def gin(conv, x, edges, vectors):
    out = (1 + conv.eps) * x
    for (source, target), vector in zip(edges, vectors, strict=True):
        out[target] += (x[source] + vector).clamp(min=0)
    first, inner, _, last = conv.nn
    return linear(norm(linear(out, first), inner).clamp(min=0), last)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("layer", "convolution"), [("GCN", gcn), ("GIN", gin)])
def test_model_agrees_with_its_equations(batch, layer, convolution, residual):
    """Every layer encodes the edges with its own weights, and the last has no ReLU."""
    model = made(layer, residual=residual)
    with torch.no_grad():
        x = model.node_encoder(batch)
        for number in range(3):
            vectors = model.edge_encoders[number](batch)
            new = convolution(model.layers[number], x.clone(), batch.edge_index.T.tolist(), vectors)
            new = norm(new, model.norms[number])
            new = new if number == 2 else new.clamp(min=0)
            x = x + new if residual else new
        got = model(batch).node
    assert (got < 0).any()
    torch.testing.assert_close(got, x, rtol=1e-11, atol=1e-11)


def test_edge_encoders_are_not_shared(batch):
    model = made("GIN")
    found = [model(batch).node]
    for encoder in model.edge_encoders:
        kept = [parameter.detach().clone() for parameter in encoder.parameters()]
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(1)
        found.append(model(batch).node)
        with torch.no_grad():
            for parameter, value in zip(encoder.parameters(), kept, strict=True):
                parameter.copy_(value)
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(found, 2))


def counted(*files):
    """Parameters of a recipe, without memory for them."""
    options, config = {}, {}
    for name in files:
        config = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
        options |= config["model"]["architecture"]["init_args"]
    with torch.device("meta"):
        model = OGBGNN(PCQM4M.spec, **options)
        head = HeadConfig(num_layers=1, pooling="add").mlp(model.dim, 1)
    return sum(p.numel() for module in (model, head) for p in module.parameters())


@pytest.mark.parametrize(
    ("files", "layer", "printed"),
    [
        (["pcqm4m"], 600 * 601 + 600 + 13 * 600 + 2 * 600, "2.0M"),
        (["pcqm4m", "overlays/ogb-gin"], 2 * 600 * 601 + 2 * 600 + 1 + 13 * 600 + 2 * 600, "3.8M"),
    ],
)
def test_recipes_have_the_parameters_that_ogb_prints(files, layer, printed):
    """Five layers, 174 rows of atoms (OGB had 173 then) and a linear head; 13 rows of bonds in every layer."""
    total = counted(*files)
    assert total == 5 * layer + 174 * 600 + 601
    assert f"{total / 1e6:.1f}M" == printed
    expected = yaml.safe_load((CONFIGS / "pcqm4m.yaml").read_text(encoding="utf-8"))["expected"]
    assert total == (expected["variants"]["ogb-gin"] if len(files) > 1 else expected)["parameters"]


def test_an_unknown_layer_is_refused():
    with pytest.raises(BadInput, match="layer"):
        OGBGNN(tiny_spec(), layer="GAT")
