"""Reading checkpoints: only what fits is taken, and nothing in a file is run."""

import pickle

import pytest
import torch
from torch import nn

from graphbench.checkpoints import folded, load_checkpoint, load_matching
from graphbench.errors import BadInput, CorruptData


def network(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1))


def test_matching_weights_are_copied_and_the_rest_is_named(tmp_path, caplog):
    source, target = network(), network()
    kept = target[2].bias.detach().clone()
    state = source.state_dict()
    state["2.weight"] = torch.zeros(5, 5)
    state["9.extra"] = torch.zeros(1)
    del state["2.bias"]
    torch.save({"state_dict": state}, tmp_path / "a.ckpt")
    with caplog.at_level("WARNING", logger="graphbench"):
        outcome = load_matching(target, tmp_path / "a.ckpt")
    assert outcome == {
        "loaded": ["0.weight", "0.bias"],
        "missing": ["2.bias"],
        "unused": ["9.extra"],
        "reshaped": ["2.weight"],
    }
    assert torch.equal(target[0].weight, source[0].weight)
    assert torch.equal(target[2].bias, kept)


def test_names_are_folded_where_a_whole_part_is_meant():
    every = ["a.0.w", "a.0.b", "a.1.w", "a.1.b", "b.w", "c", "d.x.w", "d.y"]
    assert folded([*every[:4], "b.w", "d.y"], every) == ["a.* (4)", "b.w", "d.y"]
    assert folded(["a.0.w", "a.0.b", "a.1.b", "c"], every) == ["a.0.* (2)", "a.1.b", "c"]
    assert folded([], every) == []


class Optioned(nn.Linear):
    """Keeps an option beside its weights."""

    def __init__(self, option):
        super().__init__(2, 2)
        self.option = option

    def get_extra_state(self):
        return {"option": self.option}

    def set_extra_state(self, state):
        self.option = state["option"]


def test_options_of_the_trained_model_are_left_behind(tmp_path):
    source, target = Optioned("trained"), Optioned("own")
    torch.save({"state_dict": source.state_dict()}, tmp_path / "o.ckpt")
    outcome = load_matching(target, tmp_path / "o.ckpt")
    assert outcome == {"loaded": ["weight", "bias"], "missing": [], "unused": [], "reshaped": []}
    assert torch.equal(target.weight, source.weight)
    assert target.option == "own"


def test_nothing_that_fits_is_an_error(tmp_path):
    torch.save({"state_dict": {"other": torch.zeros(1)}}, tmp_path / "b.ckpt")
    with pytest.raises(BadInput, match="no weight of"):
        load_matching(network(), tmp_path / "b.ckpt")


class Explosive:
    def __reduce__(self):
        return (print, ("this must never be printed",))


@pytest.mark.parametrize("kind", ["code", "torn", "text"])
def test_bad_files_are_named_and_run_nothing(tmp_path, kind, capsys):
    path = tmp_path / "bad.ckpt"
    if kind == "code":
        torch.save({"state_dict": Explosive()}, path)
    elif kind == "torn":
        torch.save({"state_dict": network().state_dict()}, path)
        path.write_bytes(path.read_bytes()[:300])
    else:
        path.write_bytes(pickle.dumps(Explosive()))
    with pytest.raises(CorruptData, match=r"bad\.ckpt cannot be read"):
        load_checkpoint(path)
    assert "must never" not in capsys.readouterr().out


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"no checkpoint .*none\.ckpt"):
        load_checkpoint(tmp_path / "none.ckpt")
