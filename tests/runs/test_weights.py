"""Weights as safetensors: they round-trip bit for bit, and damaged files are refused."""

import json
import sys

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput, CorruptData, MissingExtra
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.hub import HubModel, fetch
from graphbench.runs.weights import read_weights, same_weights, save_weights
from graphbench.training.starting import load_matching


class Noted(nn.Linear):
    """A layer with an extra state."""

    note: object = None

    def get_extra_state(self):
        return self.note

    def set_extra_state(self, state):
        self.note = state


def state_of(note):
    layer = nn.Sequential(Noted(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2, dtype=torch.bfloat16))
    layer[0].note = note
    layer[1].running_mean = torch.tensor([float("nan"), -0.0])
    return layer.state_dict()


def test_tensors_and_extra_states_come_back_bit_for_bit(tmp_path):
    for note in ({"steps": 4, "start": "zero", "nested": [1, 2.5, None]}, torch.arange(5, dtype=torch.uint8)):
        state = state_of(note)
        save_weights(state, tmp_path / "w.safetensors", {"graphbench": "1.2"})
        assert same_weights(read_weights(tmp_path / "w.safetensors"), state)
    length = int.from_bytes((tmp_path / "w.safetensors").read_bytes()[:8], "little")
    header = json.loads((tmp_path / "w.safetensors").read_bytes()[8 : 8 + length])
    assert header["__metadata__"] == {"format": "pt", "graphbench": "1.2"}


def test_weights_differ_by_type_name_and_bit():
    base = {"a": torch.zeros(2)}
    for other in ({"a": torch.zeros(2).double()}, {"b": torch.zeros(2)}, {"a": -torch.zeros(2)}, {"a": torch.zeros(3)}):
        assert not same_weights(base, other)


def test_shared_and_strided_tensors_are_written(tmp_path):
    table = torch.arange(6.0).reshape(2, 3)
    save_weights({"a": table, "b": table, "c": table.t()}, tmp_path / "w.safetensors")
    read = read_weights(tmp_path / "w.safetensors")
    assert torch.equal(read["b"], table)
    assert torch.equal(read["c"], table.t())


def test_a_state_that_is_no_plain_value_is_refused(tmp_path):
    for note in (object(), {"a": torch.zeros(1)}, {1: 2}, {"a": float("nan")}):
        with pytest.raises(BadInput, match="_extra_state"):
            save_weights(state_of(note), tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_said(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(state_of(None), path)
    whole = path.read_bytes()
    for content in (b"", whole[:-3], b"\xff" * 64, whole[:8] + b"[" + whole[9:]):
        path.write_bytes(content)
        with pytest.raises(CorruptData, match=r"w\.safetensors cannot be read"):
            read_weights(path)
    with pytest.raises(BadInput, match="There are no weights"):
        read_weights(tmp_path / "other.safetensors")


def test_a_model_starts_from_them_as_from_a_checkpoint(tmp_path):
    source, target = nn.Linear(2, 2), nn.Linear(2, 2)
    save_weights(source.state_dict(), tmp_path / "w.safetensors")
    assert load_checkpoint(tmp_path / "w.safetensors")["state_dict"].keys() == {"weight", "bias"}
    assert load_matching(target, tmp_path / "w.safetensors")["loaded"] == ["weight", "bias"]
    assert torch.equal(source.weight, target.weight)


def test_without_its_library_the_line_that_installs_it_is_said(tmp_path, monkeypatch):
    save_weights(state_of(None), tmp_path / "w.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for needs in (
        lambda: read_weights(tmp_path / "w.safetensors"),
        lambda: save_weights(state_of(None), tmp_path / "v.safetensors"),
        lambda: fetch(HubModel("mine/model")),
    ):
        with pytest.raises(MissingExtra, match=r"pip install 'graphbench-lightning\[hub\]'"):
            needs()
