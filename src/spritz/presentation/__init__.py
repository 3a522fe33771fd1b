"""How records of the cluster look: fields of listings, whole records, JSON. Used by commands and by slurmrestd.

Reads `model` and asks no daemon, except that the head of a JSON answer names the cluster (`spritz.client.locate`).

Map
---
`columns`         the grammar of `-o` and `-O`, and how a value becomes a cell
`job_fields`      squeue's fields of a job: letter, names, heading, values, text
`step_fields`     squeue's fields of a step        `priority_fields`   sprio's
`node_fields`     sinfo's fields                          `node_states`   names of node states, and --states
`node_groups`     sinfo's lines: nodes of a partition whose shown values are equal
`job_states`      names of job states, and --states
`job_text`, `job_paths`, `job_tres`, `node_text`    values that several commands show alike
`record`          records as scontrol writes them: `job_record`, `partition_text`, `reservation_text`
`accounting_fields`   sacct's fields: heading, width, text; values of `accounting_row`, `accounting_text`, `step_usage`
`association_fields`  sacctmgr's fields
`request_kinds`   Slurm's names of requests, for sdiag
`people`          users and groups by name and number
`json/`           `--json`, `--yaml` and REST: one module per noun
"""
