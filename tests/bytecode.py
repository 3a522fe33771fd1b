"""Test modules are compiled once for all processes of a run.

pytest rewrites the asserts of a module and compiles it, which takes half a minute for all tests; each process of a run
would do so, since all of them read the modules at the same time and in the same order. Here each first compiles a part
of them. As for Spritz itself (Makefile), PYTHONDONTWRITEBYTECODE is not heeded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def compile_share(config: pytest.Config) -> None:
    """Compile this process's part of the modules, unless that is done. Other releases of pytest may do without."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    try:
        from _pytest.assertion import rewrite
        from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc

        state = config.stash[rewrite.assertstate_key]
    except (ImportError, KeyError):
        return
    if not worker.startswith("gw"):
        return
    for path in [*_modules(config)][int(worker[2:]) :: int(workers)]:
        compiled = rewrite.get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"
        if _read_pyc(path, compiled) is None and rewrite.try_makedirs(compiled.parent):
            digest, code = _rewrite_test(path, config)
            _write_pyc(state, code, digest, compiled)


def _modules(config: pytest.Config) -> Iterator[Path]:
    """Files of the tests that were asked for."""
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        yield from sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
