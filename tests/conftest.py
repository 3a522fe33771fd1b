"""Options of every test run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--bless` rewrites transcripts with what came; read the difference before committing it."""
    parser.addoption("--bless", action="store_true", help="rewrite transcripts with what came")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts are to be rewritten."""
    return bool(request.config.getoption("--bless"))
