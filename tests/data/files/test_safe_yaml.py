"""Hostile YAML is refused before anybody walks over it."""

from __future__ import annotations

import time

import pytest
import yaml

from graphbench.cli import main
from graphbench.data.files.safe_yaml import MAX_VALUES, load_yaml

#: Ten lines that stand for 9^10 values.
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
    with pytest.raises(yaml.YAMLError, match=r"a stands twice, in line \d and in line \d"):
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
    with pytest.raises(yaml.YAMLError, match=f"^line {line} is indented with a tab, where YAML takes spaces alone$"):
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
