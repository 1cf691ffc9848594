"""Every registered encoding and positional encoder satisfies its contract."""

from __future__ import annotations

import inspect

import pytest

from graphbench import registry
from graphbench.contracts import Encoding, PositionalEncoder
from graphbench.errors import BadInput
from graphbench.testing import EncodingContract, PositionalEncoderContract

#: Encodings whose values depend on the order of nodes, with the reason.
NOT_EQUIVARIANT = {
    "ExpanderEdges": "they are drawn from the numbers of the nodes",
    "LapPE": "signs of eigenvectors and bases of eigenspaces are chosen by node order",
    "Substructures": "they are listed by their node numbers; tests/encodings compares them as sets",
}


def _registered(base):
    loaded = {name: record.load() for name, record in registry.encodings().items()}
    return [(name, cls) for name, cls in loaded.items() if issubclass(cls, base)]


def test_encodings_are_registered():
    assert registry.encodings(), "install the core: pip install -e ."


class TestRegisteredEncodings(EncodingContract):
    @pytest.fixture(autouse=True, params=[pytest.param(cls, id=name) for name, cls in _registered(Encoding)])
    def registered(self, request):
        self.encoding = request.param
        self.equivariant = request.param.__name__ not in NOT_EQUIVARIANT


#: Positional encoder -> most waits and launches of a training step, see `ArchitectureContract`; only ever lowered.
BUDGETS = {
    "DegreeEncoder": (0, 57),
    "ESLapPEEncoder": (0, 55),
    "LapPEEncoder": (0, 79),
    "LinearTransformerPE": (0, 1681),
    "RWSEEncoder": (0, 58),
    "SignNetEncoder": (0, 247),
}


def _contract(name, encoder):
    """Return a contract per encoder: the process that counts steps sees classes but no fixtures."""
    options = {"dim": 8} if "dim" in inspect.signature(encoder).parameters else {}
    waits, launches = BUDGETS.get(name, (0, None))
    budget = {"most_waits": waits, "most_launches": launches}
    return type(f"Test{name}", (PositionalEncoderContract,), {"encoder": encoder, "options": options, **budget})


for _name, _encoder in _registered(PositionalEncoder):
    globals()[f"Test{_name}"] = _contract(_name, _encoder)


def test_options_are_attributes_or_the_class_says_what_they_are():
    class Walks(Encoding):
        version = 1
        layout = {}  # noqa: RUF012
        scale = 2.0

        def __init__(self, steps, scale=1.0):
            self.steps, self._scale = steps, scale

        def compute(self, table):
            raise NotImplementedError

    class Scaled(Walks):
        def __init__(self, steps, scale=1.0):
            super().__init__(steps)
            self.scale = scale

    with pytest.raises(BadInput, match="scale"):  # the class attribute is not the option
        Walks(3).parameters()
    assert Scaled(3, 0.5).parameters() == {"steps": 3, "scale": 0.5}
