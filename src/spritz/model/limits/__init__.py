"""Limits and accounts: associations, QOS, and the ledger of what each of them uses.

- `records`: what slurmdbd keeps and controllers cache; `edits`: which records an addition or deletion takes along;
  `change`: differences between two policies.
- `rules`: the records, indexed for questions; `ledger`: what is in use; `usage`: past use, with decay.
- `check`: whether another job would exceed a limit; `minutes`: the same for limits on past use; `reasons`: what Slurm
  shows for each limit; `guarantees`: which associations borrow.

Core and scheduling both ask here, so that core accepts what scheduling plans. Pure.

Source: sacctmgr(1), https://slurm.schedmd.com/resource_limits.html.
"""
