"""SFi-Former+: a sparse model that starts from the weights of a dense one."""

from __future__ import annotations

import pytest
import torch

from graphbench import BenchmarkModule
from graphbench.testing import tiny_batch, tiny_spec
from graphbench_sfi_former import DFiFormer, SFiFormer

SMALL = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "dropout": 0.0}


@pytest.fixture
def dense(tmp_path):
    """A dense model whose weights are in a checkpoint, and the path."""
    torch.manual_seed(0)
    module = BenchmarkModule(tiny_spec(), lambda spec: DFiFormer(spec, **SMALL))
    path = tmp_path / "dense.ckpt"
    torch.save({"state_dict": module.state_dict()}, path)
    return module.eval(), str(path)


def warm(path, **options):
    torch.manual_seed(1)
    module = BenchmarkModule(tiny_spec(), lambda spec: SFiFormer(spec, **SMALL, **options), init_from=path)
    module.setup("fit")
    return module.eval()


def test_all_but_the_friction_is_loaded_and_the_log_says_so(dense, caplog):
    source, path = dense
    with caplog.at_level("INFO", logger="graphbench"):
        target = warm(path)
    (missing,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    names = [f"architecture.layers.{layer}.attention.friction_proj.linear.{part}" for layer in (0, 1)
             for part in ("weight", "bias")]  # fmt: skip
    folded = [f"architecture.layers.{layer}.attention.friction_proj.* (2)" for layer in (0, 1)]
    assert str(path) in missing
    assert missing.endswith(f": {', '.join(folded)}")
    assert f"{len(source.state_dict())} of " in caplog.text
    for name, parameter in target.named_parameters():
        if name not in names:
            assert torch.equal(parameter, source.get_parameter(name)), name


def test_without_friction_a_warm_model_predicts_as_the_dense_one(dense):
    source, path = dense
    batch = tiny_batch(source.architecture)
    target = warm(path, penalty=0.0, alpha=None)
    torch.testing.assert_close(target(batch), source(batch), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(warm(path, penalty=5.0)(batch), source(batch), rtol=1e-4, atol=1e-5)
