"""Measurements of the script on gates, against loops over graphs and heads, and its table against its records."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import torch
from scripts import load_script

from graphbench.nn import DenseLayout
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule
from graphbench_baselines import SigGateGT

PLUGIN = Path(__file__).parents[2]
GATES = load_script(PLUGIN / "experiments" / "gates.py")
DIM, HEADS, SIZES = 8, 2, [5, 1, 7]


def summed_messages(layer, x, edge, edge_index):
    """Sums of gated messages, edge by edge."""
    a, b, d, e = layer.node_maps(x).chunk(4, -1)
    top, bottom = torch.zeros_like(x), torch.zeros_like(x)
    for number, (j, i) in enumerate(edge_index.T.tolist()):
        gate = torch.sigmoid(d[i] + e[j] + layer.edge_map(edge[number]))
        top[i] += gate * b[j]
        bottom[i] += gate
    return a + top / (bottom + 1e-6)


def stable_rank(matrix):
    squares = np.linalg.svd(matrix.numpy(), compute_uv=False) ** 2
    return squares.sum() / squares[0]


@pytest.mark.parametrize("gated", [True, False])
@torch.no_grad()
def test_measures_of_a_layer_are_those_of_each_graph_and_head(gated):
    torch.manual_seed(0)
    spec = tiny_spec()
    batch = tiny_table(spec, sizes=SIZES).batch(range(len(SIZES)))
    module = BenchmarkModule(spec, lambda spec: SigGateGT(spec, DIM, 2, HEADS, gated=gated)).eval()
    model = module.architecture
    layer, x, edge = model.layers[0], model.node_encoder(batch), model.edge_encoder(batch)
    entered = layer.norms[0](x + layer.node_norm(summed_messages(layer, x, edge, batch.edge_index)).relu())
    left = layer(x, edge, batch, DenseLayout.from_batch(batch))[0]
    expected = {"open": [], "gated": [], "entropy": [], "spread": []}
    for graph, n in enumerate(SIZES):
        if n == 1:  # has neither pairs nor a choice of keys
            continue
        rows, unit = entered[batch.batch == graph], left[batch.batch == graph].double().numpy()
        q, k, v = layer.attention.in_proj(rows).chunk(3, -1)
        gates = layer.attention.gate_map(rows).sigmoid() if gated else torch.ones_like(rows)
        for part in np.split(np.arange(DIM), HEADS):
            weights = (q[:, part] @ k[:, part].T / len(part) ** 0.5).softmax(-1).double()
            mixed = weights @ v[:, part].double()
            expected["open"].append(stable_rank(mixed))
            expected["gated"].append(stable_rank(mixed * gates[:, part]))
            expected["entropy"].append(float(-(weights * weights.log()).sum(-1).mean()) / np.log(n))
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        expected["spread"].append(1 - ((unit @ unit.T).sum() - n) / (n * (n - 1)))
    found = GATES.by_layer(module, batch)
    for name, values in expected.items():
        assert len(found[name]) == 2
        assert found[name][0] == pytest.approx(mean(values), abs=2e-5), name


def test_the_table_of_the_page_has_the_means_of_the_records():
    runs = json.loads(GATES.RECORDS.read_text(encoding="utf-8"))
    table = GATES.table(runs)
    assert table in (PLUGIN / "README.md").read_text(encoding="utf-8")
    group = [run for run in runs if run["layers"] == 8 and run["gated"]]
    assert len(group) == 3
    (line,) = (line for line in table.splitlines() if line.startswith("| 8 | yes |"))
    assert f"{mean(run['test'] for run in group):.3f}" in line
    assert f"{np.mean([run['after']['entropy'] for run in group]):.3f}" in line
