"""PyG's data sets by name: untrusted servers, and the sets that a run sent by others may name."""

from __future__ import annotations

import hashlib
import http.server
import inspect
import re
import ssl
import subprocess
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch_geometric.datasets as sets
import yaml

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.readers import pyg_sets
from graphbench.benchmarks.graphs.readers.sources import open_source
from graphbench.benchmarks.graphs.readers.third_party import made
from graphbench.data import download
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.registry.importing import limited_to
from graphbench.runs.trust import Policy

#: Code that reads pickles or runs code in a way that `made` does not restrict, or that downloads by itself.
DANGER = re.compile(
    r"\beval\(|\bexec\(|Unpickler|read_pickle|subprocess|os\.system|import requests|urllib|load_dataset"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return a function scheme -> address of a local server that sends `file.txt`, by http or self-signed https."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "file.txt").write_text("forged")
    signed = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=127.0.0.1"
    subprocess.run(signed.split(), cwd=folder, check=True, capture_output=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    servers = {}
    for scheme in ("http", "https"):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        if scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers[scheme] = server
    yield lambda scheme: f"{scheme}://127.0.0.1:{servers[scheme].server_port}/file.txt"
    for server in servers.values():
        server.shutdown()
        server.server_close()


def files_in(folder):
    """Return all files except the locks of downloads."""
    return [path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".fetch.lock"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_data_set_believes_no_server_that_nobody_vouches_for(served, tmp_path, monkeypatch, scheme):
    monkeypatch.setattr(sets.Airports, "edge_url", served(scheme) + "?{}")
    monkeypatch.setattr(sets.Airports, "label_url", served(scheme) + "?{}")
    with pytest.raises(MissingData, match="Airports"):
        open_source("Airports:usa", {}, False, tmp_path).read()
    monkeypatch.setattr(sets.TUDataset, "url", served(scheme).removesuffix("/file.txt"))
    with pytest.raises(MissingData, match="TUDataset"):
        open_source("TUDataset:file", {}, False, tmp_path).read()
    assert not files_in(tmp_path)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_ogb_believes_none_either(served, tmp_path, scheme):
    import ogb.graphproppred as package

    module = package.dataset_pyg
    with pytest.raises(MissingData):
        made("ogbg-x", tmp_path / "x", lambda: module.download_url(served(scheme), str(tmp_path)))
    assert not files_in(tmp_path)


def test_a_connection_of_its_own_is_refused(served, tmp_path):
    import urllib.request

    with pytest.raises(MissingData, match="by itself"):
        made("mine", tmp_path, lambda: urllib.request.urlopen(served("http")).read())
    assert urllib.request.urlopen(served("http")).read() == b"forged"  # allowed outside of `made`


def test_the_checksum_of_the_first_download_is_kept(served, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_SCHEMES", ("http",))
    pyg = sets.airports

    def fetched():
        return Path(made("Airports", tmp_path, lambda: pyg.download_url(served("http"), str(tmp_path / "usa" / "raw"))))

    assert fetched().read_text() == "forged"
    checksum = hashlib.sha256(b"forged").hexdigest()
    assert (tmp_path / "SHA256SUMS").read_text() == f"{checksum}  usa/raw/file.txt\n"
    (tmp_path / "usa" / "raw" / "file.txt").write_text("another")
    with pytest.raises(CorruptData, match="not what was first downloaded"):
        fetched()


def test_listed_sets_neither_run_nor_unpickle_what_they_read():
    there = {name: arguments for name, arguments in pyg_sets.ADMITTED.items() if hasattr(sets, name)}
    assert len(there) > 50  # PyG 2.6 lacks two of them
    for name, arguments in there.items():
        cls = getattr(sets, name)
        source = inspect.getsource(inspect.getmodule(cls))
        assert not DANGER.search(source), name
        assert set(arguments) <= set(inspect.signature(cls.__init__).parameters), name
    assert "CornellTemporalHyperGraphDataset" not in pyg_sets.ADMITTED


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("CornellTemporalHyperGraphDataset:email-Eu", {}),
        ("TUDataset:../up", {}),
        ("TUDataset:MUTAG", {"transform": "os.system"}),
        ("TUDataset:MUTAG", {"pre_transform": {"class_path": "os.system"}}),
        ("Planetoid:/tmp/x", {}),
        ("ExplainerDataset", {"graph_generator": "x", "motif_generator": "y"}),
        ("FakeDataset", {"num_graphs": 3, "global_features": 3}),
    ],
)
def test_a_sent_run_names_listed_sets_with_listed_arguments(tmp_path, source, arguments):
    with limited_to(Policy(tmp_path / "config.yaml")), pytest.raises(BadInput, match="--trust"):
        open_source(source, arguments, False, tmp_path)
    with limited_to(Policy(tmp_path / "config.yaml", trust=True)):
        open_source(source, arguments, False, tmp_path)


def graphland(folder, nodes=60):
    """Write a data set as GraphLand's files: mixed features with gaps, targets of some nodes, masks of each split."""
    rng = np.random.default_rng(0)
    raw = folder / "GraphLandDataset" / "artnet-views" / "raw" / "artnet-views"
    raw.mkdir(parents=True)
    rows = pd.RangeIndex(nodes, name="node_id")
    number = np.where(np.arange(nodes) == 3, np.nan, rng.normal(size=nodes))
    columns = {"number": number, "share": rng.random(nodes), "kind": rng.integers(0, 3, nodes)}
    pd.DataFrame(columns, index=rows).to_csv(raw / "features.csv")
    target = np.where(np.arange(nodes) % 7 == 0, np.nan, rng.normal(size=nodes))
    pd.DataFrame({"views": target}, index=rows).to_csv(raw / "targets.csv")
    masks = {}
    for split, (first, second) in {"RL": (6, 12), "RH": (30, 45), "TH": (30, 45)}.items():
        place = np.arange(nodes) if split == "TH" else rng.permutation(nodes)
        masks[split] = {"train": place < first, "val": (first <= place) & (place < second), "test": place >= second}
        pd.DataFrame(masks[split], index=rows).to_csv(raw / f"split_masks_{split}.csv")
    ends = np.unique(np.sort(rng.integers(0, nodes, (200, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    pd.DataFrame(ends, columns=["source", "target"]).to_csv(raw / "edgelist.csv", index=False)
    names = {"numerical_features_names": ["number", "share"], "fraction_features_names": ["share"]}
    info = {"task": "regression", "target_name": "views", "categorical_features_names": ["kind"], **names}
    (raw / "info.yaml").write_text(yaml.safe_dump(info))
    return masks, ends, ~np.isnan(target)


@pytest.mark.skipif(not hasattr(sets, "GraphLandDataset"), reason="this PyG has no GraphLand")
@pytest.mark.filterwarnings("ignore:n_quantiles")
@pytest.mark.parametrize("split", ["RL", "RH", "TH", "THI"])
def test_all_splits_of_graphland(split, tmp_path):
    """Random and temporal splits are masks of one graph; the temporal inductive one has three growing snapshots."""
    masks, ends, known = graphland(tmp_path)
    options = {"root": str(tmp_path), "store": str(tmp_path / "store")}
    with limited_to(Policy(tmp_path / "config.yaml")):
        data = Graphs(source=f"GraphLandDataset:artnet-views,split={split}", **options)
        data.setup()
    assert data.spec.task == "node-regression"
    seen = np.zeros(60, dtype=bool)
    for name, mask in masks[split[:2]].items():
        batch = data.tables[name].batch([0])
        seen |= mask
        there = seen if split == "THI" else np.ones(60, dtype=bool)
        assert batch.num_nodes == there.sum()
        assert (~batch.y[:, 0].isnan()).tolist() == (mask & known)[there].tolist()
        number = there.cumsum() - 1
        expected = {(int(a), int(b)) for a, b in number[ends[there[ends].all(1)]]}
        assert set(map(tuple, batch.edge_index.t().tolist())) == expected | {(b, a) for a, b in expected}
        assert batch.x_dense.shape == (there.sum(), 5)  # two numbers and three categories
        assert batch.x_dense.isfinite().all()


def test_a_sent_run_reads_a_listed_set(tmp_path):
    with limited_to(Policy(tmp_path / "config.yaml")):
        assert len(open_source("FakeDataset:num_graphs=3", {}, False, tmp_path).read()) == 3
