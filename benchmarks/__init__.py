"""Benchmarks: each file asks one question of a running cluster, ours or Slurm's. See README.md."""
