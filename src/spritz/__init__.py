"""Spritz: a workload manager for AI clusters that speaks Slurm.

This module owns the two version numbers and nothing else: every command imports it, so it must stay empty of imports.
"""

#: Spritz's own version, as `spritz --version` prints it.
__version__ = "0.2.0.dev0"

#: The level of Slurm whose behaviour is claimed; commands and daemons print `slurm 25.05.0` for `-V`.
SLURM_VERSION = "25.05.0"
