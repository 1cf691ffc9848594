"""Files of `torch.save`: contents that are read, and contents that are refused without running their code."""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.data.storage import AttrType

from graphbench.benchmarks.graphs.readers import saved
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.benchmarks.graphs.readers.saved import _safe_parts, load_plain, load_saved, plain_pickles
from graphbench.data import progress
from graphbench.errors import BadInput, CorruptData


def read(content, path):
    torch.save(content, path)
    return raw_from_objects(load_saved(path), path.name)


def test_reading_a_large_file_is_said(graphs, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(progress, "DELAY", -1.0)
    monkeypatch.setattr(saved, "LARGE", 0)
    with caplog.at_level("INFO"):
        read([Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 0).long()) for _ in range(7)], tmp_path / "mine.pt")
    assert "mine.pt: loading 14 tensors" in caplog.text
    assert "Reading mine.pt: 7 graphs in" in caplog.text


def test_every_form_of_a_list_gives_the_same_graphs(graphs, tmp_path):
    forms = {
        "list": graphs,
        "tuple": tuple(graphs),
        "mappings": [graph.to_dict() for graph in graphs],
        "splits": {"train": graphs[:20], "valid": graphs[20:30], "test": graphs[30:]},
        "three lists": [graphs[:20], graphs[20:30], graphs[30:]],
        "in-memory data set": (*InMemoryDataset.collate(graphs), {"sizes": 3}),
        "processed file": (InMemoryDataset.collate(graphs)[0].to_dict(), InMemoryDataset.collate(graphs)[1], Data),
    }
    for name, content in forms.items():
        raw = read(content, tmp_path / "mine.pt")
        assert len(raw) == 40, name
        assert (raw.columns["node"]["x"] == torch.cat([graph.x for graph in graphs]).numpy()).all(), name
        assert (raw.columns["graph"]["energy"] == torch.stack([graph.energy for graph in graphs]).numpy()).all(), name
        assert (raw.splits is not None) == (name in ("splits", "three lists")), name
    assert len(read(graphs[0], tmp_path / "one.pt")) == 1
    assert len(raw_from_objects(Batch.from_data_list(graphs[:5]), "a batch")) == 5


class Malicious:
    def __reduce__(self):
        return Path.touch, (Path(self.place),)


def test_files_that_would_run_code_are_refused_with_the_way_out(graphs, tmp_path):
    trap = Malicious()
    trap.place = str(tmp_path / "was_run")
    torch.save([trap], tmp_path / "trap.pt")
    (tmp_path / "trap.pkl").write_bytes(pickle.dumps([trap]))
    (tmp_path / "pickled.pt").write_bytes(pickle.dumps([trap]))
    for name in ("trap.pt", "trap.pkl", "pickled.pt"):
        with pytest.raises((BadInput, CorruptData), match=r"torch\.save\(\[Data.*my_package\.data:load") as caught:
            load_saved(tmp_path / name)
        assert name in str(caught.value)
    assert not (tmp_path / "was_run").exists()


def test_graphs_may_hold_arrays_of_numbers_and_no_others(tmp_path):
    arrays = {"x": np.eye(3, 2), "y": np.arange(3, dtype=np.int32), "mask": np.array([True, False, True])}
    edge_index = torch.tensor([[0, 1], [1, 2]])
    torch.save([Data(edge_index=edge_index, **arrays)], tmp_path / "numbers.pt")
    (graph,) = load_saved(tmp_path / "numbers.pt")
    for name, array in arrays.items():
        assert graph[name].dtype == array.dtype
        assert (graph[name] == array).all()
    torch.save([Data(edge_index=edge_index, x=np.array([1, None], dtype=object))], tmp_path / "objects.pt")
    with pytest.raises(BadInput, match="more than tensors and graphs"):
        load_saved(tmp_path / "objects.pt")


class _Attribute:
    """Saved as `getattr(owner, name)`, as Python 3.11.0 to 3.11.3 save members of an `Enum`."""

    def __init__(self, owner, name):
        self.owner, self.name = owner, name

    def __reduce__(self):
        return getattr, (self.owner, self.name)


def test_members_of_enums_are_read_as_early_releases_of_python_3_11_saved_them(tmp_path):
    torch.save([_Attribute(AttrType, "NODE")], tmp_path / "mine.pt")
    with _safe_parts():
        assert torch.load(tmp_path / "mine.pt", weights_only=True) == [AttrType.NODE]


@pytest.mark.parametrize(("owner", "name"), [(Batch, "from_data_list"), (Data, "mro"), (torch.Tensor, "__init__")])
def test_no_other_attribute_is_read(owner, name, tmp_path):
    torch.save([_Attribute(owner, name)], tmp_path / "mine.pt")
    with pytest.raises(BadInput, match="holds more than tensors and graphs"):
        load_saved(tmp_path / "mine.pt")


def test_damaged_files_and_other_content(graphs, tmp_path):
    torch.save(graphs, tmp_path / "whole.pt")
    (tmp_path / "torn.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:700])
    with pytest.raises(CorruptData, match=r"torn\.pt cannot be read"):
        load_saved(tmp_path / "torn.pt")
    with pytest.raises(BadInput, match="to_homogeneous"):
        raw_from_objects([HeteroData()], "mine")
    with pytest.raises(BadInput, match=r"three\.pt holds Tensor|three\.pt, graph 0 is a Tensor"):
        read(torch.zeros(3), tmp_path / "three.pt")
    data, slices = InMemoryDataset.collate(graphs)
    with pytest.raises(CorruptData, match="slices that do not fit"):
        read((data, slices | {"y": slices["y"][:5]}), tmp_path / "short.pt")
    for name in slices:
        dim = 1 if name == "edge_index" else 0
        longer = Data.from_dict(data.to_dict() | {name: torch.cat([data[name], data[name].narrow(dim, 0, 1)], dim)})
        with pytest.raises(CorruptData, match=f"{name} has .* and its slices end at"):
            read((longer, slices), tmp_path / "long.pt")


class _Runs:
    def __reduce__(self):
        return eval, ("1 / 0",)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_arrays_matrices_and_containers_are_read(protocol):
    dense, sparse = np.arange(6.0).reshape(2, 3), csr_matrix(np.eye(3, dtype=np.float32))
    graph = defaultdict(list, {0: [1, 2]})
    loaded = load_plain(io.BytesIO(pickle.dumps((dense, sparse, graph, np.float32(2)), protocol)), encoding="latin1")
    assert np.array_equal(loaded[0], dense)
    assert (loaded[1] != sparse).nnz == 0
    assert loaded[2] == graph
    assert loaded[3] == 2


def test_older_names_are_known():
    text = pickle.dumps(csr_matrix(np.eye(2)), 2).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
    text = text.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert load_plain(io.BytesIO(text), encoding="latin1").sum() == 2


def test_what_runs_code_is_refused_while_others_read():
    before = pickle.load
    with plain_pickles(), pytest.raises(pickle.UnpicklingError, match=r"names builtins\.eval, which might run code"):
        pickle.load(io.BytesIO(pickle.dumps([_Runs()])))
    assert pickle.load is before
