import torch

from graphbench_sft.rank import main, rank_by_depth

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


def test_the_command_prints_one_line_a_layer(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["rank", "--num-tokens", "8", "--dim", "8", "--num-layers", "2"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "leaky", "without", "leak"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    assert lines[1].split()[1:] == ["1", "1"]
