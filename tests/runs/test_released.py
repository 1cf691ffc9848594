"""Checkpoints of other programs: their tensors are read, and no code in them is run."""

import argparse
import os
import zipfile
from collections import OrderedDict
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from graphbench.errors import BadInput, CorruptData
from graphbench.runs.released import read_released

STATE = OrderedDict(weight=torch.arange(6.0).view(2, 3), bias=torch.ones(2, dtype=torch.float16))


def write(path, **more):
    torch.save({"model": STATE, **more}, path)
    return path


def test_tensors_are_read_beside_options_of_a_training_program(tmp_path):
    options = argparse.Namespace(lr=0.1, inner=argparse.Namespace(names=["a"]))
    content = read_released(write(tmp_path / "a.pt", args=options, epoch=3, rate=Fraction(1, 3)))
    assert content["epoch"] == 3
    assert content["model"].keys() == STATE.keys()
    assert all(torch.equal(content["model"][name], value) for name, value in STATE.items())
    assert not hasattr(content["args"], "lr")
    assert not isinstance(content["rate"], Fraction)
    torch.save({"model": STATE}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)  # as torch 1.5 did
    assert torch.equal(read_released(tmp_path / "old.pt")["model"]["weight"], STATE["weight"])


def touch(path):
    Path(path).touch()


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_a_call_in_a_file_is_not_made(tmp_path):
    """torch refuses a whole file that calls functions of `os`."""
    path = write(tmp_path / "call.pt", more=Call(touch, str(tmp_path / "made")))
    assert type(read_released(path)["more"]).__name__ == "Unread"
    (tmp_path / "there").touch()
    with pytest.raises(CorruptData, match=r"removes\.pt"):
        read_released(write(tmp_path / "removes.pt", more=Call(os.unlink, str(tmp_path / "there"))))
    assert (tmp_path / "there").is_file()
    assert not (tmp_path / "made").exists()


def test_the_last_epoch_of_an_archive_counts(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for epoch in (9, 149, 50):
            archive.write(write(tmp_path / "one.ckpt", epoch=epoch), f"run/0/ckpt/{epoch}.ckpt")
        archive.write(write(tmp_path / "one.ckpt", epoch=50), "run/best.ckpt")
        archive.writestr("run/config.yaml", "a: 1")
    assert read_released(tmp_path / "all.zip", "*/ckpt/*.ckpt")["epoch"] == 149
    assert read_released(tmp_path / "all.zip", "run/best*")["epoch"] == 50
    assert read_released(tmp_path / "one.ckpt", "*/ckpt/*.ckpt")["epoch"] == 50  # as if unpacked by hand


def test_what_is_no_checkpoint_is_an_error(tmp_path):
    with pytest.raises(BadInput, match="no file"):
        read_released(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("<html>Not found</html>")
    with pytest.raises(CorruptData, match=r"text\.pt cannot be read"):
        read_released(tmp_path / "text.pt")
    torch.save([torch.ones(1)], tmp_path / "list.pt")
    with pytest.raises(CorruptData, match="is not a mapping, but list"):
        read_released(tmp_path / "list.pt")
    whole = write(tmp_path / "cut.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole.replace(STATE["weight"].numpy().tobytes(), bytes(24)))
    with pytest.raises(CorruptData, match=r"cut\.pt"):
        read_released(tmp_path / "cut.pt")
