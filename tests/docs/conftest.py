"""The order of the tests."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Run tests of the built site first: later, two processes would share them and one wait for the other."""
    items.sort(key=lambda item: item.path.name != "test_site.py")
