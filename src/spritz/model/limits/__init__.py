"""Who may use how much: associations, QOS, and the ledger of what each of them uses.

`records` what slurmdbd keeps and controllers cache; `rules` the same, made ready for questions; `ledger` what is in
use; `usage` what was used, with decay; `check` whether one more job would exceed a limit, `minutes` the same of limits
on what was used, `reasons` what Slurm shows for each; `guarantees` who borrows; `change` what differs between two
policies. Core and scheduling both ask here, so that what the one plans the other accepts. Pure.

Source: sacctmgr(1), https://slurm.schedmd.com/resource_limits.html.
"""
