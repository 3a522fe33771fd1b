"""`spritz run --container-image`: the command alone is in the image, and finds its code, metrics and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.experiments_lab import Lab, git, ours
from tests.e2e.test_containers import image, pytestmark

__all__ = ["image", "pytestmark"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    with ours(tmp_path_factory.mktemp("c")) as found:
        yield found


@pytest.fixture
def lab(cluster: tuple[Path, str], tmp_path: Path) -> Lab:
    made = Lab(tmp_path, *cluster)
    made.project.mkdir()
    git(made.project, "init", "-q", "-b", "main")
    (made.project / "train.sh").write_text(
        'cat /etc/where; echo "$@"; echo saved > "$SPRITZ_RUN_DIR/kept"\n'
        'echo "{\\"step\\": 1, \\"acc\\": 0.${1#--n=}}" >> "$SPRITZ_RUN_DIR/metrics.jsonl"\n'
    )
    git(made.project, "add", "-A")
    git(made.project, "commit", "-q", "-m", "one")
    return made


@pytest.mark.slow
def test_a_run_in_a_container(lab: Lab, image: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "data").write_text("data\n")
    words = ("--container-image", str(image), "--container-mounts", f"{given}:/data:ro")
    out = lab("run", "-J", "boxed", *words, "--", "sh", "train.sh", "--lr", "1")
    assert out.splitlines() == ["inside", "--lr 1"]
    found = lab.run_json("boxed")
    run = found["run"]
    assert isinstance(run, dict)
    assert run["surroundings"]["container"].startswith(str(image))
    assert (lab.home / "runs" / "boxed-1" / "kept").read_text() == "saved\n"
    assert f"Container  {image}" in lab("show", "boxed")
    # Again as it was, with the image; and its trials.
    assert lab("rerun", "boxed").splitlines() == ["inside", "--lr 1"]
    assert lab("run", *words, "--no-snapshot", "--", "cat", "/data/data").splitlines() == ["data"]
    said = lab("run", "-J", "swept", "--metric", "acc", "--maximize", "-m", "n=1,2", *words, "--", "sh", "train.sh")
    assert "best: swept-1.2" in said
    assert "--n=1" in lab("logs", "swept-1.1").splitlines()


@pytest.mark.slow
def test_what_cannot_be_in_a_container_is_told(lab: Lab, image: Path) -> None:
    for words, said in (
        (("run", "--container-image", "./none.sqsh", "--", "true"), "no such file"),
        (("run", "--container-mounts", "/a:/b", "--", "true"), "--container-image is needed"),
        (("run", "--metric", "acc", "--", "true"), "this is no sweep"),
        (("run", "--container-image", str(image), "--container-mounts", "a", "--", "true"), "/SRC:/DST[:ro] is"),
        (("run", "--container-image", str(image), "--template", "ray", "--", "true"), "template ray"),
        (("dev", "--container-image", str(image)), "dev sessions run outside containers"),
    ):
        process = lab.start(*words)
        _, err = process.communicate(timeout=100)
        assert process.returncode
        assert said in err, words
