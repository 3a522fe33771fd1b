"""Coverage-guided fuzzing of what strangers can send (tests/property/test_strangers.py), by atheris (libFuzzer).

    python -m tests.fuzz.guided [SECONDS] [TEST ...]      SECONDS of each (default 20); non-zero at a finding

Each property is run with inputs that libFuzzer makes and Hypothesis reads as its choices, so a finding is one that
`pytest tests/property/test_strangers.py` has afterwards as well (its example is kept). Besides a failed property, an
input that takes `TIMEOUT_SECONDS`, or with which the process has more than `MEMORY_MIB`, is a finding.

One process for each test: libFuzzer never returns. Source: Hypothesis, "Use with external fuzzers"; libFuzzer -help=1.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from typing import Any

MODULE = "tests.property.test_strangers"
SECONDS = 20
TIMEOUT_SECONDS = 10
MEMORY_MIB = 512

_CHILD = "--one"


def main(words: list[str]) -> int:
    """All tests, or those named; how many have findings."""
    seconds = int(words.pop(0)) if words and words[0].isdigit() else SECONDS
    failed = 0
    for name in words or _names():
        with tempfile.TemporaryDirectory(prefix="spritz-guided-") as place:
            command = [sys.executable, "-m", "tests.fuzz.guided", _CHILD, name, f"-max_total_time={seconds}"]
            limits = [f"-timeout={TIMEOUT_SECONDS}", f"-rss_limit_mb={MEMORY_MIB}", f"-artifact_prefix={place}/"]
            done = subprocess.run([*command, *limits, place], capture_output=True, text=True, check=False)
        last = [line for line in done.stderr.splitlines() if "cov:" in line][-1:]
        sys.stdout.write(f"{name}: {'FOUND' if done.returncode else 'nothing'} {' '.join(last)}\n")
        if done.returncode:
            failed += 1
            sys.stdout.write(f"{done.stdout[-4000:]}{done.stderr[-4000:]}\n")
        sys.stdout.flush()
    return failed


def _names() -> list[str]:
    """Properties that need nothing but drawn values."""
    module = importlib.import_module(MODULE)
    return [name for name, value in vars(module).items() if name.startswith("test_") and hasattr(value, "hypothesis")]


def _fuzz(name: str, options: list[str]) -> None:
    # Not in the environment of every test, and without types.
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["spritz"]):
        module = importlib.import_module(MODULE)
    test = getattr(module, name)
    atheris.Setup([sys.argv[0], *options], test.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == [_CHILD]:
        _fuzz(sys.argv[2], sys.argv[3:])
    sys.exit(main(sys.argv[1:]))
