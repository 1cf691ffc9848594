"""`graphbench profile --card-memory`: the batch size that it names fits on the card and fills half of it."""

from __future__ import annotations

import re

import pytest
import torch
from command_line import SMALL_MODEL

from graphbench.benchmarks.points.base import PointCloudBenchmark
from graphbench.cli import main
from graphbench.cli.commands.profile import largest_batch, parse_memory, profile
from graphbench.data import GraphLoader, SizeBucketSampler
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec, tiny_table

pytestmark = pytest.mark.fresh_process


def total(options, capsys, card="100MB"):
    """Return the MB at the peak and the largest batch size."""
    assert main(["profile", *options, *SMALL_MODEL, "--card-memory", card]) == 0
    said = capsys.readouterr().out
    most = re.search(r"such as these: ([\d,]+)\.", said)
    return float(re.search(r"total at the peak\D+([\d.]+)", said)[1]), most and int(most[1].replace(",", ""))


@pytest.mark.slow
def test_the_largest_batch_fills_the_card(data_options, capsys):
    _, most = total(data_options, capsys, "2MB")
    # Batches of the table are smaller on average than the largest one
    used, _ = total([*data_options, "--data.batch_size", str(most)], capsys)
    assert 1.0 < used <= 2.05


def test_a_card_of_nothing_holds_no_graph(data_options, capsys):
    assert main(["profile", *data_options, *SMALL_MODEL, "--card-memory", "0.001MB"]) == 0
    assert "Not even one" in capsys.readouterr().out


def test_the_largest_batch_has_the_largest_graph():
    sizes = [3, 50, 4, 5, 6, 7, 8]
    table = tiny_table(tiny_spec(), sizes=sizes)
    loader = GraphLoader(table, SizeBucketSampler(torch.tensor(sizes), 2, shuffle=True))
    assert 1 in largest_batch(loader)


@pytest.mark.parametrize("text", ["80", "GB", "-1GB", "0GB", "80 gb", "1e9GB", "nanGB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(BadInput, match="--card-memory must be a size"):
        parse_memory(text)


def test_options_of_the_other_table_are_refused():
    with pytest.raises(BadInput, match="--card-memory trains no steps"):
        profile(["--data", "NCI", "--model.architecture", "GPS", "--depth", "2", "--card-memory", "1GB"])


def test_clouds_are_counted_as_a_step_samples_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PointCloudBenchmark, "num_points", property(lambda _: 8, lambda *_: None), raising=False)
    data = ["--data", "Solids", "--data.num_points", "32", "--data.sizes", "[36, 36, 36]", "--data.batch_size", "4"]
    assert main(["profile", *data, "--model.architecture", "PointNet", "--card-memory", "1GB"]) == 0
    assert "on 4 graphs, 32 nodes" in capsys.readouterr().out
