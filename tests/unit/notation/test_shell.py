"""`#SBATCH` lines and scripts. (slurm) marks what sbatch 22.05.8 made of such lines."""

from __future__ import annotations

import pytest

from spritz.notation.lines import shell
from spritz.notation.lines.shell import ScriptError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("   ", []),
        (' --foo="a b"c', ["--foo=a bc"]),
        (r" --foo='a b\'c'", ["--foo=a b'c"]),
        (r" --foo='a\b'", ["--foo=ab"]),
        (" --foo=a#b --bar", ["--foo=a"]),
        (" # --foo", []),
        (" -N1 #--foo", ["-N1"]),
        (r" --foo=\#x", ["--foo=#x"]),
        (' --foo="#x"', ["--foo=#x"]),
        ('--foo=a""b', ["--foo=ab"]),
        ("\t-N\t2", ["-N", "2"]),
        (r" -J \:x", ["-J", ":x"]),
        ('-J ":x"', ["-J", ":x"]),
        (r"a\\ b", ["a\\", "b"]),
        ("a\\", ["a"]),
        ("--foo=é\udcff", ["--foo=é\udcff"]),
        ('-J ""', ["-J", ""]),
    ],
)
def test_splits_lines_as_sbatch_does(text: str, words: list[str]) -> None:
    """(slurm) but for the last, where the line ends instead."""
    assert shell.split_words(text) == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('--foo="abc', 'job.sh: line 2: Unmatched `"` in [--foo="abc]'),
        (' -N1 "abc', 'job.sh: line 2: Unmatched `"` in [ "abc]'),
        (" -N1 : --foo", "job.sh: line 2: Unexpected `:` in [ : --foo]"),
        (" :", "job.sh: line 2: Unexpected `:` in [:]"),
    ],
)
def test_names_the_line_that_cannot_be_read(text: str, message: str) -> None:
    """(slurm)"""
    with pytest.raises(ScriptError) as caught:
        shell.option_lines(f"#!/bin/sh\n#SBATCH{text}\n", name="job.sh")
    assert str(caught.value) == message
    assert caught.value.line == 2


def test_options_end_at_the_first_command() -> None:
    script = (
        "#!/bin/sh\n\n  # note\n#SBATCH -N2\n #SBATCH -N3\n##SBATCH -N4\n# SBATCH -N5\n#sbatch -N6\n#SBATCH--x\n"
        "echo\n#SBATCH -N7\n"
    )
    assert [(line.line, line.words) for line in shell.option_lines(script)] == [(4, ["-N2"]), (9, ["--x"])]


def test_other_magic_words_are_found_alike() -> None:
    assert [line.words for line in shell.option_lines("#!/bin/sh\n#PBS -N x\n", "#PBS")] == [["-N", "x"]]


def test_the_last_line_needs_no_end() -> None:
    assert [line.words for line in shell.option_lines("#!/bin/sh\n#SBATCH -N2")] == [["-N2"]]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (b"#!/bin/sh", ""),
        (b"#!\n", ""),
        (b'#!/bin/sh\necho "a\rb"\n', ""),
        (b"", "Batch script is empty!"),
        (b"\n \n", "Batch script contains only whitespace!"),
        (b"echo", "This does not look like a batch script."),
        (b" #!/bin/sh", "This does not look like a batch script."),
        (b"\x7fELF\0", "This does not look like a batch script."),
        (b"#!/bin/sh\0", "The Slurm controller does not allow scripts that\ncontain a NULL character '\\0'."),
        (
            b"#!/bin/sh\r\n",
            "Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).",
        ),
    ],
)
def test_says_why_a_script_is_refused(script: bytes, problem: str) -> None:
    """(slurm)"""
    found = shell.script_problem(script)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)
