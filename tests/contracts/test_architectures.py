"""Every registered architecture satisfies the contract: none escapes."""

from __future__ import annotations

import pytest

from graphbench import registry
from graphbench.testing import ArchitectureContract


def test_architectures_are_registered():
    assert registry.architectures(), "install the plug-ins: pip install -e plugins/FAMILY"


class TestRegisteredArchitectures(ArchitectureContract):
    @pytest.fixture(autouse=True, params=sorted(registry.architectures()))
    def registered(self, request):
        self.architecture = registry.load("architectures", request.param)
