"""One task, from the fork to the user's program, and the programs after it.

`start`       what happens in the forked child until it is the user's program; `become`: the user, irrevocably
`spawn`       the same by compiled code (`stepd/_spawn.c`), where a task needs nothing that only Python does
`namespaces`  host names of virtual nodes; private directories in place of /tmp
`script`      the batch script as a file that its user can read and run, and not change
`epilogs`     programs that run after a task
"""
