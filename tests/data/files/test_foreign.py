"""Third-party files with random damage are read, or raise a GraphbenchError that names the file."""

from __future__ import annotations

import json
import random
import re
import time

import networkx as nx
import pytest
import torch
import yaml
from torch_geometric.data import Data

from graphbench.benchmarks.gnn_benchmark_files import read_splits
from graphbench.benchmarks.graphs.readers.networkx_files import READERS, read_networkx
from graphbench.benchmarks.graphs.readers.saved import load_saved
from graphbench.benchmarks.lrgb.files import contact_table, peptide_table, read_molecules, read_superpixels
from graphbench.benchmarks.molecules.ogb import load_split_dict
from graphbench.cli import main
from graphbench.data.files.foreign import MAX_VALUES, foreign, load_json, load_yaml
from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.runs import RunFolder

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
ATOMS, BONDS = torch.zeros(3, 9, dtype=torch.int64), torch.zeros(4, 3, dtype=torch.int64)


def of_gnn_benchmark(path):
    graphs = [{"x": torch.rand(3, 1), "edge_index": EDGES, "y": torch.tensor([1])} for _ in range(3)]
    torch.save([graphs, graphs, graphs], path)


def convert(graphs):
    return {
        name: (torch.cat([graph[name] for graph in graphs]), axis) for name, axis in (("x", "node"), ("y", "graph"))
    }


def read_benchmark(path):
    return [list(tables) for tables in read_splits(path, convert).values()]


def saved(content, **options):
    return lambda path: torch.save(content, path, **options)


def superpixels(path):
    import pickle

    graph = (torch.rand(3, 14), torch.rand(4, 2), EDGES, torch.zeros(3, dtype=torch.int64))
    path.write_bytes(pickle.dumps([graph] * 3, protocol=4))


SETS = {
    "gnn-benchmark": ("MNIST_v2.pt", of_gnn_benchmark, read_benchmark),
    "lrgb-peptides": (
        "train.pt",
        saved([(ATOMS, BONDS, EDGES, torch.rand(1, 10))] * 3),
        lambda path: list(read_molecules(path, peptide_table)),
    ),
    "lrgb-contacts": (
        "train.pt",
        saved([(ATOMS, BONDS, EDGES, EDGES, torch.ones(4))] * 3),
        lambda path: list(read_molecules(path, contact_table)),
    ),
    "lrgb-old-format": (
        "train.pt",
        saved([(ATOMS, BONDS, EDGES, torch.rand(1, 10))] * 3, _use_new_zipfile_serialization=False),
        lambda path: list(read_molecules(path, peptide_table)),
    ),
    "lrgb-superpixels": ("train.pickle", superpixels, lambda path: list(read_superpixels(path, range(21)))),
    "ogb-splits": (
        "split_dict.pt",
        saved({"train": [0, 1], "valid": [2], "test": [3]}),
        lambda path: load_split_dict(path, ("train", "valid", "test"), 4),
    ),
    "saved-graphs": ("graphs.pt", saved([Data(x=torch.rand(3, 1), edge_index=EDGES)] * 3), load_saved),
    **{
        f"networkx{suffix}": (
            f"graph{suffix}",
            lambda path, write=write: write(nx.path_graph(4), path),
            lambda path: read_networkx([path], None, False, str(path)),
        )
        for suffix, write in {
            ".graphml": nx.write_graphml,
            ".gexf": nx.write_gexf,
            ".gml": nx.write_gml,
            ".adjlist": nx.write_adjlist,
            ".edgelist": nx.write_edgelist,
        }.items()
    },
}


def damaged(content, rng, count):
    """Yield the content cut short, with a bit flipped, or with parts swapped, removed, repeated or replaced."""
    size = len(content)
    for number in range(count):
        start, length = rng.randrange(size), rng.randrange(1, 40)
        kind = number % 6
        if kind == 0:
            yield content[:start]
        elif kind == 1:
            yield content[:start] + bytes([content[start] ^ (1 << rng.randrange(8))]) + content[start + 1 :]
        elif kind == 2:
            other = rng.randrange(size)
            a, b = sorted((start, other))
            yield content[:a] + content[b : b + length] + content[a + length : b] + content[a : a + length]
        elif kind == 3:
            yield content[:start] + content[start + length :]
        elif kind == 4:
            yield content[:start] + content[start : start + length] * 2 + content[start + length :]
        else:
            yield content[:start] + rng.randbytes(length) + content[start + length :]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_damaged_files_end_in_one_line(name, tmp_path):
    file, write, read = SETS[name]
    path = tmp_path / file
    write(path)
    read(path)
    told = []
    for content in damaged(path.read_bytes(), random.Random(7), 240):
        path.write_bytes(content)
        try:
            read(path)
        except GraphbenchError as error:
            told.append(error)
    assert len(told) > 20
    assert all(path.name in str(error) for error in told)
    assert [str(error) for error in told if "\n" in str(error) and not isinstance(error, BadInput)] == []


def test_networkx_files_cover_every_suffix_that_is_read():
    assert {name.removeprefix("networkx") for name in SETS if name.startswith("networkx")} == set(READERS)


DEEP = 100_000


@pytest.mark.parametrize("content", ["[" * DEEP, "[" * 500 + "]" * 500, '{"a":' * 300 + "1" + "}" * 300])
def test_json_that_is_nested_too_deep_is_refused(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        load_json(tmp_path / "results.json")
    with pytest.raises(CorruptData, match=re.escape(str(tmp_path / "results.json"))):
        RunFolder(tmp_path).read_results()


def test_json_as_deep_as_records_are_is_read(tmp_path):
    value = {"a": [{"b": [1, {"c": None}]}]}
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert load_json(tmp_path / "a.json") == value


def test_gml_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "a.gml").write_text("graph [ " * 20_000 + "]" * 20_000)
    with pytest.raises(GraphbenchError, match=r"a\.gml"):
        read_networkx([tmp_path / "a.gml"], None, False, "here")


def test_errors_of_ours_pass_and_others_get_one_line():
    with pytest.raises(BadInput, match=r"^as it is$"), foreign("a.pt"):
        raise BadInput("as it is")
    with (
        pytest.raises(CorruptData, match=r"^a\.pt cannot be read \(KeyError: 'x'\)\. Fetch it\.$"),
        foreign("a.pt", "Fetch it."),
    ):
        raise KeyError("x")


#: Ten lines that expand to 9^10 values.
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "its aliases stand for more than 100,000 values"),
        ("a: &a [*a]", "its aliases stand for more"),
        ("a: &a {b: *a}", "its aliases stand for more"),
        ("[" * 200_000, "nested more than 100 deep"),
        ("- " * 200_000, "nested more than 100 deep"),
        ("{a: " * 200_000, "nested more than 100 deep"),
        ("x: !!python/object/apply:os.system [false]", "could not determine a constructor"),
    ],
)
def test_bombs_are_refused_at_once(text, said):
    start = time.process_time()
    with pytest.raises(yaml.YAMLError, match=said):
        load_yaml(text)
    assert time.process_time() - start < 5


def test_plain_values_and_aliases_are_read_as_pyyaml_reads_them():
    text = (
        "base: &base {lr: 1.0e-3, on: true, none: ~}\nother: *base\nmerged: {<<: *base, lr: 2}\nlist: [1, [2, [3]]]\n"
    )
    assert load_yaml(text) == yaml.safe_load(text)
    assert load_yaml("") is None
    assert len(load_yaml("[" + "1," * (MAX_VALUES - 1) + "]")) == MAX_VALUES - 1


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: 2\na: 3", "b:\n  a: 1\n\n  'a': 1", "- 1\n- {a: [{x: 0}], b: {a: 1},\n\n   a: 0}"],
    ids=["top", "below", "flow"],
)
def test_a_key_that_stands_twice_is_refused_with_its_lines(text):
    with pytest.raises(yaml.YAMLError, match=r"a occurs twice, in line \d and in line \d"):
        load_yaml(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data: CSL\nmodel:\n\tarchitecture: GPS\n", 3),
        ("data:\n  class_path: CSL\n\tinit_args: {}\n", 3),
        ("\tdata: CSL", 1),
        ("data:\n  class_path: CSL\n  \tinit_args: {}\n", 3),
    ],
)
def test_a_tab_that_indents_is_named_with_its_line(text, line):
    with pytest.raises(yaml.YAMLError, match=rf"^line {line} .*\btab\b"):
        load_yaml(text)


def test_tabs_elsewhere_are_left_to_yaml():
    assert load_yaml("data:\tCSL\nlist: [1,\t2]\n") == {"data": "CSL", "list": [1, 2]}
    with pytest.raises(yaml.YAMLError, match="expected"):
        load_yaml("data: [1,\t2")
    with pytest.raises(yaml.YAMLError, match="expected"):
        load_yaml("data: {a: 1\n")


def test_equal_keys_of_different_mappings_are_fine():
    text = "a: {a: 1, b: {a: [a, a]}}\nb: [{a: 1}, {a: 2}]\nc: a\nd: &d {a: 1}\ne: {<<: *d, a: 2}\n"
    assert load_yaml(text) == yaml.safe_load(text)


def test_a_bomb_as_configuration_is_one_line(tmp_path, capsys):
    path = tmp_path / "bomb.yaml"
    path.write_text("data: NCI\nmodel: {architecture: GPS}\n" + BOMB)
    for command in ("fit", "params"):
        assert main([command, "--config", str(path)]) == 1
        said = capsys.readouterr().err
        assert "bomb.yaml is not valid YAML: its aliases stand for more than 100,000 values" in said
        assert "Traceback" not in said
