"""Benchmarks: each file asks one question of a running cluster, ours or Slurm's. See README.md."""

import compileall
from pathlib import Path

# As installed: an editable tree has no bytecode where PYTHONDONTWRITEBYTECODE is set, and every start would compile.
compileall.compile_dir(Path(__file__).parent.parent / "src", quiet=1)
