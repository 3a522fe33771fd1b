"""What browsers load is what npm's packages have, and all of it is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import spritz.web

VENDOR = Path(spritz.web.__file__).parent / "static" / "vendor"


def test_every_file_of_others_is_the_one_that_is_recorded() -> None:
    lines = [line.split("\t") for line in (VENDOR / "VERSIONS.txt").read_text().splitlines() if line[0] != "#"]
    assert {name: digest for name, _, _, digest in lines} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.suffix in (".js", ".css")
    }
    licences = (VENDOR / "LICENSES.txt").read_text()
    for _, package, _, _ in lines:
        assert f"== {package.replace(' ', '-')}\n" in licences
