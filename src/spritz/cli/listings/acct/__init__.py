"""`sacct` after its options are read.

Map
---
`conditions`  options → the question (`SelectJobs`), its window of time
`answer`   the database's records, and the controller's (`live`) where that knows more
`connect`  to slurmdbd, in sacct's words when it is not there
`listing`  columns, widths, `-p`, `-P`
`completion`   the job completion log in the place of slurmdbd: `--completion`, `--file`
`components`  --whole-hetjob: which components of a heterogeneous job `-j` means
"""
