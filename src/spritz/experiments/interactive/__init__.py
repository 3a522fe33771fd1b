"""Users inside a running run.

`attach`     commands as steps of the run's job
`sessions`   dev sessions: their addresses, and entries for ssh
`channel`    carries ports through a step: a program that the job has as a copy
"""
