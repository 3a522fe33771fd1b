"""Text and JSON forms of the cluster's records: fields of listings, whole records, JSON. Used by commands and
slurmrestd.

Reads `model` and asks no daemon, except that the head of a JSON answer names the cluster (`spritz.client.locate`).

Map
---
Catalogues: a field is one entry, and docs/checklists/listing-field.md says how to add one.
`job_fields`      squeue: letter, names, heading, values, text        `step_fields`      squeue --steps
`node_fields`     sinfo (nodes and their partition)                   `priority_fields`  sprio
`accounting_fields`    sacct (past jobs and steps)                    `running_step_fields`   sstat
`association_fields`, `history_fields`   sacctmgr       `share_fields`   sshare         `report_fields`    sreport
`live_rows`       jobs and nodes for dashboard and `spritz top`

Renderers, one for each form:
`columns`         `-o` and `-O`: letters or names with widths and literal text
`table`           `--format=name%width` as columns, and `-p`, `-P`
`record`          `Key=value` of `scontrol show`: `job_record`, `step_record`, `node_record`, `partition_text`,
                  `reservation_text`
`json/`           `--json`, `--yaml` and REST: one module per noun

Values shared by several catalogues:
`job_text`, `job_times`, `job_paths`, `job_tres`, `node_text`, `accounting_text`, `step_usage`, `explain_text`
`job_states`, `node_states`      names of states, and --states
`node_groups`     sinfo's lines: nodes of a partition whose shown values are equal
`accounting_row`  a line of sacct: a job or a step, and values derived from its record; `accounting_style`: how they are
                  shown
`tres_numbers`    Slurm's numbers of TRES
`request_kinds`   Slurm's names of requests, for sdiag
`licenses`        licenses of the cluster: how many there are and how many jobs hold
`users`, `local_time`    users and groups by name and number; times in SLURM_TIME_FORMAT
"""
