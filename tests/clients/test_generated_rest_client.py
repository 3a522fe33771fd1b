"""Clients generated from the published documents, unmodified, of two versions. `make rest` names the generator."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spritz.presentation.json.documents import document_bytes
from tests.e2e.rest_site import Site, site, token

__all__ = ["site"]

GENERATOR = os.environ.get("SPRITZ_REST_GENERATOR", "")
pytestmark = pytest.mark.skipif(not GENERATOR, reason="needs openapi-python-client: `make rest`")


@pytest.mark.parametrize("version", ["v0.0.42", "v0.0.45"])
def test_a_generated_client_works(site: Site, version: str, tmp_path: Path) -> None:
    source, generator = tmp_path / "document.json", Path(GENERATOR)
    source.write_bytes(document_bytes(version))
    made = [GENERATOR, "generate", "--path", str(source), "--output-path", str(tmp_path / "client"), "--meta", "none"]
    env = {**os.environ, "PATH": f"{generator.parent}:{os.environ['PATH']}"}
    subprocess.run(made, check=True, env=env, stdout=subprocess.DEVNULL, timeout=200)
    program = str(Path(__file__).with_name("generated_client.py"))
    url = f"http://127.0.0.1:{site.port}"
    words = [str(generator.with_name("python")), program, str(tmp_path), version, url, token()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr[-2000:]
