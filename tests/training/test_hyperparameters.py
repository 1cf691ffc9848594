"""A checkpoint stores in plain values how its module was made, and loading rebuilds it from them."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from graphbench.contracts import Architecture, Representation
from graphbench.errors import BadInput
from graphbench.nn import NodeEncoder
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.hyperparameters import plain_arguments
from graphbench.training.module import BenchmarkModule
from graphbench.training.optim import Schedule


class Small(Architecture):
    def __init__(self, spec, hidden_dim=8):
        super().__init__(spec, hidden_dim)
        self.encoder = NodeEncoder(spec, hidden_dim)
        self.body = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, batch):
        return Representation(self.body(self.encoder(batch)))


@pytest.fixture
def spec():
    return tiny_spec("graph-regression", "categorical")


def saved(module, path):
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                         enable_checkpointing=False, max_epochs=0, default_root_dir=path.parent)  # fmt: skip
    trainer.strategy.connect(module)
    trainer.save_checkpoint(path, weights_only=True)
    return path


def test_a_checkpoint_alone_makes_the_module_again(spec, tmp_path):
    rate = partial(torch.optim.SGD, lr=0.25)
    module = BenchmarkModule(
        spec, partial(Small, hidden_dim=6), optimizer=rate, schedule=Schedule("cosine", warmup=3),
        standardize_targets=True, metrics=["R2"], loss="huber", select_by="R2", learning_rates={"head": 0.125},
    )  # fmt: skip
    module.task.standardize(torch.tensor([[1.0, 2.0], [5.0, 4.0]]))
    loaded = BenchmarkModule.load_from_checkpoint(saved(module, tmp_path / "m.ckpt"))
    batch = tiny_table(spec).batch([0, 1, 2])
    assert torch.equal(module.predict(batch), loaded.predict(batch))
    assert loaded.spec == module.spec
    assert (loaded.spec.loss, loaded.spec.metric, loaded.spec.higher_is_better) == ("Huber", "R2", True)
    assert (loaded.schedule, loaded.lr, loaded.learning_rates) == (module.schedule, 0.25, module.learning_rates)
    assert type(loaded._probe()) is torch.optim.SGD


def test_hyper_parameters_are_plain_and_trackers_see_the_name_of_the_benchmark(spec, tmp_path):
    module = BenchmarkModule(spec, partial(Small, hidden_dim=4))
    found = load_checkpoint(saved(module, tmp_path / "m.ckpt"))["hyper_parameters"]
    assert found["architecture"] == {"class_path": f"{__name__}.Small", "init_args": {"hidden_dim": 4}}
    assert found["spec"] == json.loads(json.dumps(dataclasses.asdict(spec)))
    assert found["optimizer"] == "graphbench.training.module.adam_w"
    assert module.hparams_initial["spec"] == spec.name
    assert "_instantiator" not in module.hparams_initial


def test_numbers_of_numpy_are_stored_as_plain_ones(spec, tmp_path):
    module = BenchmarkModule(spec, partial(Small, hidden_dim=np.int64(4)), lr_scales={"task": np.float32(0.5)})
    loaded = BenchmarkModule.load_from_checkpoint(saved(module, tmp_path / "m.ckpt"))
    assert loaded.architecture.body.in_features == 4
    assert loaded.lr_scales == {"task": 0.5}


def test_options_take_the_place_of_those_in_the_checkpoint(spec, tmp_path):
    path = saved(BenchmarkModule(spec, lambda spec: Small(spec, 4)), tmp_path / "m.ckpt")
    with pytest.raises(BadInput, match=r"does not say with which architecture .* architecture=\.\.\."):
        BenchmarkModule.load_from_checkpoint(path)
    loaded = BenchmarkModule.load_from_checkpoint(path, architecture=partial(Small, hidden_dim=4), loss="MSE")
    assert loaded.spec.loss == "MSE"


def test_a_class_that_nobody_registered_is_imported_when_trusted_alone(spec, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text(
        "from graphbench.nn import NodeEncoder\nfrom graphbench.contracts import Architecture, Representation\n"
        "class Strange(Architecture):\n    def __init__(self, spec):\n        super().__init__(spec, 4)\n"
        "        self.encoder = NodeEncoder(spec, 4)\n"
        "    def forward(self, batch):\n        return Representation(self.encoder(batch))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = saved(BenchmarkModule(spec, partial(Small, hidden_dim=4)), tmp_path / "m.ckpt")
    content = torch.load(path, weights_only=True)
    content["hyper_parameters"]["architecture"] = {"class_path": "stranger.Strange"}
    content["state_dict"] = {k: v for k, v in content["state_dict"].items() if "body" not in k}
    torch.save(content, path)
    with pytest.raises(BadInput, match=r"stranger\.Strange.*trust=True"):
        BenchmarkModule.load_from_checkpoint(path)
    assert type(BenchmarkModule.load_from_checkpoint(path, trust=True).architecture).__name__ == "Strange"


@pytest.mark.parametrize("place", ["hyper_parameters", "datamodule_hyper_parameters", "hparams", "module_arguments"])
def test_a_function_that_a_checkpoint_names_is_not_called(spec, tmp_path, monkeypatch, place):
    canary = tmp_path / "canary"
    code = f"import pathlib\npathlib.Path({str(canary)!r}).touch()\ndef make(cls, options): return 1\n"
    (tmp_path / "instantiates.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    path = saved(BenchmarkModule(spec, partial(Small, hidden_dim=4)), tmp_path / "m.ckpt")
    content = torch.load(path, weights_only=True)
    content.setdefault(place, {})["_instantiator"] = "instantiates.make"
    torch.save(content, path)
    for trust in (False, True):
        with pytest.raises(BadInput, match=r"instantiates\.make.*_instantiator"):
            BenchmarkModule.load_from_checkpoint(path, trust=trust)
    with pytest.raises(BadInput, match=r"instantiates\.make.*_instantiator"):
        load_checkpoint(path)
    assert not canary.exists()


def test_what_has_no_plain_form_is_left_out():
    made = plain_arguments({"a": nn.Linear(1, 1), "b": lambda: 0, "c": [1, {"d": (2.0, None)}], "e": partial(print, 1)})
    assert made == {"c": [1, {"d": [2.0, None]}]}
