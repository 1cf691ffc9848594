"""Captured generators draw the same numbers again; the checkpoint form survives weights_only loading."""

import io
import random

import numpy as np
import torch

from graphbench.callbacks.exact_resume import ExactResume, capture, capture_generators, restore, restore_generators


def draw():
    return random.random(), np.random.normal(size=3).tolist(), torch.randn(3).tolist()


def test_restored_generators_repeat_themselves():
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    np.random.normal()  # leaves a cached number behind, which is part of the state
    buffer = io.BytesIO()
    torch.save(capture(), buffer)
    first = draw()
    buffer.seek(0)
    restore(torch.load(buffer, weights_only=True))
    assert draw() == first
    assert draw() != first


def test_capturing_draws_nothing():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    ExactResume().state_dict()
    assert torch.equal(torch.get_rng_state(), before)


class Sampling(torch.nn.Module):
    """A layer whose own generator is part of its state, as in SFT's sampler."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def get_extra_state(self):
        return self.generator.get_state()

    def set_extra_state(self, state):
        self.generator.set_state(state)


def test_every_rank_gets_its_own_layers_generators_back():
    first, second = torch.nn.Sequential(Sampling()), torch.nn.Sequential(Sampling())
    torch.rand(5, generator=first[0].generator)
    torch.rand(8, generator=second[0].generator)  # its graphs needed more numbers
    kept = [capture_generators(first), capture_generators(second)]
    expected = [torch.rand(4, generator=layer[0].generator) for layer in (first, second)]
    assert not torch.equal(*expected)
    weights = first.state_dict()
    for rank in (0, 1):
        resumed = torch.nn.Sequential(Sampling())
        resumed.load_state_dict(weights)  # both ranks load those of one
        restore_generators(resumed, kept[rank])
        assert torch.equal(torch.rand(4, generator=resumed[0].generator), expected[rank])
    restore_generators(torch.nn.Linear(1, 1), kept[0])  # a model without such a layer
