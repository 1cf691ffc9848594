"""The contract passes a sound model and catches every fault that it checks for."""

from __future__ import annotations

from unittest import SkipTest

import pytest
import torch
from torch import nn

from graphbench.contracts import Architecture, LayerTrace, Representation, Traced
from graphbench.errors import BadInput
from graphbench.nn import NodeEncoder
from graphbench.testing import ArchitectureContract, check_architecture, tiny_spec


class Sound(Architecture):
    """Adds the mean of the graph to every node."""

    def __init__(self, spec, hidden_dim: int = 8, flaw: str = "") -> None:
        super().__init__(spec, hidden_dim)
        self.flaw = flaw
        self.encoder = NodeEncoder(spec, hidden_dim)
        self.watched = Watched()

    def forward(self, batch):
        x = self.encoder(batch)
        mean = x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.batch, x) / batch.ptr.diff()[:, None]
        x = self.watched(x + mean[batch.batch], batch, self.flaw)
        return Representation(self.spoil(x, batch), graph=mean)

    def spoil(self, x, batch):
        match self.flaw:
            case "sees other graphs":
                return x + x.mean(0)
            case "counts padding":
                return x / batch.max_nodes
            case "numbers nodes":
                return x + torch.arange(len(x), device=x.device)[:, None] % 3
            case "numbers edges":
                first = batch.edge_index[0] == torch.arange(batch.edge_index.shape[1], device=x.device) % len(x)
                return x + first.sum()
            case "forgets its precision":
                return x @ torch.eye(x.shape[1], dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
            case "overflows in half precision":
                return x @ (1e5 * torch.eye(x.shape[1], dtype=x.dtype)) / 1e5
            case "is random":
                return x + torch.rand(())
            case "changes the batch":
                batch.edge_index.copy_(batch.edge_index.flip(0))
            case "reads a number":
                return x + int(batch.ptr[-1])
            case "is too narrow":
                return x[:, 1:]
            case "divides by zero":
                return x / (batch.ptr.diff()[batch.batch][:, None] - 1)
        return x


class Watched(Traced):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x, batch, flaw):
        self.trace(lambda: self.record(x, batch, flaw))
        if flaw == "listens and differs" and self.listening:
            return x * 2
        return x * (self.scale.detach() if flaw == "starves a parameter" else self.scale)

    def record(self, x, batch, flaw):
        sizes = batch.ptr.diff().tolist()
        shape = max(sizes) if flaw == "shows padding" else None
        attention = [torch.full((1, shape or n, shape or n), 1 / n) for n in sizes]
        return LayerTrace(tokens=x, batch=batch.batch, attention=attention)


class Fussy(Sound):
    """Refuses everything but coordinates."""

    def __init__(self, spec, hidden_dim: int = 8) -> None:
        if not spec.coordinates:
            raise BadInput("needs coordinates")
        super().__init__(spec, hidden_dim)


class Forgetful(Sound):
    """Keeps a value outside its state dict."""

    def __init__(self, spec, hidden_dim: int = 8) -> None:
        super().__init__(spec, hidden_dim)
        self.shift = float(torch.rand(()))

    def spoil(self, x, batch):
        return x + self.shift


class Untyped(Sound):
    def __init__(self, spec, hidden_dim=8) -> None:
        super().__init__(spec, hidden_dim)


def _contract(architecture, **options):
    return type("Contract", (ArchitectureContract,), {"architecture": architecture, "options": options})()


def test_sound_model_passes_every_check():
    passed = check_architecture(Sound, hidden_dim=6)
    skipped = {"test_cuda_agrees_with_cpu"} if not torch.cuda.is_available() else set()
    skipped |= {"test_batches_of_the_loader_give_the_same"}  # of models that precompute
    skipped |= {"test_node_steps_give_what_forward_gives"}  # of models with steps
    # Counted only for classes in a file, see `test_budget.py`.
    skipped |= {"test_a_step_stays_within_its_budget", "test_a_step_runs_on_an_apple_gpu"}
    assert set(passed) == {name for name in dir(ArchitectureContract) if name.startswith("test_")} - skipped


def test_model_may_refuse_most_specifications():
    assert "test_every_task_and_feature_kind_works_or_is_refused" in check_architecture(Fussy)


@pytest.mark.parametrize(
    ("flaw", "check", "message"),
    [
        ("sees other graphs", "batch_mates_do_not_matter", "alone and in a batch"),
        ("counts padding", "padding_does_not_matter", "alone and in a batch"),
        ("numbers nodes", "node_order_does_not_matter", "node order"),
        ("numbers edges", "edge_order_does_not_matter", "another order of edges"),
        ("is random", "evaluation_repeats_and_leaves_the_batch_alone", "two evaluations differ in node"),
        ("changes the batch", "evaluation_repeats_and_leaves_the_batch_alone", "forward changed batch.edge_index"),
        ("is too narrow", "representation_has_the_promised_shapes", r"node must be \[\d+, 8\].*but is \[\d+, 7\]"),
        ("divides by zero", "smallest_graphs_work", "not finite"),
        ("starves a parameter", "gradients_reach_every_parameter", "no gradient reaches watched.scale"),
        ("reads a number", "a_step_reads_nothing_from_its_device", r"Tensor.item\(\) cannot be called on meta tensors"),
        ("listens and differs", "traces_describe_the_layers", "with and without a recorder"),
        (
            "shows padding",
            "traces_describe_the_layers",
            r"attention of graph 0 must be \[H, 4, 4\], but is \[1, 7, 7\]",
        ),
    ],
)
def test_flaw_is_caught(flaw, check, message):
    with pytest.raises((AssertionError, BadInput), match=message):
        getattr(_contract(Sound, flaw=flaw), f"test_{check}")()


def test_an_overflow_in_half_precision_is_caught():
    contract = _contract(Sound, flaw="overflows in half precision")
    contract.spec = tiny_spec("node-classification")  # its loss reads the nodes
    contract.test_trains_in_bf16_mixed()
    with pytest.raises(AssertionError, match="not finite"):
        contract.test_trains_in_16_mixed()


def test_a_type_of_its_own_is_caught():
    contract = _contract(Sound, flaw="forgets its precision")
    contract.test_trains_in_64_true()
    with pytest.raises(RuntimeError, match="same dtype"):
        contract.test_trains_in_bf16_true()


def test_what_numbers_edges_says_so_and_is_skipped():
    contract = _contract(Sound, flaw="numbers edges")
    contract.numbered_edges = "weights belong to edges"
    with pytest.raises(SkipTest, match="weights belong to edges"):
        contract.test_edge_order_does_not_matter()


def test_state_outside_the_checkpoint_is_caught():
    with pytest.raises(AssertionError, match="node outputs differ after loading"):
        _contract(Forgetful).test_state_survives_saving()


def test_untyped_option_is_caught():
    with pytest.raises(AssertionError, match="hidden_dim has no type"):
        _contract(Untyped).test_options_are_typed_and_have_defaults()


def test_parameters_without_gradient_are_excepted_by_name_alone():
    contract = _contract(Sound, flaw="starves a parameter")
    contract.without_gradient = ("encoder.*",)
    with pytest.raises(AssertionError, match="no gradient reaches watched"):
        contract.test_gradients_reach_every_parameter()
    contract.without_gradient = ("watched.*",)
    contract.test_gradients_reach_every_parameter()


@pytest.mark.parametrize("reason", ["random_method", "random_order"])
def test_what_is_random_skips_the_order_of_nodes_with_its_reason(reason):
    contract = _contract(Sound, flaw="numbers nodes")
    setattr(contract, reason, "numbers are drawn")
    with pytest.raises(SkipTest, match="numbers are drawn"):
        contract.test_node_order_does_not_matter()


def test_refusing_everything_is_caught():
    class Never(Sound):
        def __init__(self, spec, hidden_dim: int = 8) -> None:
            raise BadInput("never")

    with pytest.raises(AssertionError, match="Never refuses every specification"):
        _contract(Never).test_batch_mates_do_not_matter()
