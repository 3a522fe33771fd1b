"""PMIx for the tasks of a step (`--mpi=pmix`), served by the machine's own library, OpenPMIx.

A process beside the supervisor holds the library, as the step's user: a crash or hang in there, or bytes that a task
made up, reach neither the supervisor nor root. Nothing here is imported by steps without PMIx.

`beside`     the supervisor's side: starts the process, carries its messages, ends it, and cleans up
`process`    the process itself: library on one side, supervisor on the other
`binding`    libpmix by ctypes; `values`: what it has in memory; `job`: what it is told of the step
`server`     the library at work, and what it asks of its host
`exchange`   the answers: collectives and questions that need other nodes; no I/O
`published`  what tasks publish and look up
`messages`   what the processes of a step's nodes say to each other, by way of the step's client (`cli.launch.pmix`)

Source: the PMIx standard 4.1; srun(1) --mpi; docs/decisions/0091.
"""
