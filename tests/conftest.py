"""Every test's own time limit is for a machine at rest: a slow one gets more."""

from typing import Any

import pytest
import pytest_timeout  # type: ignore[import-untyped]

from harness.patience import patience


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> object:
    return pytest_timeout.pytest_timeout_set_timer(
        item, settings._replace(timeout=patience(settings.timeout))
    )
