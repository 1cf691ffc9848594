"""OGB's data sets in the layout of their files: sets of graphs, and single graphs with split nodes."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.errors import BadInput, UnknownName

SPLITS = ("train", "val", "test")


def benchmark(source, tmp_path, **options):
    return Graphs(source, root=str(tmp_path / "data"), **options)


def write_tables(folder, tables):
    """Write compressed tables without a header, and the file that marks the release."""
    for name, rows in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())
    (folder / "RELEASE_v1.txt").touch()
    return tables


def write_ogb(folder, graphs, tasks):
    """Write OGB's raw files: compressed tables of all graphs, and the published split."""
    rng = np.random.RandomState(0)
    nodes = rng.randint(3, 7, graphs)
    edges = nodes - 1
    tables = {
        "raw/num-node-list": nodes[:, None],
        "raw/num-edge-list": edges[:, None],
        "raw/edge": np.concatenate([np.stack([np.arange(n - 1), np.arange(1, n)], 1) for n in nodes]),
        "raw/node-feat": rng.randint(0, 2, (nodes.sum(), 9)),
        "raw/edge-feat": rng.randint(0, 2, (edges.sum(), 3)),
        "raw/graph-label": rng.randint(0, 2, (graphs, tasks)),
        "split/scaffold/train": np.arange(graphs - 4)[:, None],
        "split/scaffold/valid": np.arange(graphs - 4, graphs - 2)[:, None],
        "split/scaffold/test": np.arange(graphs - 2, graphs)[:, None],
    }
    return write_tables(folder, tables)


def test_sets_of_ogb_with_their_split_and_metric(tmp_path, capsys):
    tables = write_ogb(tmp_path / "data" / "ogbg_molbace", 12, 1)
    made = benchmark("ogbg-molbace", tmp_path)
    made.setup()
    assert (made.spec.task, made.spec.metric, made.spec.split_sizes) == ("graph-multilabel", "AUROC", (8, 2, 2))
    assert made.ids("val") == [8, 9]
    y = torch.cat([made.tables[split].columns["y"] for split in SPLITS])
    assert y[:, 0].tolist() == tables["raw/graph-label"][:, 0].tolist()
    x = torch.cat([made.tables[split].columns["x"] for split in SPLITS])
    assert x.tolist() == tables["raw/node-feat"].tolist()
    assert capsys.readouterr().out == "", "commands print results to stdout"


def write_arxiv(folder, nodes=30, edges=60):
    """Write directed citations, features, the year of each paper, subjects, and the split by time."""
    rng = np.random.RandomState(0)
    pairs = np.unique(rng.randint(nodes, size=(edges, 2)), axis=0)
    order = rng.permutation(nodes)[:, None]
    return write_tables(
        folder,
        {
            "raw/num-node-list": [[nodes]],
            "raw/num-edge-list": [[len(pairs)]],
            "raw/edge": pairs,
            "raw/node-feat": rng.randn(nodes, 4).round(4),
            "raw/node_year": rng.randint(2010, 2020, (nodes, 1)),
            "raw/node-label": (np.arange(nodes) % 5)[:, None],
            "split/time/train": order[:15],
            "split/time/valid": order[15:20],
            "split/time/test": order[20:],
        },
    )


def test_ogbn_arxiv_with_its_split_by_time(tmp_path):
    tables = write_arxiv(tmp_path / "data" / "ogbn_arxiv")
    made = benchmark("ogbn-arxiv", tmp_path)
    made.setup()
    assert (made.spec.task, made.spec.num_classes, made.spec.metric) == ("node-classification", 5, "accuracy")
    assert made.spec.node.dense == 4
    assert made.spec.node.vocabularies == (), "the year is not a feature"
    batch = made.tables["train"].batch([0])
    assert batch.edge_index.t().tolist() == tables["raw/edge"].tolist()
    assert np.allclose(batch.x_dense.numpy(), tables["raw/node-feat"])
    for split, name in zip(SPLITS, ("train", "valid", "test"), strict=True):
        known = made.tables[split].columns["y"][:, 0]
        rows = np.sort(tables[f"split/time/{name}"][:, 0])
        assert (known >= 0).nonzero()[:, 0].tolist() == rows.tolist()
        assert known[known >= 0].tolist() == (rows % 5).tolist()
    both = benchmark("ogbn-arxiv", tmp_path, to_undirected=True)
    both.setup()
    listed = {tuple(pair) for pair in tables["raw/edge"].tolist()}
    found = [tuple(pair) for pair in both.tables["train"].batch([0]).edge_index.t().tolist()]
    assert len(found) == len(set(found))
    assert set(found) == listed | {(tail, head) for head, tail in listed}


def test_ogbn_proteins_has_several_labels_for_each_node(tmp_path):
    rng = np.random.RandomState(1)
    pairs = np.array([[node, node + 1] for node in range(19)])
    labels = rng.randint(0, 2, (20, 112))
    write_tables(
        tmp_path / "data" / "ogbn_proteins",
        {
            "raw/num-node-list": [[20]],
            "raw/num-edge-list": [[len(pairs)]],
            "raw/edge": pairs,
            "raw/edge-feat": rng.rand(len(pairs), 8).round(3),
            "raw/node_species": rng.randint(3000, 3010, (20, 1)),
            "raw/node-label": labels,
            "split/species/train": np.arange(12)[:, None],
            "split/species/valid": np.arange(12, 16)[:, None],
            "split/species/test": np.arange(16, 20)[:, None],
        },
    )
    made = benchmark("ogbn-proteins", tmp_path)
    made.setup()
    assert (made.spec.task, made.spec.num_targets, made.spec.metric) == ("node-multilabel", 112, "AUROC")
    test = made.tables["test"].batch([0])
    assert test.y[16:].tolist() == labels[16:].tolist()
    assert test.y[:16].isnan().all()
    assert test.edge_dense.shape == (2 * len(pairs), 8), "each edge has both directions"
    assert torch.equal(test.edge_index[:, :2], torch.tensor([[0, 1], [1, 0]]))


def test_sets_that_no_task_reads(tmp_path):
    with pytest.raises(UnknownName, match="Did you mean ogbg-molbace"):
        benchmark("ogbg-molbase", tmp_path)
    with pytest.raises(UnknownName, match=r"No node-property set of OGB .* Did you mean ogbn-arxiv"):
        benchmark("ogbn-arxive", tmp_path)
    with pytest.raises(BadInput, match="no task for subtoken prediction"):
        benchmark("ogbg-code2", tmp_path)
    with pytest.raises(BadInput, match="ogbn-mag: it has several kinds of nodes and edges"):
        benchmark("ogbn-mag", tmp_path)
