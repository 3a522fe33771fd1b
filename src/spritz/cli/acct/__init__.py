"""What `sacct` does after its options are read.

Map
---
`ask`      options → the question (`SelectJobs`), its window of time
`answer`   the database's records, and the controller's (`live`) where that knows more
`connect`  to slurmdbd, in sacct's words when it is not there
`fields`   every field: heading, width, text
`usage`    the fields of what steps have used
`row`      one line's job or step, with what follows from it (elapsed times …)
`listing`  columns, widths, `-p`, `-P`
`json`     `--json`
`completion`   the job completion log in the place of slurmdbd: `--completion`, `--file`
"""
