"""Text and JSON forms of the cluster's records: fields of listings, whole records, JSON. Used by commands and
slurmrestd.

Reads `model` and asks no daemon, except that the head of a JSON answer names the cluster (`spritz.client.locate`).

Map
---
Catalogues (`..._fields`: a field is one entry, and docs/checklists/listing-field.md says how to add one), whole records
(`..._record`), and the values of both, by what they show:
`job`             jobs and steps: squeue, `scontrol show job` and `show step`
`node`            nodes and partitions: sinfo, `scontrol show node` and `show partition`
`accounting`      what slurmdbd keeps: sacct, sstat, sacctmgr, sreport, sshare
`priority_fields` sprio
`reservation_text`, `licenses`, `request_kinds`, `explain_text`   reservations; licenses of the cluster: how many there
                  are and how many jobs hold; Slurm's names of requests, for sdiag; why a job waits
`live_rows`       jobs and nodes for dashboard and `spritz top`

Renderers, one for each form:
`columns`         `-o` and `-O`: letters or names with widths and literal text
`table`           `--format=name%width` as columns, and `-p`, `-P`
`record`          `Key=value` of `scontrol show`
`json/`           `--json`, `--yaml` and REST: one module per noun

`users`, `local_time`    users and groups by name and number; times in SLURM_TIME_FORMAT
"""
