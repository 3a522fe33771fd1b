"""What slurmdbd keeps, as sacct, sacctmgr, sreport and sshare show it; sstat's fields are sacct's.

`accounting_fields`    sacct (past jobs and steps)
`running_step_fields`  sstat
`association_fields`, `history_fields`   sacctmgr
`report_fields`        sreport
`share_fields`         sshare
`accounting_row`       a line of sacct: a job or a step, and values derived from its record
`accounting_style`, `accounting_text`   how they are shown
`step_usage`           usage of steps
`tres_numbers`         Slurm's numbers of TRES
"""
