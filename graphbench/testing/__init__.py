"""Tests for authors of plug-ins: contracts to inherit, and tiny data for any specification.

    from graphbench.testing import ArchitectureContract

    class TestMyModel(ArchitectureContract):
        architecture = MyModel
        options = {"hidden_dim": 16, "num_layers": 2}

pytest collects the inherited `test_*` methods. Nothing here imports pytest; a check that does not apply raises
`unittest.SkipTest`, which pytest reports as skipped. Names are listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
