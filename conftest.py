"""What `make test` leaves to `make test-slow` of the contract that every architecture inherits."""

import pytest

#: All other tests of the contract run in float32, and the kernels under bfloat16 autocast are those of `bf16-true`.
REPEATED = {"test_trains_in_32_true", "test_trains_in_bf16_mixed"}


@pytest.hookimpl(tryfirst=True)  # before pytest reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark these tests as slow."""
    for item in items:
        if item.name in REPEATED:
            item.add_marker(pytest.mark.slow)
