"""A GPS layer launches at most half of what an earlier audit counted, if kernels are requested."""

import importlib
from functools import partial
from pathlib import Path

import pytest
import torch

SPEED = Path(__file__).parents[2] / "speed"
#: Way to compute a layer with GINE -> most launches, forward, backward and optimizer. Only ever lowered.
MOST = {
    "plain torch": 65,
    "trainer.deterministic: true": 57,
    "attention: packed": 56,
    "both": 48,
}


@pytest.mark.fresh_process
@pytest.mark.slow
def test_a_layer_launches_half_of_what_was_counted_before(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    script = importlib.import_module("launches")
    batch = script.molecule_like(8, script.KIND, torch.Generator().manual_seed(0)).batch(range(8))
    for way, (options, launches) in script.WAYS.items():
        make = partial(lambda layers, options: script.OurGPS(script.with_layers(layers), **options), options=options)
        work = script.layer_work(make, batch, launches)
        assert work.launches.total() <= MOST[way], (way, work.launches)
        assert not work.waits
    assert 2 * MOST["both"] <= script.AUDIT
    assert MOST.keys() == script.WAYS.keys()
