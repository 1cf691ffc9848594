"""Reading and writing checkpoints: damaged files are refused, and no code in a file is run."""

import copy
import errno
import pickle
import zipfile
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from graphbench.data.files.foreign import foreign, load_tensors
from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.runs import RunFolder, checkpoints
from graphbench.runs.checkpoints import RunCheckpointIO, load_checkpoint


def network(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1))


class Explosive:
    def __reduce__(self):
        return (print, ("this must never be printed",))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("code", "it holds print; only tensors and plain values are read, which cannot run code."),
        ("torn", "its end is missing, or torch.save did not write it."),
        ("text", "its end is missing, or torch.save did not write it."),
    ],
)
def test_bad_files_are_named_and_run_nothing(tmp_path, kind, told, capsys):
    path = tmp_path / "bad.ckpt"
    if kind == "code":
        torch.save({"state_dict": Explosive()}, path)
    elif kind == "torn":
        torch.save({"state_dict": network().state_dict()}, path)
        path.write_bytes(path.read_bytes()[:300])
    else:
        path.write_bytes(pickle.dumps(Explosive()))
    with pytest.raises(CorruptData, match=r"bad\.ckpt cannot be read") as error:
        load_checkpoint(path)
    assert told in str(error.value)
    assert "weights_only" not in str(error.value)
    assert "must never" not in capsys.readouterr().out


def test_a_file_with_something_else_is_no_checkpoint(tmp_path):
    torch.save([torch.ones(2)], tmp_path / "list.pt")
    with pytest.raises(CorruptData, match=r"list\.pt is not a mapping, but list"):
        load_checkpoint(tmp_path / "list.pt")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"no checkpoint .*none\.ckpt"):
        load_checkpoint(tmp_path / "none.ckpt")


def test_every_flipped_bit_is_found_or_harmless(tmp_path):
    path = tmp_path / "whole.ckpt"
    content = {"state_dict": {"a": torch.randn(20, 20), "b": torch.arange(5)}, "epoch": 3, "more": {"x": [1.5, "t"]}}
    torch.save(content, path)
    whole = path.read_bytes()
    outcomes = {"found": 0, "harmless": 0}
    for number in range(0, 8 * len(whole), 211):
        damaged = bytearray(whole)
        damaged[number // 8] ^= 1 << number % 8
        path.write_bytes(damaged)
        try:
            loaded = load_checkpoint(path)
        except CorruptData:
            outcomes["found"] += 1
            continue
        assert all(torch.equal(loaded["state_dict"][name], value) for name, value in content["state_dict"].items())
        assert {key: loaded[key] for key in ("epoch", "more")} == {key: content[key] for key in ("epoch", "more")}
        outcomes["harmless"] += 1
    assert outcomes["found"] > 3 * outcomes["harmless"] > 0


def test_the_last_checkpoint_becomes_the_previous_one(tmp_path):
    run, io = RunFolder(tmp_path), RunCheckpointIO()
    for epoch in range(3):
        io.save_checkpoint({"epoch": epoch}, run.last)
        io.save_checkpoint({"epoch": 10 * epoch}, run.best)
    assert [load_checkpoint(p)["epoch"] for p in (run.last, run.previous, run.best)] == [2, 1, 20]
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["best.ckpt", "last.ckpt", "previous.ckpt"]


def test_a_failed_write_keeps_both_checkpoints(tmp_path, monkeypatch):
    run, io = RunFolder(tmp_path), RunCheckpointIO()
    for epoch in range(2):
        io.save_checkpoint({"epoch": epoch}, run.last)

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GraphbenchError, match="No space left on device"):
        io.save_checkpoint({"epoch": 2}, run.last)
    assert [load_checkpoint(p)["epoch"] for p in (run.last, run.previous)] == [1, 0]
    assert len(list(run.checkpoints.iterdir())) == 2


def test_without_hard_links_the_previous_one_is_kept_as_well(tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    run, io = RunFolder(tmp_path), RunCheckpointIO()
    for epoch in range(2):
        io.save_checkpoint({"epoch": epoch}, run.last)
    assert [load_checkpoint(p)["epoch"] for p in (run.last, run.previous)] == [1, 0]


def test_a_name_means_installed_weights_unless_a_file_or_folder_has_it(tmp_path, monkeypatch):
    installed = tmp_path / "installed.safetensors"
    monkeypatch.setattr(checkpoints, "find_weights", lambda name: installed if name == "atoms" else None)
    monkeypatch.chdir(tmp_path)
    assert checkpoints.weights_file("atoms") == installed
    (tmp_path / "atoms").touch()
    assert checkpoints.weights_file("atoms").resolve() == tmp_path / "atoms"
    assert checkpoints.weights_file("runs/atoms") == Path("runs/atoms")  # a path is not a name


def test_a_continued_run_removes_checkpoints_alone(tmp_path):
    """Lightning's callback deletes paths named in the run's checkpoint, which may come from someone else."""
    home, written = tmp_path / "home", tmp_path / "written"
    (home / "thesis").mkdir(parents=True)
    (home / "thesis" / "a.tex").write_text("years")
    callback = ModelCheckpoint(dirpath=written, monitor="loss", save_top_k=1)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, plugins=[RunCheckpointIO()], callbacks=[callback],
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.strategy.connect(pl.LightningModule())
    worst = {"best_model_score": torch.tensor(9.0), "kth_value": torch.tensor(9.0), "dirpath": str(written)}
    for place in (f"local://{home}", f"{written}/../home"):
        paths = {"best_model_path": place, "kth_best_model_path": place, "best_k_models": {place: torch.tensor(9.0)}}
        callback.load_state_dict(worst | paths)
        callback._update_best_and_save(torch.tensor(1.0), trainer, {"loss": torch.tensor(1.0)})
        assert (home / "thesis" / "a.tex").read_text() == "years"
    old = str(next(written.iterdir()).rename(written / "old.ckpt"))
    callback.load_state_dict(
        worst | {"best_model_path": old, "kth_best_model_path": old, "best_k_models": {old: torch.tensor(9.0)}}
    )
    callback._update_best_and_save(torch.tensor(0.5), trainer, {"loss": torch.tensor(0.5)})
    assert not Path(old).exists(), "its own checkpoints are still removed"


@pytest.mark.parametrize("kind", ["packed", "repeated"])
def test_an_archive_that_holds_more_than_its_size_is_refused_before_it_is_unpacked(tmp_path, kind):
    torch.save({"state_dict": {"a": torch.zeros(1 << 20)}}, tmp_path / "whole.ckpt")
    load_checkpoint(tmp_path / "whole.ckpt")
    bomb = tmp_path / "bomb.ckpt"
    with zipfile.ZipFile(tmp_path / "whole.ckpt") as whole, zipfile.ZipFile(bomb, "w") as file:
        for info in whole.infolist():
            method = zipfile.ZIP_DEFLATED if kind == "packed" else zipfile.ZIP_STORED
            file.writestr(info.filename, whole.read(info), method)
        if kind == "repeated":  # a hundred names for one tensor
            last = max(file.infolist(), key=lambda info: info.file_size)
            for number in range(100):
                again = copy.copy(last)
                again.filename = f"again/{number}"
                file.filelist.append(again)
            file._didModify = True
    with pytest.raises(CorruptData, match=r"bomb\.ckpt cannot be read: its members have [\d,]+ bytes in a file of"):
        load_checkpoint(bomb)
    with pytest.raises(CorruptData, match="its members have"), foreign(bomb):
        load_tensors(bomb)
    with bomb.open("rb") as file, pytest.raises(ValueError, match="its members have"):
        load_tensors(file)
