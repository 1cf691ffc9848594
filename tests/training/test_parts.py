"""Freezing and learning rates of parts: which parameters a pattern matches, and how training treats them."""

import itertools
from functools import partial
from typing import get_args

import pytest
import pytorch_lightning as pl
import torch
from quick import one_of_each
from torch import nn

from graphbench import registry
from graphbench.contracts import Architecture, Representation
from graphbench.contracts.spec import TaskName
from graphbench.errors import BadInput
from graphbench.nn import NodeEncoder, make_norm
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.testing.tiny import FEATURE_KINDS
from graphbench.training.module import BenchmarkModule
from graphbench.training.parts import (
    matching,
    parse_patterns,
    parse_rates,
    rest_frozen_norms,
    with_learning_rates,
    without_gradient,
)  # fmt: skip

SPEC = tiny_spec("graph-regression", "categorical")


class Layered(Architecture):
    """Twelve layers, each with a batch norm, so that `layers.1` and `layers.11` are distinct."""

    def __init__(self, spec, hidden_dim=8, num_layers=12):
        super().__init__(spec, hidden_dim)
        self.encoder = NodeEncoder(spec, hidden_dim)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden_dim, hidden_dim), make_norm("batch", hidden_dim)) for _ in range(num_layers)
        )

    def forward(self, batch):
        x = self.encoder(batch)
        for layer in self.layers:
            x = x + layer(x).relu()
        return Representation(x)


def module(**options):
    torch.manual_seed(0)
    return BenchmarkModule(SPEC, Layered, **options)


def trained(model, steps=3, save=None, go_on=None, **options):
    """Train on a few batches as a fit does, three steps an epoch, with a validation between them.

    Write a checkpoint to `save`, and resume from the one at `go_on`.
    """
    table = tiny_table(SPEC, num_graphs=12)
    batches = [table.batch(range(start, start + 4)) for start in (0, 4, 8)]
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    trainer = pl.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=1, val_check_interval=1, **options,
    )  # fmt: skip
    trainer.fit(model, loader, loader, ckpt_path=go_on)
    if save is not None:
        trainer.save_checkpoint(save)
    return model


def test_patterns_mean_parts_or_parameters_and_a_dot_ends_a_number():
    names = [f"architecture.layers.{i}.0.weight" for i in (1, 2, 11)] + ["task.head.mlp.layers.0.bias"]
    assert matching("architecture.layers.1", names) == names[:1]
    assert matching("architecture.layers.1*", names) == [names[0], names[2]]
    assert matching("architecture.layers.[12].*", names) == names[:2]
    assert matching("*.bias", names) == matching("head", names) == matching("task.head", names) == names[3:]
    assert matching("layers", names) == []


def test_texts_and_collections_say_the_same():
    assert parse_patterns(" a.0 ,b*,") == parse_patterns(["a.0", "b*"]) == ("a.0", "b*")
    assert parse_rates("head=1e-3,a.*=0.1") == parse_rates({"head": "1e-3", "a.*": 0.1}) == {"head": 1e-3, "a.*": 0.1}
    assert parse_patterns(None) == ()
    assert parse_rates(None) == {}


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ("head", r"expected one PATTERN=RATE per pattern, .*, not 'head'"),
        ("head=0.1,body=1,head=0.2", r"expected one PATTERN=RATE per pattern"),
        ("head=fast", r"rate of 'head' must be a number, but got 'fast'"),
        ("head=0", r"rate of 'head' must be above 0"),
        ({"head": float("nan")}, r"rate of 'head' must be above 0"),
    ],
)
def test_a_rate_that_is_none_is_named(rates, told):
    with pytest.raises(BadInput, match=told):
        module(learning_rates=rates)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("architecture.layer.0*", r"'architecture\.layer\.0\*'\. Did you mean architecture\.layers\.0"),
        ("xyz", r"no parameter's name matches 'xyz'\. Names start with architecture, task\."),
        ("architecture.layers.12*", "no parameter's name matches"),
    ],
)
def test_a_pattern_that_means_nothing_is_one_line_with_the_nearest_names(pattern, told):
    with pytest.raises(BadInput, match=told) as error:
        module(freeze=pattern)
    assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="learning_rates: no parameter"):
        module(learning_rates={pattern: 0.1}).configure_optimizers()


def test_something_must_be_left_to_train():
    with pytest.raises(BadInput, match="no parameter is left to train"):
        module(freeze="*")


def test_training_leaves_frozen_weights_and_statistics_and_moves_all_others():
    model = module(
        freeze="architecture.encoder,architecture.layers.0,architecture.layers.1",
        optimizer=partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5),
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = trained(model).state_dict()
    frozen = ("architecture.encoder", "architecture.layers.0.", "architecture.layers.1.")
    for name, value in state.items():
        if name.startswith(frozen):
            assert torch.equal(value, before[name]), name
        elif "scores" not in name and not name.endswith(("offset", "scale", "deviation", "num_batches_tracked")):
            assert not torch.equal(value, before[name]), name
    assert all(p.grad is None for n, p in model.named_parameters() if n.startswith(frozen))
    modes = [layer[1].training for layer in model.architecture.layers]
    assert modes == [False, False] + [True] * 10  # read after training: validation has not changed them either


class SeesEpochs(pl.Callback):
    """Copies the weights at the end of every epoch."""

    def __init__(self):
        self.states = []

    def on_train_epoch_end(self, trainer, model):
        self.states.append({name: value.clone() for name, value in model.state_dict().items()})


@pytest.mark.parametrize("optimizer", [partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5), torch.optim.Adam])
def test_parts_frozen_for_two_epochs_learn_in_the_third(optimizer):
    model, seen = module(freeze="architecture", freeze_epochs=2, optimizer=optimizer), SeesEpochs()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    trained(model, steps=9, callbacks=[seen], gradient_clip_val=1.0)
    assert len(seen.states) == 3
    for name in (name for name in start if name.startswith("architecture.")):  # weights and running statistics
        assert torch.equal(seen.states[1][name], start[name]), name
        moved = not torch.equal(seen.states[2][name], start[name])
        assert moved or name.endswith("num_batches_tracked"), name  # our norms do not count it
    for before, after in zip([start, *seen.states], seen.states, strict=False):
        assert any(not torch.equal(before[name], after[name]) for name in start if name.startswith("task.head"))


def test_the_epochs_of_the_head_alone_are_those_of_a_model_frozen_for_good():
    states = []
    for epochs in (None, 2):
        model = module(freeze="architecture", freeze_epochs=epochs)
        states.append(trained(model, steps=6).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize("epochs", [1, 2])  # within the frozen epochs, and where they end
def test_a_run_that_goes_on_thaws_where_it_would_have(tmp_path, epochs):
    options = {"freeze": "architecture", "freeze_epochs": 2}
    through = trained(module(**options), steps=-1, max_epochs=3).state_dict()
    trained(module(**options), steps=-1, max_epochs=epochs, save=tmp_path / "a.ckpt")
    after = trained(module(**options), steps=-1, max_epochs=3, go_on=tmp_path / "a.ckpt").state_dict()
    assert all(torch.equal(value, after[name]) for name, value in through.items() if "scores" not in name)


def test_epochs_need_a_part_that_is_frozen_and_a_positive_number(caplog):
    with pytest.raises(BadInput, match="freeze_epochs=2"):
        module(freeze_epochs=2)
    with pytest.raises(BadInput, match="freeze_epochs"):
        module(freeze="architecture", freeze_epochs=0)
    trained(module(freeze="architecture", freeze_epochs=4), steps=-1, max_epochs=1)
    assert "freeze_epochs=4" in caplog.text


def test_a_norm_rests_only_where_all_of_its_part_is_frozen():
    model = module(freeze="architecture.layers.0.1.weight,architecture.layers.1.1").train()
    assert model.architecture.layers[0][1].training  # its bias learns
    assert not model.architecture.layers[1][1].training
    assert model.architecture.layers[1].training
    assert model.architecture.layers[2][1].training


def test_a_norm_without_parameters_belongs_to_the_part_around_it():
    part = nn.Sequential(
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)),
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False), nn.Dropout()),
    ).train()
    rest_frozen_norms(part, {"0.0.weight", "0.0.bias"})
    assert [part[0][1].training, part[1][1].training, part[1][2].training] == [False, True, True]


def test_every_parameter_has_one_group_and_the_longest_pattern_counts():
    model = module(
        learning_rates={"architecture.*": 1e-4, "architecture.layers.11": 1e-5, "head": 1e-2},
        lr_scales={"architecture.encoder": 10.0},
        optimizer=partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.25),
        freeze="architecture.layers.3",
    )
    groups = model.configure_optimizers()["optimizer"].param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(rates)
    for name, parameter in model.named_parameters():
        if name.startswith("architecture.layers.3."):
            assert id(parameter) not in rates
        elif name.startswith("architecture.layers.11."):
            assert rates[id(parameter)] == 1e-5
        else:
            assert rates[id(parameter)] == (1e-2 if name.startswith("task.head") else 1e-4)
    assert {group["weight_decay"] for group in groups} == {0.25}
    assert len({group["name"] for group in groups}) == len(groups)


@pytest.mark.parametrize("option", ["learning_rates", "lr_scales"])
def test_rates_of_frozen_parts_are_told_and_change_nothing(option, caplog):
    """A configuration may set rates for a part that an option of the command line freezes."""
    plain = module(freeze="architecture").configure_optimizers()["optimizer"]
    rated = module(freeze="architecture", **{option: {"architecture": 0.1}}).configure_optimizers()["optimizer"]
    assert f"{option}: architecture is frozen" in caplog.text
    shapes = [[(group["lr"], [p.shape for p in group["params"]]) for group in o.param_groups] for o in (plain, rated)]
    assert shapes[0] == shapes[1]


def test_groups_keep_their_other_options():
    layer = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    groups = [{"params": list(layer.parameters()), "weight_decay": 0.0, "lr": 1.0, "name": "own"}]
    split = with_learning_rates(groups, layer, {"1": 0.5})
    assert [(group["name"], group["lr"], group["weight_decay"], len(group["params"])) for group in split] == [
        ("own", 1.0, 0.0, 2),
        ("own/1", 0.5, 0.0, 2),
    ]


def test_frozen_parts_must_be_in_the_checkpoint(tmp_path):
    state = module().state_dict()
    torch.save({"state_dict": state}, tmp_path / "whole.ckpt")
    del state["architecture.layers.0.0.weight"]
    state["architecture.layers.1.0.bias"] = torch.zeros(3)
    torch.save({"state_dict": state}, tmp_path / "part.ckpt")
    module(init_from=str(tmp_path / "whole.ckpt"), freeze="architecture.layers.0").setup("fit")
    module(init_from=str(tmp_path / "part.ckpt"), freeze="architecture.layers.2").setup("fit")
    for part, told in (("0", "does not have it"), ("1", "has it in another shape")):
        with pytest.raises(BadInput, match=rf"architecture\.layers\.{part}\.0\.\w+ would stay random.*{told}"):
            module(init_from=str(tmp_path / "part.ckpt"), freeze=f"architecture.layers.{part}").setup("fit")


def test_parts_without_a_gradient_are_named_once(caplog):
    class Idle(Layered):
        def __init__(self, spec):
            super().__init__(spec, num_layers=1)
            self.idle = nn.Linear(8, 8)

        def forward(self, batch):
            return Representation(super().forward(batch).node.detach() + 0 * self.encoder(batch))

    trained(BenchmarkModule(SPEC, Idle))
    (said,) = (message for message in caplog.messages if "gradient" in message)
    assert {part for part in ("encoder", "layers", "idle") if part in said} == {"layers", "idle"}
    caplog.clear()
    trained(BenchmarkModule(SPEC, Idle, freeze="architecture.layers,architecture.idle"))
    trained(module())
    assert not [message for message in caplog.messages if "gradient" in message]


@pytest.mark.parametrize("name", one_of_each(sorted(registry.architectures())))
def test_no_part_of_a_registered_architecture_is_without_a_gradient(name):
    """Use the defaults of each on every task and kind of features that it accepts."""
    taken = 0
    for task, kind in itertools.product(get_args(TaskName), FEATURE_KINDS):
        spec = tiny_spec(task, kind)
        try:
            model = BenchmarkModule(spec, registry.load("architectures", name)).train()
        except BadInput:
            continue
        taken += 1
        if not any(parameter.requires_grad for parameter in model.parameters()):
            continue
        table = encode(tiny_table(spec, sizes=[5, 6, 7]), model.required_encodings())
        batch = model.architecture.precomputed(table.batch(range(3)), torch.Generator())
        representation = model.represent(batch)
        loss = model.task.loss(model.task(representation, batch), batch)
        (loss if representation.penalty is None else loss + representation.penalty).backward()
        assert not without_gradient(model.architecture), (task, kind)
    assert taken


def test_a_constructor_without_its_base_is_refused():
    class Alone(Architecture):
        def __init__(self, spec):
            self.layers = 2

    with pytest.raises(BadInput, match="Alone"):
        BenchmarkModule(SPEC, Alone)
