import re
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torchmetrics import MeanMetric
from toys import Tiny

from graphbench import BenchmarkModule, build, registry
from graphbench.benchmarks import CSL, CYCLES
from graphbench.errors import BadInput, UnknownName
from graphbench.nn import HeadConfig, RWSEEncoder
from graphbench.testing import tiny_spec
from graphbench.training.learning import make_architecture
from graphbench.training.optim import Schedule


def test_build_says_what_to_make_of_a_list_of_graphs():
    with pytest.raises(BadInput, match=r"\blist\b.*Graphs\(graphs\)"):
        build("GCN", [])


@pytest.mark.parametrize(
    ("architecture", "benchmark", "options", "error", "said"),
    [
        (3, "CSL", {}, BadInput, "^architecture must be a registered name, .* but got int"),
        (None, "CSL", {}, BadInput, "^architecture must be a registered name, .* but got NoneType"),
        (lambda spec: 3, "CSL", {}, BadInput, "^architecture must build an Architecture .* it built int"),
        ("GPS", 3, {}, BadInput, "^benchmark must be a benchmark or its name, but got int"),
        ("GPS", CSL, {}, BadInput, "^benchmark must be .* but got the class CSL: call it"),
        ("GSP", "CSL", {}, UnknownName, "Did you mean .*GPS"),
        ("GPS", "CSL", {"model_options": 3}, BadInput, "^model_options must be a mapping of options, .* but got 3"),
        ("GPS", "CSL", {"model_options": {"hiden_dim": 8}}, UnknownName, "GPS in model_options .*mean hidden_dim"),
        ("GPS", "CSL", {"model_options": {"hidden_dim": "8"}}, BadInput, "hidden_dim must be an integer, but got '8'"),
        ("GPS", "CSL", {"model_options": {"dropout": "0"}}, BadInput, "dropout must be a number, but got '0'"),
        (lambda spec: 3, "CSL", {"model_options": {"dim": 8}}, BadInput, "^model_options need the name"),
        ("GPS", "CSL", {"data_options": {"batchsize": 8}}, UnknownName, "CSL in data_options .*mean batch_size"),
        ("GPS", "CSL", {"data_options": [1]}, BadInput, "^data_options must be a mapping"),
        ("GPS", CSL(), {"data_options": {"batch_size": 8}}, BadInput, "^data_options need the name .* CSL"),
        ("GPS", "CSL", {"standardise_targets": True}, UnknownName, "in build .*mean standardize_targets"),
        ("GPS", "CSL", {"compile": "yes"}, BadInput, "^build: compile must be True or False, but got 'yes'"),
    ],
)
def test_what_does_not_fit_is_named(architecture, benchmark, options, error, said):
    with pytest.raises(error, match=said):
        build(architecture, benchmark, **options)


def test_the_class_of_an_architecture_takes_options_as_its_name_does():
    gcn = registry.load("architectures", "GCN")
    by_class, _ = build(gcn, CSL(), model_options={"hidden_dim": 8, "num_layers": 1})
    by_name, _ = build("GCN", CSL(), model_options={"hidden_dim": 8, "num_layers": 1})
    assert by_class.architecture.dim == by_name.architecture.dim == 8
    with pytest.raises(BadInput, match=r"^architecture must be .* but got GCN"):
        build(by_name.architecture, CSL())


def test_build_makes_a_pair_that_trains(tmp_path):
    lengths = "".join(f"{'C' * number},{number}\n" for number in range(1, 61))
    (tmp_path / "mine.csv").write_text(f"smiles,length\n{lengths}")
    module, data = build(
        "GCN",
        "Molecules",
        model_options={"hidden_dim": 8, "num_layers": 1},
        data_options={"root": str(tmp_path), "file": str(tmp_path / "mine.csv"), "target": "length", "batch_size": 16},
        standardize_targets=True,
    )
    trainer = pl.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=1,
    )  # fmt: skip
    trainer.fit(module, data)
    targets = data.tables["train"].columns["y"]
    assert len(targets) == 48
    assert module.task.offset.item() == pytest.approx(targets.mean().item(), rel=1e-4)
    assert module.task.scale.item() == pytest.approx(targets.std(correction=0).item(), rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "Adam"},
        {"schedule": {"name": "cosine"}},
        {"schedule": "cosine"},
        {"head": {"num_layers": 3}},
        {"head": HeadConfig},
        {"positional_encoding": "RWSEEncoder"},
        {"positional_encoding": RWSEEncoder},
        {"metrics": "R2"},
        {"metrics": [MeanMetric]},
        {"metrics": {"name": "R2"}},
    ],
)
def test_words_of_the_command_line_in_place_of_objects_are_refused_by_argument(options):
    ((name, value),) = options.items()
    with pytest.raises(BadInput, match=rf"^{name} must be .*{re.escape(repr(value))}"):
        build("GCN", "NCI", model_options={"hidden_dim": 8, "num_layers": 1}, **options)


def test_a_module_is_made_of_a_specification_and_an_architecture():
    gcn = registry.load("architectures", "GCN")
    with pytest.raises(BadInput, match=r"^spec must be .* such as data\.spec"):
        BenchmarkModule(CSL(), gcn)
    for other in (nn.Linear, nn.Linear(2, 2)):
        for make in (lambda given: BenchmarkModule(CSL.spec, given), lambda given: build(given, "CSL")):
            with pytest.raises(BadInput, match=r"^architecture must be .*Linear"):
                make(other)


def test_options_that_a_checkpoint_is_loaded_with_are_checked(tmp_path):
    module, _ = build("GCN", "CSL", model_options={"hidden_dim": 8, "num_layers": 1})
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(tmp_path / "its.ckpt")
    for options, error in (({"label_smothing": 0.1}, UnknownName), ({"label_smoothing": "a"}, BadInput)):
        with pytest.raises(error, match=r"load_from_checkpoint.* label_smoothing"):
            BenchmarkModule.load_from_checkpoint(tmp_path / "its.ckpt", **options)
    loaded = BenchmarkModule.load_from_checkpoint(tmp_path / "its.ckpt", label_smoothing=0.1)
    assert loaded.hparams["label_smoothing"] == 0.1
    objects = {"spec": CSL.spec, "head": HeadConfig(dropout=0.5), "schedule": Schedule(name="cosine")}
    loaded = BenchmarkModule.load_from_checkpoint(tmp_path / "its.ckpt", **objects)
    assert loaded.spec == module.spec
    assert loaded.hparams["head"]["dropout"] == 0.5
    assert loaded.schedule == objects["schedule"]


def trainer():
    return pl.Trainer(max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False, limit_val_batches=1,
                      limit_test_batches=1, enable_progress_bar=False, enable_model_summary=False)  # fmt: skip


def test_a_module_refuses_data_that_it_was_not_made_for(tmp_path):
    module, _ = build("GCN", "CSL", model_options={"hidden_dim": 8, "num_layers": 1})
    other = CYCLES(root=str(tmp_path), sizes=(8, 4, 4))
    for run in (trainer().fit, trainer().test, trainer().validate):
        with pytest.raises(BadInput, match=r"CSL \(classes: 10\), but the data are CYCLES \(classes: 2\)"):
            run(module, datamodule=other)


def test_a_module_refuses_data_without_the_encodings_of_its_model(tmp_path):
    options = {"hidden_dim": 8, "num_layers": 1}
    module, _ = build("Exphormer", "CSL", model_options=options)
    with pytest.raises(BadInput, match=r"ExpanderEdges\(.*which CSL does not prepare: call data\.require"):
        trainer().test(module, datamodule=CSL(root=str(tmp_path)))


class Unready(Tiny):
    """Sets a part before `nn.Module.__init__` has run."""

    def __init__(self, spec):
        self.body = nn.Linear(8, 8)
        super().__init__(spec)


class Listed(Tiny):
    """Holds a part in a list, tuple or dict; `owned` registers it as well."""

    def __init__(self, spec, kind=list, owned=False, frozen=False):
        super().__init__(spec)
        part = (nn.Linear(8, 8) if kind is not tuple else nn.Parameter(torch.ones(8))).requires_grad_(not frozen)
        if owned:
            self.part = part
        self.further = {"one": part} if kind is dict else kind([part, nn.ReLU()])


class Lazy(Tiny):
    """Has a size that only a batch determines."""

    def __init__(self, spec):
        super().__init__(spec)
        self.further = nn.LazyLinear(8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Unready, r"calls super\(\).__init__\(spec, dim\) before it sets a part"),
        (Lazy, r"Lazy needs the size of further\.weight"),
        *((partial(Listed, kind=kind), f"Listed.further is a {kind.__name__} whose") for kind in (list, tuple, dict)),
    ],
)
def test_weights_that_would_not_be_trained_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make_architecture(make, tiny_spec())


@pytest.mark.parametrize("kind", [list, tuple, dict])
@pytest.mark.parametrize("why", ["owned", "frozen"])
def test_parts_that_are_stored_elsewhere_or_frozen_may_stand_in_a_list(kind, why):
    assert make_architecture(partial(Listed, kind=kind, **{why: True}), tiny_spec()).further
