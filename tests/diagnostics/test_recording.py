"""Recording: which traces are kept, in which order, and that it does not affect the model."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from graphbench import LayerTrace, Traced
from graphbench.diagnostics import Recording, record


class Layer(Traced):
    """A traced layer on one graph, with dropout in training."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 4)
        self.traces_made = 0

    def forward(self, x: Tensor) -> Tensor:
        out = nn.functional.dropout(x + self.map(x), 0.5, self.training)
        self.trace(lambda: self.make(x, out))
        return out

    def make(self, x: Tensor, out: Tensor) -> LayerTrace:
        self.traces_made += 1
        return LayerTrace(out, torch.zeros(len(x), dtype=torch.int64), input=x)


class Model(nn.Module):
    """Two layers; the second is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Layer()
        self.shared = nn.ModuleDict({"looped": Layer()})

    def forward(self, x: Tensor) -> Tensor:
        looped = self.shared["looped"]
        return looped(looped(self.first(x)))


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def test_traces_come_in_call_order_with_names_and_numbers(model: Model, x: Tensor) -> None:
    with record(model) as recording:
        out = model(x)
    assert [(t.layer, t.name) for t in recording] == [(0, "first"), (1, "shared.looped"), (2, "shared.looped")]
    assert recording[-1].tokens is out
    assert recording[1].input is recording[0].tokens
    assert recording.output is out
    assert len(recording[:2]) == 2
    assert "1: shared.looped" in repr(recording)


def test_every_pass_starts_at_layer_zero(model: Model, x: Tensor) -> None:
    with record(model) as recording:
        model(x)
        model(x)
        assert [trace.layer for trace in recording] == [0, 1, 2, 0, 1, 2]
        recording.clear()
        assert len(recording) == 0
        assert recording.output is None
        model(x)
    assert [trace.layer for trace in recording] == [0, 1, 2]


def test_recording_changes_neither_outputs_nor_random_numbers(model: Model, x: Tensor) -> None:
    torch.manual_seed(3)
    alone, after_alone = model(x), torch.rand(3)
    torch.manual_seed(3)
    with record(model):
        heard, after_heard = model(x), torch.rand(3)
    assert torch.equal(alone, heard)
    assert torch.equal(after_alone, after_heard)


def test_nothing_is_built_or_kept_when_nobody_listens(model: Model, x: Tensor) -> None:
    model(x)
    assert model.first.traces_made == 0
    with record(model) as recording:
        kept = weakref.ref(model(x))
    assert model.first.traces_made == 1
    del recording
    gc.collect()
    assert kept() is None
    model(x)
    assert model.first.traces_made == 1


def test_it_detaches_even_on_error(model: Model, x: Tensor) -> None:
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    with pytest.raises(RuntimeError, match="shapes"), record(model):
        model(torch.zeros(2, 3))
    assert not model.first.listening
    for name, module in model.named_modules():
        assert module.__dict__.keys() == before[name].keys()
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_recordings_nest(model: Model, x: Tensor) -> None:
    with record(model) as outer:
        model(x)
        with record(model.shared) as inner:
            model(x)
        assert model.first.listening
        model(x)
    assert len(outer) == 9
    assert [trace.name for trace in inner] == ["looped", "looped"]
    assert [trace.layer for trace in outer] == [0, 1, 2] * 3
    assert not model.first.listening


def test_a_model_without_attention_records_nothing(x: Tensor) -> None:
    model = nn.Linear(4, 2)
    with record(model) as recording:
        out = model(x)
    assert list(recording) == []
    assert recording.output is out


@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_models_run_uncompiled_while_recorded(model: Model, x: Tensor, in_place: bool) -> None:
    torch._dynamo.reset()
    compilations = 0

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal compilations
        compilations += 1
        return graph

    model.eval()
    expected = model(x)
    if in_place:
        model.compile(backend=backend)
        compiled = model
    else:
        compiled = torch.compile(model, backend=backend)
    torch.testing.assert_close(compiled(x), expected)
    before = compilations
    with record(compiled) as recording:
        torch.testing.assert_close(compiled(x), expected)
    assert [trace.name for trace in recording] == ["first", "shared.looped", "shared.looped"]
    compiled(x)
    assert compilations == before > 0
    torch._dynamo.reset()


def test_the_recording_numbers_and_names(x: Tensor) -> None:
    recording = Recording()
    recording.take(LayerTrace(x, torch.zeros(5, dtype=torch.int64), layer=4), "old")
    assert (recording[0].layer, recording[0].name) == (0, "old")
