"""Jobs and steps, as squeue and scontrol show them.

`job_fields`    squeue: letter, names, heading, values, text
`step_fields`   squeue --steps
`job_record`, `step_record`   `scontrol show job`, `scontrol show step`
`job_states`    names of states, and --states
`job_text`, `job_times`, `job_paths`, `job_tres`   values that catalogues, records and JSON share
"""
