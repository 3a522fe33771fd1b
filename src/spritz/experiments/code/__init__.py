"""What code a run sees: the working tree and everything else that its program imports, as it was at submission.

`snapshot`     the working tree as a content-addressed tree in a git repository of our own
`cleaning`     removes snapshots that nothing refers to
`trimming`     removes the unchanged files of a checkout when its run has ended
`sources`      snapshots of other working trees that the run imports from
`branches`     a run's code as a branch of the user's repository
`outward`      links of the project that lead out of it
`linked`       paths that git ignores and that a run sees
`outputs`      paths that persist between runs of a project
`datasets`     data that a run reads, with its state: `data_states`
`in_place`     what is recorded of code that runs without a snapshot
`overlooked`   data that a run would miss, by the strings of its program: `program_files`, `literals`
`interpreters` which Python the command uses, what is installed there, where its imports lead
`runners`      programs such as `uv run`, and the project's environment that they use
`restoring`    the environment of an earlier run, made again
`programs`     whether the command's program and script are where the run looks for them
"""
