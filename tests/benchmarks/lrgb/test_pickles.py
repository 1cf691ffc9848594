"""The restricted reader of pickled lists gives the graphs of `pickle`, runs nothing and uses little memory."""

import pickle
import pickletools
import subprocess
import weakref
from collections import OrderedDict
from itertools import islice

import numpy as np
import pytest
import torch

from graphbench.benchmarks.lrgb.pickles import read_pickled_graphs
from graphbench.errors import CorruptData


def graph(seed, nodes=20):
    rng = np.random.default_rng(seed)
    return (
        torch.from_numpy(rng.random((nodes, 14))).half(),
        torch.from_numpy(rng.random((2 * nodes, 2))),
        torch.from_numpy(rng.integers(0, nodes, (2 * nodes, 2))).t(),  # not contiguous: strides must be kept
        rng.integers(0, 21, nodes).astype(np.uint8),
        [1, 2, 300, 70_000, -5, 2**40],
        np.asfortranarray(rng.random((3, 2))),
    )


def written(tmp_path, value, protocol=4):
    path = tmp_path / "train.pickle"
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize(  # pickle writes lists in batches of 1,000, and single items differently
    ("count", "protocol"), [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (1001, 4)]
)
def test_graphs_are_those_of_pickle(tmp_path, protocol, count):
    graphs = [graph(seed % 7, nodes=1 + seed % 9) for seed in range(count)]
    path = written(tmp_path, graphs, protocol)
    found = list(read_pickled_graphs(path))
    assert len(found) == count
    for ours, theirs in zip(found, graphs, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert type(mine) is type(other)
            if isinstance(other, list):
                assert mine == other
            else:
                assert mine.dtype == other.dtype
                assert mine.shape == other.shape
                assert (mine == other).all()


def test_views_of_one_tensor_are_read(tmp_path):
    whole = torch.arange(24.0).reshape(6, 4)
    path = written(tmp_path, [(whole[2:4], whole[:, 1])])
    (found,) = read_pickled_graphs(path)
    assert torch.equal(found[0], whole[2:4])
    assert torch.equal(found[1], whole[:, 1])


@pytest.mark.slow
def test_graphs_come_before_the_file_is_read_to_its_end(tmp_path):
    path = written(tmp_path, [graph(seed) for seed in range(3000)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    graphs = read_pickled_graphs(path)
    assert len([next(graphs) for _ in range(1000)]) == 1000
    with pytest.raises(CorruptData):
        list(graphs)


class _Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "evil",
    [
        _Runs(print, "never"),
        _Runs(eval, "print('never')"),
        _Runs(subprocess.run, ("echo", "never")),
        _Runs(torch.load, "never"),
        _Runs(getattr, "text", "upper"),
        _Runs(np.ndarray, (3,)),
        _Runs(torch.storage._load_from_bytes, pickle.dumps(_Runs(print, "never"))),
        OrderedDict(a=1),
        {"a": 1},
        np.array([print], dtype=object),
        _Runs,
        {1, 2},
    ],
    ids=["print", "eval", "run", "load", "getattr", "ndarray", "storage", "dict", "{}", "objects", "class", "set"],
)
def test_everything_else_is_refused(tmp_path, evil, capfd):
    path = written(tmp_path, [(torch.zeros(2), evil)])
    with pytest.raises(CorruptData, match=r"train\.pickle"):
        list(read_pickled_graphs(path))
    assert "never" not in capfd.readouterr().out


@pytest.mark.parametrize("value", [{"a": 1}, (1, 2), [1, 2], [[torch.zeros(1)]], "text"])
def test_other_things_than_a_list_of_tuples_are_told(tmp_path, value):
    with pytest.raises(CorruptData):
        list(read_pickled_graphs(written(tmp_path, value)))


@pytest.mark.slow
def test_no_cut_and_no_changed_byte_raises_anything_else(tmp_path):
    content = written(tmp_path, [graph(0, nodes=3)]).read_bytes()
    path = tmp_path / "changed.pickle"
    rng = np.random.default_rng(0)
    opcodes = [position for _, _, position in pickletools.genops(content)]
    refused = 0
    for place in [*opcodes, *rng.integers(0, len(content), 200).tolist()]:
        for changed in (content[:place], content[:place] + bytes([rng.integers(256)]) + content[place + 1 :]):
            path.write_bytes(changed)
            try:
                list(read_pickled_graphs(path))
            except CorruptData:
                refused += 1
    # Every cut is detected; a changed number in a tensor is not.
    assert refused >= len(opcodes) + 200


def test_graphs_are_forgotten(tmp_path):
    """After 2,500 of 3,000 graphs, only those of the current batch of 1,000 are alive."""
    graphs = read_pickled_graphs(written(tmp_path, [(torch.full((3,), float(n)), [n]) for n in range(3000)]))
    seen = [weakref.ref(tensor) for tensor, _ in islice(graphs, 2500)]
    alive = [float(tensor[0]) for tensor in (reference() for reference in seen) if tensor is not None]
    assert len(alive) <= 1000
    assert min(alive) >= 2000
