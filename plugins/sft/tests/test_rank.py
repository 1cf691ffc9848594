import csv

import pytest
import torch

from graphbench.errors import BadInput
from graphbench_sft.rank import by_layer, main, measure, rank_by_depth

SIZE = {"num_tokens": 48, "dim": 64}


def test_the_leak_injects_rank_and_nothing_else_does():
    leaky = rank_by_depth("maxout_leaky", num_layers=12, **SIZE)
    assert leaky[0] == 1
    assert leaky[-1] >= 8
    for attention in ("maxout_relu", "softmax_dot"):
        assert (rank_by_depth(attention, num_layers=4, **SIZE) == 1).all()


def test_ranks_repeat_and_leave_the_global_generator_alone():
    torch.manual_seed(1)
    first = rank_by_depth(num_layers=3, **SIZE)
    number = torch.rand(())
    torch.manual_seed(1)
    assert torch.equal(rank_by_depth(num_layers=3, **SIZE), first)
    assert torch.equal(torch.rand(()), number)
    assert not torch.equal(rank_by_depth(num_layers=3, seed=1, **SIZE), first)


def test_an_interrupted_measurement_continues(tmp_path):
    file, size = tmp_path / "deep" / "rank.csv", {"num_tokens": 8, "dim": 8, "num_layers": 3}
    assert measure(file, 1, **size) == 1
    first = file.read_text()
    assert measure(file, 3, **size) == 2
    assert measure(file, 3, **size) == 0
    assert file.read_text().startswith(first)
    with file.open(newline="") as stream:
        assert [row["draw"] for row in csv.DictReader(stream)] == ["0"] * 4 + ["1"] * 4 + ["2"] * 4
    ranks = by_layer(file)
    assert ranks["leaky"].shape == (3, 4)
    assert torch.equal(ranks["leaky"][2], rank_by_depth(num_tokens=8, dim=8, num_layers=3, seed=2))
    assert (ranks["without_leak"] == 1).all()
    with pytest.raises(BadInput, match="3 layers of draw 0, but num_layers is 7"):
        measure(file, 4, **size | {"num_layers": 7})
    for name in ("num_tokens", "dim"):
        with pytest.raises(BadInput, match=f"{name} 8, but {name} is 9"):
            measure(file, 4, **size | {name: 9})


def test_the_command_writes_medians_and_a_figure(monkeypatch, capsys, tmp_path):
    size = ["--num-tokens", "8", "--dim", "8", "--num-layers", "2", "--draws", "3"]
    monkeypatch.setattr("sys.argv", ["rank", *size, "--output", str(tmp_path / "r.csv")])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "leaky", "without", "leak"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    assert lines[1].split()[1:] == ["1", "1"]
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
