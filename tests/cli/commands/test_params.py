"""`graphbench params` against a count by hand."""

import json

from graphbench.cli import main


def test_parts_add_up_and_head_follows_its_formula(capsys):
    options = ["--data", "NCI", "--model.architecture", "GCN", "--model.architecture.hidden_dim", "32"]
    assert main(["params", *options, "--model.head.num_layers", "3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sum(record["parts"].values()) == record["parameters"]
    assert record["parts"]["head"] == 2 * (32 * 32 + 32) + 33


def test_the_table_for_people_ends_with_the_total(capsys):
    assert main(["params", "--data", "NCI", "--model.architecture", "GCN"]) == 0
    text = capsys.readouterr().out
    assert "total" in text
    assert "GCN on NCI" in text
