from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import pointer
from graphbench.errors import BadInput

SIZES = [3, 1, 5, 2, 4]


@pytest.fixture
def graphs():
    """Return graphs with every usual column; one graph has no edges."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for number, n in enumerate(SIZES):
        e = 0 if number == 1 else 2 * n
        made.append(
            {
                "num_nodes": n,
                "edge_index": torch.randint(0, n, (2, e), generator=generator),
                "x": torch.randint(0, 9, (n, 2), generator=generator),
                "x_dense": torch.randn(n, 3, generator=generator),
                "pos": torch.randn(n, 2, generator=generator),
                "edge_attr": torch.randint(0, 4, (e, 1), generator=generator),
                "edge_dense": torch.randn(e, 2, generator=generator),
                "y": [*torch.randn(2, generator=generator).tolist(), float(number)],
            }
        )
    return made


@pytest.fixture
def table(graphs):
    return GraphTable.from_graphs(graphs)


def pyg(graphs, indices):
    """Return the same graphs through PyG's own collation."""
    data = []
    for index in indices:
        fields = {key: value for key, value in graphs[index].items() if key != "y"}
        data.append(Data(**fields, y=torch.tensor([graphs[index]["y"]])))
    return Batch.from_data_list(data)


@pytest.mark.parametrize("indices", [[0], [1], [4, 1, 2], [2, 2, 0], [0, 1, 2, 3, 4]])
def test_batch_equals_pyg_collation(graphs, table, indices):
    ours, theirs = table.batch(indices), pyg(graphs, indices)
    for name in ("edge_index", "x", "x_dense", "pos", "edge_attr", "edge_dense", "y", "batch", "ptr"):
        assert torch.equal(ours[name], theirs[name]), name
        assert ours[name].dtype == theirs[name].dtype, name
    assert ours.num_nodes == theirs.num_nodes
    assert ours.num_edges == theirs.num_edges
    assert ours.num_graphs == theirs.num_graphs
    assert ours.max_nodes == max(SIZES[index] for index in indices)
    assert ours.graph_id.tolist() == indices
    assert ours.edge_index.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_small_dtypes_on_disk_make_the_usual_batch(table, dtype):
    columns = dict(table.columns)
    for name in ("edge_index", "x", "edge_attr"):
        columns[name] = columns[name].to(dtype)
    small = GraphTable(columns | {"pos": columns["pos"].half()}, table.layout, table.ptr).batch([2, 0])
    usual = table.batch([2, 0])
    for name in ("edge_index", "x", "edge_attr"):
        assert torch.equal(small[name], usual[name])
        assert small[name].dtype == torch.int64
    assert small.pos.dtype == torch.float32
    torch.testing.assert_close(small.pos, usual.pos, rtol=1e-3, atol=1e-3)


def test_slice_and_select_hold_the_same_graphs(table):
    part, chosen = table.slice(1, 4), table.select(torch.tensor([1, 2, 3]))
    assert part.num_nodes.tolist() == chosen.num_nodes.tolist() == SIZES[1:4]
    for name in table.layout:
        assert torch.equal(part.columns[name], chosen.columns[name])
    assert torch.equal(part.batch([2, 0]).x, table.batch([3, 1]).x)
    assert part.batch([2, 0]).graph_id.tolist() == chosen.batch([2, 0]).graph_id.tolist() == [3, 1]


def test_slice_shares_memory(table):
    assert (
        table.slice(1, 4).columns["x"].untyped_storage().data_ptr() == table.columns["x"].untyped_storage().data_ptr()
    )


def test_extra_axes_and_pairs_are_batched_with_offsets(table):
    halves = torch.tensor([(n + 1) // 2 for n in SIZES])
    extra = {
        "member": torch.cat([torch.arange(int(h)) for h in halves]),
        "distance": torch.cat([torch.arange(n * n) for n in SIZES]),
        "anchor": torch.zeros(len(SIZES), dtype=torch.int64),
        "weight": torch.arange(int(halves.sum())).float(),
    }
    layout = {
        "member": Column("half", index_of="node"),
        "distance": Column("pair"),
        "anchor": Column("graph", index_of="node"),
        "weight": Column("half"),
    }
    batch = table.with_columns(extra, layout, {"half": pointer(halves)}).batch([2, 0])
    assert batch.member.tolist() == [0, 1, 2, 5, 6]
    assert batch.half_batch.tolist() == [0, 0, 0, 1, 1]
    assert batch.half_ptr.tolist() == [0, 3, 5]
    assert batch.weight.tolist() == [3, 4, 5, 0, 1]
    assert batch.distance.tolist() == [*range(25), *range(9)]
    assert batch.pair_ptr.tolist() == [0, 25, 34]
    assert batch.anchor.tolist() == [0, 5]
    assert "pair_batch" not in batch


def test_indices_between_extra_axes_are_shifted_by_their_own_axis(table):
    """A sparse relation between rows of an added axis: offsets count rows of that axis, not nodes."""
    parts = torch.tensor([2, 1, 1, 3, 1])
    links = torch.tensor([1, 0, 0, 2, 0])
    extra = {"size": torch.arange(8), "link": torch.tensor([[0, 1], [0, 2], [1, 2]])}
    layout = {"size": Column("part"), "link": Column("link", index_of="part")}
    batch = table.with_columns(extra, layout, {"part": pointer(parts), "link": pointer(links)}).batch([1, 3, 0])
    assert batch.link.tolist() == [[1, 3], [2, 3], [4, 5]]
    assert batch.link_batch.tolist() == [1, 1, 2]


def test_node_level_targets_are_recognised(graphs):
    for graph in graphs:
        graph["y"] = torch.arange(graph["num_nodes"])
    table = GraphTable.from_graphs(graphs)
    assert table.layout["y"] == Column("node")
    assert table.batch([2, 1]).y.tolist() == [0, 1, 2, 3, 4, 0]


def test_scalar_targets_become_a_column(graphs):
    for number, graph in enumerate(graphs):
        graph["y"] = torch.tensor(float(number))
    assert GraphTable.from_graphs(graphs).batch([3, 1]).y.tolist() == [[3.0], [1.0]]


@pytest.mark.parametrize("name", ["x", "x_dense", "pos", "edge_attr", "edge_dense", "y", "outer", "half", "third"])
def test_rows_of_every_graph_are_counted(graphs, name):
    """One row more in a graph and one less in the next leave the sums equal, and would shift the rows between."""
    layout = {"outer": Column("pair"), "half": Column("part"), "third": Column("part")}
    for graph in graphs:
        n = graph["num_nodes"]
        graph |= {"outer": torch.zeros(n * n), "half": torch.zeros(n + 1), "third": torch.zeros(n + 1, 2)}
    assert len(GraphTable.from_graphs(graphs, layout)) == len(SIZES)
    given, lacking = torch.as_tensor(graphs[2][name]), torch.as_tensor(graphs[3][name])
    given, lacking = (part[None] if name == "y" else part for part in (given, lacking))
    graphs[2][name], graphs[3][name] = torch.cat([given, lacking[:1]]), lacking[1:]
    wrong = "third" if name == "half" else name  # the first column of an axis of its own is its measure
    rows = len(graphs[2][wrong]), len(given) + (name == "half")
    with pytest.raises(BadInput, match=f"graph 2 has {rows[0]} rows in {wrong!r}, but {rows[1]} of its axis"):
        GraphTable.from_graphs(graphs, layout)


@pytest.mark.parametrize("wrong", [torch.tensor([False, True, False, False, True]), [True, False], [1.0, 2.9]])
def test_graphs_are_chosen_by_number(table, wrong):
    """As numbers, a mask would be the first two graphs again and again."""
    for choose in (table.select, table.batch):
        with pytest.raises(BadInput, match=r"expected numbers of graphs, got torch\.(bool|float32)"):
            choose(wrong)
    assert (len(table.select([])), table.batch([]).num_graphs) == (0, 0)
    assert table.select(range(1, 3)).num_nodes.tolist() == SIZES[1:3]


def test_lengths_of_every_axis(table):
    assert table.lengths("graph").tolist() == [1] * 5
    assert table.lengths("node").tolist() == SIZES
    assert table.lengths("pair").tolist() == [n * n for n in SIZES]
    assert table.num_edges.tolist() == [6, 0, 10, 4, 8]
    assert len(table) == 5


def test_batch_moves_between_devices_and_keeps_its_integers(table):
    batch = table.batch([0, 2]).to("meta")
    assert {batch[name].device.type for name in ("x", "edge_index", "ptr", "batch")} == {"meta"}
    assert (batch.num_graphs, batch.max_nodes, batch.num_nodes) == (2, 5, 8)


def test_a_batch_is_not_batched_again(table):
    with pytest.raises(TypeError, match="already a batch"):
        Batch.from_data_list([table.batch([0]), table.batch([1])])
