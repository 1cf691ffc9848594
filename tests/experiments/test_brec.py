"""BREC's file, statistic and bound; a model that must distinguish a pair, and one that cannot."""

from __future__ import annotations

import csv
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats
from scripts import load_script

from graphbench.errors import BadInput


@pytest.fixture(scope="module")
def brec():
    return load_script(Path(__file__).parents[2] / "experiments" / "brec.py")


def relabelled(graph: nx.Graph, rng: np.random.Generator) -> bytes:
    """Return graph6 of the graph with permuted nodes."""
    order = rng.permutation(graph.number_of_nodes())
    mixed = nx.relabel_nodes(graph, dict(enumerate(order.tolist())))
    return nx.to_graph6_bytes(mixed, nodes=range(len(order)), header=False).strip()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Write two pairs in the published layout: a hexagon and two triangles; a path and a star."""
    rng = np.random.default_rng(0)
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    pairs = [(nx.cycle_graph(6), triangles), (nx.path_graph(5), nx.star_graph(4))]
    strings = [relabelled(one, rng) for pair in pairs for _ in range(32) for one in pair]
    strings += [relabelled(pair[0], rng) for pair in pairs for _ in range(64)]
    path = tmp_path_factory.mktemp("brec") / "brec_v3.npy"
    np.save(path, strings)
    return path


def test_the_bound_is_that_of_hotelling(brec):
    assert round(31 * 16 / 16 * stats.f.ppf(0.95, 16, 16), 1) == round(brec.THRESHOLD, 1)
    assert [last for _, last in brec.PARTS.values()][-1] == 400
    bounds = [bound for part in brec.PARTS.values() for bound in part]
    assert bounds[1:-1:2] == bounds[2::2], "parts follow one another"


def test_the_statistic_is_that_of_numpy(brec):
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 32, 16, generator=generator, dtype=torch.float64)
    d = (first - second).numpy()
    expected = d.mean(0) @ np.linalg.inv(np.cov(d.T)) @ d.mean(0)
    assert brec.t_squared(first, second) == pytest.approx(expected, rel=1e-9)
    same = torch.ones(32, 16)
    assert brec.t_squared(same, same) == 0.0
    assert brec.t_squared(same, 2 * same) == pytest.approx(16 / 1e-7)


def test_the_file_is_read_pair_by_pair(brec, file):
    strings = brec.read(file)
    assert strings.shape == (2, 2, 64)
    table = brec.table_of(strings[0, 0])
    assert len(table) == 64
    for number in range(64):
        graph = nx.from_edgelist(table.batch([number]).edge_index.T.tolist())
        assert nx.number_connected_components(graph) == 1 + number % 2, "hexagon and two triangles alternate"
        assert {degree for _, degree in graph.degree} == {2}
    itself = brec.table_of(strings[1, 1])
    assert all(itself.batch([number]).edge_index.shape[1] == 8 for number in range(64))


def test_other_files_are_refused(brec, tmp_path):
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([b"A_", None], dtype=object), allow_pickle=True)
    short = tmp_path / "short.npy"
    np.save(short, [b"A_"] * 100)
    text = tmp_path / "text.npy"
    text.write_text("no array")
    for path in (objects, short, text, tmp_path / "gone.npy"):
        with pytest.raises(BadInput, match=path.name):
            brec.read(path)
    with pytest.raises(BadInput, match="graph6"):
        brec.table_of([b"\x01\x02"])


def test_message_passing_cannot_and_a_positional_model_can(brec, file, tmp_path, capsys):
    """A hexagon and two triangles have equal colours under refinement: GIN's embeddings are equal up to rounding."""
    strings = brec.read(file)[:, 0]
    torch.manual_seed(0)
    small = {"hidden_dim": 16, "num_layers": 2}
    blind = brec.judge(strings, "GIN", small, epochs=1)
    assert not blind.distinguished
    module_options = [f"{name}={value}" for name, value in {**small, "num_heads": 2}.items()]
    output = tmp_path / "brec.csv"
    words = [str(file), "--model", "PPGT", "--options", *module_options, "--epochs", "2", "--output", str(output)]
    assert brec.main([*words, "--pairs", "0", "1"]) == 0
    (row,) = csv.DictReader(output.open(encoding="utf-8"))
    assert (row["pair"], row["part"], row["distinguished"]) == ("0", "Basic", "1")
    assert "1 of 1 told apart" in capsys.readouterr().out
