"""Every registered encoding and positional encoder satisfies its contract: none escapes."""

from __future__ import annotations

import inspect

import pytest

from graphbench import registry
from graphbench.contracts import Encoding, PositionalEncoder
from graphbench.testing import EncodingContract, PositionalEncoderContract

#: Encodings whose values depend on the order of nodes, with the reason.
NOT_EQUIVARIANT = {
    "ExpanderEdges": "they are drawn from the numbers of the nodes",
    "LapPE": "signs of eigenvectors and bases of eigenspaces are chosen by node order",
    "Substructures": "they are listed by their node numbers; tests/encodings compares them as sets",
}


def _registered(base):
    loaded = {name: record.load() for name, record in registry.encodings().items()}
    return [pytest.param(cls, id=name) for name, cls in loaded.items() if issubclass(cls, base)]


def test_encodings_are_registered():
    assert registry.encodings(), "install the core: pip install -e ."


class TestRegisteredEncodings(EncodingContract):
    @pytest.fixture(autouse=True, params=_registered(Encoding))
    def registered(self, request):
        self.encoding = request.param
        self.equivariant = request.param.__name__ not in NOT_EQUIVARIANT


class TestRegisteredPositionalEncoders(PositionalEncoderContract):
    @pytest.fixture(autouse=True, params=_registered(PositionalEncoder))
    def registered(self, request):
        self.encoder = request.param
        signature = inspect.signature(request.param)
        self.options = {"dim": 8} if "dim" in signature.parameters else {}
