"""Programs of the site that run here as SlurmUser.

`site`        PrologSlurmctld, EpilogSlurmctld and others; `job_facts`: their variables
`power`       ResumeProgram, SuspendProgram; `reservations`: ResvProlog, ResvEpilog
`triggers`    programs of strigger
`mail`, `mail_text`, `mail_limits`   `--mail-type`: when MailProg runs, and its arguments
"""
