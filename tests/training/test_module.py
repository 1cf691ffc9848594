"""BenchmarkModule built in Python: the effect of each option on weights, features and optimizer."""

import contextlib
from dataclasses import replace
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EMAWeightAveraging, GradientAccumulationScheduler
from torch import nn
from torch.utils.data import DataLoader
from toys import Tiny

from graphbench.contracts import Features, PositionalEncoder
from graphbench.encodings import RWSE
from graphbench.errors import BadInput
from graphbench.nn import RWSEEncoder
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule
from graphbench.training.optim import Schedule


class Constant(PositionalEncoder):
    def __init__(self):
        super().__init__()
        self.dim = 2
        self.value = nn.Parameter(torch.ones(2))

    def forward(self, batch):
        return self.value.expand(batch.num_nodes, 2)


@pytest.fixture
def spec():
    return tiny_spec("graph-regression", "categorical")


def test_a_positional_encoding_joins_the_dense_features_of_any_architecture(spec):
    module = BenchmarkModule(spec, Tiny, positional_encoding=Constant())
    assert module.architecture.spec.node.dense == spec.node.dense + 2
    batch = tiny_table(spec).batch([0, 1, 2])
    before = set(batch.keys())
    module.represent(batch).node.sum().backward()
    assert module.positional_encoding.value.grad.abs().sum() > 0
    assert set(batch.keys()) == before


def test_a_positional_encoding_leaves_the_tensors_of_the_batch_where_they_are(spec):
    module, seen = BenchmarkModule(spec, Tiny, positional_encoding=Constant()), []
    module.architecture.register_forward_pre_hook(lambda architecture, arguments: seen.append(arguments[0]))
    batch = tiny_table(spec).batch([0, 1, 2])
    module.represent(batch)
    assert seen[0] is not batch
    assert all(seen[0][name] is value for name, value in batch.to_dict().items() if isinstance(value, torch.Tensor))


def test_required_encodings_come_from_both_parts(spec):
    module = BenchmarkModule(spec, Tiny, positional_encoding=RWSEEncoder(num_steps=4, dim=2))
    assert module.required_encodings() == (RWSE(4),)
    batch = encode(tiny_table(spec), module.required_encodings()).batch([0, 1])
    assert module(batch).shape == (2, spec.num_targets)


def test_parts_can_have_their_own_learning_rate(spec):
    module = BenchmarkModule(
        spec,
        Tiny,
        optimizer=partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5),
        lr_scales={"architecture.encoder": 0.1},
    )
    optimizer = module.configure_optimizers()["optimizer"]
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in module.named_parameters():
        assert rates[id(parameter)] == pytest.approx(0.001 if name.startswith("architecture.encoder") else 0.01)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon: from 2.9")
def test_an_optimizer_of_matrices_alone_is_made_or_refused_by_its_option(spec):
    muon = partial(torch.optim.Muon, lr=0.01)
    module = BenchmarkModule(spec, Tiny, optimizer=muon)
    with pytest.raises(BadInput, match=r"--model\.optimizer cannot be made .* 2D parameters"):
        module.configure_optimizers()  # Tiny has biases
    for parameter in module.parameters():
        parameter.requires_grad_(parameter.dim() == 2)
    (group,) = module.configure_optimizers()["optimizer"].param_groups
    assert all(p.dim() == 2 for p in group["params"])
    assert group["lr"] == 0.01


def test_an_optimizer_that_refuses_a_value_is_named_by_its_option(spec):
    module = BenchmarkModule(spec, Tiny, optimizer=partial(torch.optim.AdamW, lr=-1.0))
    with pytest.raises(BadInput, match=r"--model\.optimizer .* -1\.0"):
        module.configure_optimizers()


def test_standardized_training_needs_a_regression():
    with pytest.raises(BadInput, match="standardize_targets is for regression"):
        BenchmarkModule(tiny_spec("graph-multilabel"), Tiny, standardize_targets=True)


def test_weights_start_from_a_checkpoint(spec, tmp_path):
    source, target = BenchmarkModule(spec, Tiny), BenchmarkModule(spec, Tiny, init_from=str(tmp_path / "s.ckpt"))
    torch.save({"state_dict": source.state_dict()}, tmp_path / "s.ckpt")
    assert not torch.equal(source.architecture.body.weight, target.architecture.body.weight)
    target.setup("fit")
    assert torch.equal(source.architecture.body.weight, target.architecture.body.weight)


class Precision(pl.Callback):
    """Records the precision of matrix products on CUDA devices."""

    def __init__(self):
        self.noted = []

    def on_train_batch_start(self, *_):
        self.noted.append(torch.backends.cuda.matmul.fp32_precision)

    on_test_batch_start = on_train_batch_start


@pytest.mark.parametrize(("given", "expected"), [("high", "tf32"), ("highest", "ieee"), (None, "tf32")])
def test_products_have_the_precision_asked_for_while_a_trainer_works(spec, tmp_path, given, expected):
    """Checked under torch's newer and older names. Without the option the program's own setting stays."""
    module, callback = BenchmarkModule(spec, Tiny, matmul_precision=given), Precision()
    loader = DataLoader([tiny_table(spec).batch([0, 1, 2])], batch_size=None)
    torch.set_float32_matmul_precision("medium" if given else "high")
    try:
        trainer = pl.Trainer(
            accelerator="cpu", fast_dev_run=True, logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=[callback], default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, loader, loader)
        trainer.test(module, loader, verbose=False)
        assert callback.noted == [expected, expected]
        assert torch.get_float32_matmul_precision() == ("medium" if given else "high")
    finally:
        torch.set_float32_matmul_precision("highest")


BY_EPOCHS = Schedule("linear", "epoch")


class Watch(pl.Callback):
    """Records the rate at the start of each epoch and the steps after which validation ran."""

    def __init__(self):
        self.rates, self.validated = [], []

    def on_train_epoch_start(self, trainer, pl_module):
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_validation_end(self, trainer, pl_module):
        self.validated.append(trainer.global_step)


def watched(spec, limits, schedule=BY_EPOCHS, callbacks=()):
    """Train for epochs of three batches, by default with a rate that falls linearly from 1 to 0."""
    module = BenchmarkModule(spec, Tiny, optimizer=partial(torch.optim.SGD, lr=1.0), schedule=schedule)
    table = tiny_table(spec, num_graphs=12)
    loader = DataLoader([table.batch(range(start, start + 4)) for start in (0, 4, 8)], batch_size=None)
    watch = Watch()
    trainer = pl.Trainer(
        **limits, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, callbacks=[watch, *callbacks],
    )  # fmt: skip
    trainer.fit(module, loader, loader)
    return watch


@pytest.mark.parametrize(
    ("limits", "epochs"),
    [
        ({"max_epochs": 50, "max_steps": 7}, 3),  # the last epoch is cut short
        ({"max_epochs": -1, "max_steps": 9}, 3),
        ({"max_epochs": 2, "max_steps": 100}, 2),
        ({"max_epochs": 50, "max_steps": 5, "accumulate_grad_batches": 2}, 3),
    ],
)
def test_a_schedule_by_epochs_ends_with_the_run_whichever_limit_ends_it(spec, limits, epochs):
    assert watched(spec, limits).rates == pytest.approx([1 - epoch / epochs for epoch in range(epochs)])


@pytest.mark.parametrize(
    ("limits", "schedule", "rates"),
    [
        ({"max_epochs": 4}, Schedule("linear"), [8 / 8, 7 / 8, 6 / 8, 3 / 8]),
        ({"max_epochs": 50, "max_steps": 5}, Schedule("linear"), [5 / 5, 4 / 5, 3 / 5]),
        ({"max_epochs": 50, "max_steps": 5}, BY_EPOCHS, [3 / 3, 2 / 3, 1 / 3]),
        ({"max_epochs": 10**12, "max_steps": 5}, BY_EPOCHS, [3 / 3, 2 / 3, 1 / 3]),
    ],
)
def test_a_schedule_ends_with_a_run_whose_accumulation_changes(spec, limits, schedule, rates):
    accumulation = GradientAccumulationScheduler({0: 3, 2: 1})  # epochs of 1, 1, 3, 3, ... steps
    assert watched(spec, limits, schedule, [accumulation]).rates == pytest.approx(rates)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_patience_of_a_plateau_counts_validations(spec, every):
    """The score never improves after the first validation; with patience 1 the third one cuts the rate."""
    still = {"gradient_clip_val": 1e-30}
    limits = {"max_epochs": 4 * every, "check_val_every_n_epoch": every} | still
    schedule = Schedule("plateau", patience=1, factor=0.1)
    assert watched(spec, limits, schedule).rates == pytest.approx([1.0] * 3 * every + [0.1] * every)


@pytest.mark.parametrize(
    ("when", "rates"),
    [
        ({"val_check_interval": 1}, [1.0, 1e-1, 1e-2]),  # three validations in an epoch
        ({"val_check_interval": 1 / 3}, [1.0, 1e-1, 1e-2]),
        ({"val_check_interval": 2}, [1.0, 1.0, 1.0]),  # one, after the second batch
        ({"val_check_interval": 2, "check_val_every_n_epoch": None}, [1.0, 1.0, 1e-1]),  # after batches 2, 4 and 6
    ],
)
def test_patience_counts_validations_within_epochs(spec, when, rates):
    """With patience 1, every second validation after the first one cuts the rate."""
    limits = {"max_epochs": 3, "gradient_clip_val": 1e-30} | when
    assert watched(spec, limits, Schedule("plateau", patience=1, factor=0.1)).rates == pytest.approx(rates)


@pytest.mark.parametrize(("eps", "kind"), [(1e-8, torch.float16), (1e-4, torch.float16), (1e-8, torch.bfloat16)])
def test_an_eps_that_is_nothing_beside_the_weights_is_refused(spec, eps, kind):
    module = BenchmarkModule(spec, Tiny, optimizer=partial(torch.optim.AdamW, eps=eps)).to(kind)
    vanishes = eps < 2.0**-25 and kind is torch.float16  # half of the smallest float16, 2 ** -24
    with pytest.raises(BadInput, match="eps") if vanishes else contextlib.nullcontext():
        module.configure_optimizers()


@pytest.mark.parametrize(("steps", "validated"), [(7, [3, 6, 7]), (6, [3, 6]), (2, [2])])
def test_the_weights_of_the_last_step_are_validated(spec, steps, validated):
    assert watched(spec, {"max_steps": steps}).validated == validated


def test_they_are_validated_where_min_epochs_asks_for_more_than_max_steps(spec, caplog):
    assert watched(spec, {"max_steps": 7, "min_epochs": 5}).validated == [3, 6, 7]
    assert "trainer.min_epochs is 5, but max_steps 7 ends the run in epoch 3" in caplog.text
    caplog.clear()
    assert watched(spec, {"max_steps": 7, "min_epochs": 3}).validated == [3, 6, 7]
    assert "min_epochs" not in caplog.text


@pytest.mark.parametrize("decay", [0.9, 0.99, 0.7])
def test_the_average_of_weights_that_rest_is_the_weights(spec, decay):
    # 2, 7 and 119 are offsets into the embedding tables: averaged as floats, they would be rounded down
    spec = replace(spec, node=Features(vocabularies=(2, 5, 112, 4)))
    table = tiny_table(spec, num_graphs=12)
    loader = DataLoader([table.batch(range(start, start + 4)) for start in (0, 4, 8)], batch_size=None)
    scores = []
    for callbacks in ([], [EMAWeightAveraging(decay=decay)]):
        torch.manual_seed(0)
        module = BenchmarkModule(spec, Tiny, optimizer=partial(torch.optim.SGD, lr=0.0))
        trainer = pl.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, num_sanity_val_steps=0, callbacks=callbacks,
        )  # fmt: skip
        trainer.fit(module, loader, loader)
        scores.append(float(trainer.callback_metrics["val/loss"]))
    assert scores[1] == pytest.approx(scores[0], rel=1e-6)
