"""Listings: `-o` letters, `-O` names, widths, alignment, sorting.

Map
---
`columns`         the grammar of both forms, and how a value becomes a cell
`job_fields`      squeue's letters for a job: what each needs of the record, and how it is shown
`job_names`       squeue's names for a job          `step_fields`   letters and names for a step
`node_fields`     sinfo's letters and names         `node_states`   names of node states, and --states
`job_states`      names of job states, and --states
`job_text`, `job_paths`, `job_tres`, `node_text`    values that several commands show alike
`record`          records as scontrol writes them: `job_record`, `partition_text` (nodes and steps: `control/`)
"""
