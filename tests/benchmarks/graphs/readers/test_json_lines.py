"""JSON lines: one graph per line."""

from __future__ import annotations

import json

import pytest

from graphbench.benchmarks.graphs.readers.json_lines import parts_of_lines, read_json_lines
from graphbench.errors import BadInput, CorruptData

GRAPH = {
    "id": "water",
    "nodes": {"element": ["O", "H", "H"], "place": [[0.0, 0.5], [1.0, 0.0], [2.0, 0.0]]},
    "edges": [[0, 1], [0, 2]],
    "edge_features": {"order": [1, 2]},
    "links": [[1, 2]],
    "y": [0.5, 1.5],
    "group": "a",
}


def write(path, *graphs):
    path.write_text("\n\n".join(graph if isinstance(graph, str) else json.dumps(graph) for graph in graphs))
    return path


def test_every_part_of_a_line_arrives(tmp_path):
    raw = read_json_lines(write(tmp_path / "mine.jsonl", GRAPH, GRAPH | {"id": "again"}), directed=False)
    raw.check()
    assert (raw.names, raw.num_nodes.tolist(), raw.num_edges.tolist()) == (["water", "again"], [3, 3], [4, 4])
    assert raw.edges[:4].tolist() == [[0, 1], [0, 2], [1, 0], [2, 0]]
    assert raw.columns["edge"]["order"].tolist() == [1, 2, 1, 2] * 2
    assert raw.columns["node"]["element"].tolist() == ["O", "H", "H"] * 2
    assert raw.columns["node"]["place"].shape == (6, 2)
    assert raw.columns["graph"]["y"].tolist() == [[0.5, 1.5]] * 2
    assert raw.pairs["link"].ends.tolist() == [[1, 2], [1, 2]]
    assert raw.place("edge", 5) == f"{tmp_path / 'mine.jsonl'}, line 3, edge 1"
    assert read_json_lines(tmp_path / "mine.jsonl", directed=True).num_edges.tolist() == [2, 2]


def test_a_graph_without_a_name_is_called_by_its_number(tmp_path):
    """A null name counts as missing. A graph that cannot be used still has a name."""
    path = write(tmp_path / "mine.jsonl", GRAPH, GRAPH | {"id": None}, GRAPH | {"id": None, "edges": 3})
    (part,) = parts_of_lines(path, directed=False, size=3)
    assert part.join([0, 1]).names == ["water", "1"]
    assert part.name_of(2) == "2"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_of_other_programs_are_read_as_tables_of_theirs_are(tmp_path, encoding):
    (tmp_path / "mine.jsonl").write_text(json.dumps(GRAPH), encoding=encoding)
    assert read_json_lines(tmp_path / "mine.jsonl", directed=False).names == ["water"]


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("{", CorruptData, "line 3 is not JSON"),
        ("[]", BadInput, "line 3 holds a list"),
        ({"num_nodes": 3}, BadInput, "line 3 has no edges; it has num_nodes"),
        ({"edges": [[0, 1]]}, BadInput, "line 3 needs num_nodes"),
        ({"edges": [[0, 1, 2]], "num_nodes": 3}, BadInput, "line 3: edges must be a list of pairs"),
        ({"edges": [[0, 0.5]], "num_nodes": 3}, BadInput, "line 3: edges must be a list of pairs"),
        (GRAPH | {"edge_features": {"order": [1]}}, BadInput, "line 3: order has 1 values, but there are 2 edges"),
        (GRAPH | {"nodes": [1]}, BadInput, "line 3: nodes must be an object of columns"),
        (GRAPH | {"nodes": {"a": [[1], [1, 2]]}}, BadInput, "line 3: nodes: a must be a list"),
        (GRAPH | {"y": {"a": 1}}, BadInput, "line 3: y is neither a number"),
    ],
)
def test_errors_name_the_line(tmp_path, line, error, message):
    with pytest.raises(error, match=message):
        read_json_lines(write(tmp_path / "mine.jsonl", GRAPH, line), directed=False)


def test_edges_to_nowhere_name_line_and_edge(tmp_path):
    bad = GRAPH | {"edges": [[0, 1], [0, 3]]}
    with pytest.raises(BadInput, match=r"line 3, edge 1: joins the nodes 0 and 3, but its graph has 3 nodes"):
        read_json_lines(write(tmp_path / "mine.jsonl", GRAPH, bad), directed=False).check()
