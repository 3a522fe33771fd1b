"""What is known of where a run was started."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from spritz.experiments.commands import diff
from spritz.experiments.job import containers, run_environment


def test_an_environment_of_conda_is_listed_so_that_conda_can_make_it_again(tmp_path: Path) -> None:
    records = tmp_path / "env" / "conda-meta"
    records.mkdir(parents=True)
    package = {"url": "https://me:geheim@host/linux-64/numpy-2.1.0-py312_0.conda", "md5": "abc"}
    (records / "numpy-2.1.0-py312_0.json").write_text(json.dumps(package))
    (records / "damaged.json").write_text("{")
    environment = {"CONDA_PREFIX": str(tmp_path / "env"), "CONDA_DEFAULT_ENV": "env", "PATH": ""}
    for _ in range(2):  # the second time as it was kept
        found = run_environment.collect(tmp_path, tmp_path, environment)
        assert found["conda"]["explicit"] == ["https://me:********@host/linux-64/numpy-2.1.0-py312_0.conda#abc"]
    newer = {"conda": {"explicit": ["https://host/linux-64/numpy-2.2.0-py312_1.conda#def"]}}
    lines = [one.line for one in diff._environment(found, newer)]
    assert "conda numpy: 2.1.0-py312_0 → 2.2.0-py312_1" in lines


def test_an_image_that_was_built_again_under_its_name_differs(tmp_path: Path) -> None:
    path = tmp_path / "torch.sif"
    found = []
    for build in (b"a", b"b"):
        path.write_bytes(
            b"#!/usr/bin/env run-singularity\n".ljust(32) + b"SIF_MAGIC\x0001\x0002\x00" + build * 16 + b"rest"
        )
        found.append(run_environment.collect(tmp_path, tmp_path, {"APPTAINER_CONTAINER": str(path), "PATH": ""}))
    assert found[0]["container"] == f"{path} sif:{'61' * 16}"
    assert found[0]["container"] != found[1]["container"]
    assert containers.identity("/no/such.sif", tmp_path, {}) == "/no/such.sif"


def test_an_archive_is_known_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "torch.sqsh"
    path.write_bytes(b"one")
    found = [run_environment.collect(tmp_path, tmp_path, {"PATH": ""}, image=str(path)) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["container"] == f"{path} sha256:{hashlib.sha256(b'one').hexdigest()}"
    assert "python" not in found[0], "the interpreter is the image's"
    path.write_bytes(b"other")
    assert containers.identity(str(path), tmp_path, {}) == f"{path} sha256:{hashlib.sha256(b'other').hexdigest()}"


def test_lock_files_up_to_the_repositorys_root_are_recorded_although_git_ignores_them(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / ".git").mkdir()
    for path in ("uv.lock", "sub/requirements-gpu.txt", "sub/notes.txt", ".gitignore"):
        (project / path).write_text("uv.lock\n")
    (tmp_path / "poetry.lock").touch()
    collected = run_environment.collect(tmp_path, project / "sub", {"PATH": ""})
    digest = hashlib.sha256(b"uv.lock\n").hexdigest()
    assert collected["lock_files"] == {"uv.lock": digest, "sub/requirements-gpu.txt": digest}
    (project / "uv.lock").write_text("other")
    lines = [change.line for change in diff.installed_since(collected, run_environment.collect(tmp_path, project, {}))]
    assert [line.partition(":")[0] for line in lines] == ["lock file sub/requirements-gpu.txt", "lock file uv.lock"]
    assert run_environment.collect(tmp_path, tmp_path / "gone", {})["lock_files"] == {}
