"""Whole records in the form of Slurm's data_parser plugin v0.0.43 (release 25.05), with keys of other versions added.

Numbers that may be unset or unlimited are `{"set", "infinite", "number"}`, states and flags are lists, times are
seconds since the epoch.

Map
---
`envelope`    `meta`, `errors`, `warnings`; chooses the version and prints
`values`      numbers, times, exit codes
`jobs` `steps` `nodes` `partitions` `reservations` `licenses` `sinfo` `ping` `diagnostics` `explain`   a kind of record
              each
`accounting_jobs`   jobs of slurmdbd   `associations`   users, accounts, QOS and related records
`documents`, `shape`   Slurm's documents (`openapi/`), and records in the form of another version
`pretty`, `yaml`    writing
`shares`     shares of associations
"""
