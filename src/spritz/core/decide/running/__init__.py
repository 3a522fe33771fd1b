"""Running jobs and their steps, but not how they end (`decide.ending`).

`steps`     steps are created, signalled, attached to
`reports`   what node daemons report about steps and jobs
`suspend`   SuspendJob and ResumeJob
`minutes`   jobs that have used up their minutes
"""
