"""The commands in the tutorials and how-to guides do what the pages say.

A page's `console` blocks are one shell session, on a small cluster of its own; a fenced block with `title="NAME"` is a
file. Lines with `$ ` are commands, the others what they print: `...` stands for any text, runs of blanks are alike. A
command ends with 0, or with something else where `# fails` follows it. A comment `<!-- not run: WHY -->` before a block
leaves it out.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.cluster import BIN, PATIENCE_SECONDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted([*(DOCS / "tutorials").glob("*.md"), *(DOCS / "how-to").glob("*.md")])

_BLOCK = re.compile(
    r"(?P<out><!-- not run: .*?-->\n)?^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FAILS = "# fails"
#: What srun says on standard error where the job before it is still completing, as on a busy machine.
_WAITED = re.compile(r"^srun: job \d+ (?:queued and waiting for|has been allocated) resources\n", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A command of a page, and what the page says that it prints."""

    command: str
    expected: str

    @property
    def fails(self) -> bool:
        return self.command.endswith(_FAILS)


def blocks(page: Path) -> list[re.Match[str]]:
    """All fenced blocks that are run or written."""
    return [block for block in _BLOCK.finditer(page.read_text(encoding="utf-8")) if not block["out"]]


def examples(page: Path) -> list[Example]:
    """The page's commands, in order."""
    result: list[Example] = []
    for block in blocks(page):
        if block["kind"] != "console":
            continue
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                result.append(Example(line[2:], ""))
            else:
                last = result.pop()
                result.append(Example(last.command, f"{last.expected}{line}\n"))
    return result


def session(commands: list[str], directory: Path) -> list[tuple[int, str]]:
    """Exit status and output of each command, run by one shell in `directory`."""
    script = "\n".join(f"{command}\nprintf '\\0%d\\0' $?" for command in commands)
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(directory.parent),
        "XDG_STATE_HOME": str(directory.parent / ".local/state"),
        "USER": os.environ.get("USER", ""),
        "COLUMNS": "120",
        "LC_ALL": "C.UTF-8",
        "SPRITZ_NO_SERVER": "1",
        "TMPDIR": os.environ["TMPDIR"],
    }
    done = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * PATIENCE_SECONDS,  # a page has many commands
    )
    parts = done.stdout.split("\0")
    return list(zip(map(int, parts[1::2]), parts[0::2], strict=False))


def needs_a_cluster(page: Path) -> bool:
    """Whether the page uses one without starting it."""
    return not any("spritz up" in example.command for example in examples(page))


def _without_waits(ran: tuple[int, str]) -> tuple[int, str]:
    return ran[0], _WAITED.sub("", ran[1])


#: Pages whose commands take ten seconds, and whose features have tests of their own in the default run.
SLOW = {"pause-and-resume", "pipelines", "dev-sessions", "sweeps"}


#: Pages whose commands need a program that not every machine lets run: what is tried.
NEEDS = {"containers": ["bwrap", "--ro-bind", "/", "/", "true"]}


def _runs(words: list[str]) -> bool:
    return shutil.which(words[0]) is not None and not subprocess.run(words, capture_output=True).returncode


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.stem in SLOW else (), id=page.stem)
        for page in PAGES
        if examples(page)
    ],
)
def test_commands_do_what_the_page_says(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if page.stem in NEEDS and not _runs(NEEDS[page.stem]):
        pytest.skip(f"{NEEDS[page.stem][0]} does not run here")
    work = tmp_path_factory.mktemp("page") / "work"  # a short path, since sockets are in it
    work.mkdir()
    for block in blocks(page):
        if block["title"]:
            (work / block["title"]).write_text(block["text"], encoding="utf-8")
    before = [
        "spritz up --dir ../lab --nodes 2 --cpus 4 --memory 4G --gpus 2 --gpu-type h100",
        'eval "$(spritz env --dir ../lab)"',
    ]
    before = before if needs_a_cluster(page) else []
    shown = examples(page)
    try:
        ran = session([*before, *(example.command for example in shown)], work)[len(before) :]
    finally:
        session(["spritz down --dir lab; spritz down --dir ../lab"], work)
    assert len(ran) == len(shown), f"the shell ended after {len(ran)} of {len(shown)} commands"
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    wrong = [
        f"$ {example.command}\n(exit status {status}) printed\n{output}where the page has\n{example.expected}"
        for example, (status, output) in zip(shown, map(_without_waits, ran), strict=True)
        if example.fails != (status != 0) or not doctest.OutputChecker().check_output(example.expected, output, flags)
    ]
    assert not wrong, "\n".join(wrong)


def test_links_of_the_readme_lead_somewhere() -> None:
    root = DOCS.parent
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        for target in re.findall(r"\]\(([^)#]+)", (root / name).read_text(encoding="utf-8")):
            assert "://" in target or (root / target).exists(), f"{name}: {target}"
