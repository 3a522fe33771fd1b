"""Test modules are compiled once for all processes of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import bytecode


def test_each_process_compiles_a_part_and_together_they_compile_all(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"test_{letter}" for letter in "abcde"}
    for name in (*names, "helper"):
        (tmp_path / f"{name}.py").write_text("def test_it():\n    assert 1 + 1 == 2\n")
    config: Any = SimpleNamespace(
        args=[str(tmp_path / "test_a.py::test_it"), str(tmp_path)],
        invocation_params=SimpleNamespace(dir=Path("/")),
        stash=pytestconfig.stash,
        getini=pytestconfig.getini,
    )
    monkeypatch.setattr("sys.pycache_prefix", None)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    compiled: list[set[str]] = []
    for worker in ("main", "gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        bytecode.compile_share(config)
        compiled.append({path.name.partition(".")[0] for path in tmp_path.glob("__pycache__/*-pytest-*.pyc")})
    assert not compiled[0]
    assert 2 <= len(compiled[1]) <= 3
    assert compiled[2] == names
