"""Skips everything where there is no real control plane, or no container can run."""

from __future__ import annotations

import pytest

from tests.kubernetes.real.site import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = missing()
    for item in items:
        if item.path.parent.name == "real":
            item.add_marker(pytest.mark.slow)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))
