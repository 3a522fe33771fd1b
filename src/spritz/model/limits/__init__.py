"""Limits and accounts: associations, QOS, and the ledger of what each of them uses.

- `records`: what slurmdbd keeps and controllers cache; `edits`: which records an addition or deletion also changes;
  `change`: differences between two policies.
- `catalogue` and `bounds`: the records by name, with their texts parsed; `rules`: which of them apply to a job
  (`job_limits`).
- `flags` of a QOS, `membership` (does a job still have its association and QOS), `times` (time limits that limits
  imply), `federations`: further rules on the same records.
- `ledger`: what is in use; `usage`: past use, with decay.
- `check`: whether another job would exceed a limit; `minutes`: the same for limits on past use; `reasons`: what Slurm
  shows for each limit; `guarantees`: which jobs borrow; `standing`: limits with their use, for `scontrol`.

Core and scheduling use the same functions, so the core accepts what scheduling plans. Pure.

Source: sacctmgr(1), https://slurm.schedmd.com/resource_limits.html.
"""
