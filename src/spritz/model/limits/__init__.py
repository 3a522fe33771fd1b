"""Who may use how much: associations, QOS, and the ledger of what each of them uses.

`records` what slurmdbd keeps and controllers cache; `rules` the same, made ready for questions; `ledger` what is in
use; `check` whether one more job would exceed a limit, and the reason that Slurm shows for it. Core and scheduling both
ask here, so that what the one plans the other accepts. Pure.

Source: sacctmgr(1), https://slurm.schedmd.com/resource_limits.html.
"""
