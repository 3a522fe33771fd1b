"""PMIx for the tasks of a step (`--mpi=pmix`), served by the machine's own library, OpenPMIx.

A separate process runs the library, as the step's user: a crash, a hang or malicious input from a task reaches neither
the supervisor nor root. Nothing here is imported by steps without PMIx.

`server_process`   the supervisor's side: starts and ends the process, forwards its messages, cleans up
`process`    the process itself: library on one side, supervisor on the other
`binding`    libpmix by ctypes; `values`: its structures in memory; `job`: its data about the step
`server`     the running library and its requests to the host
`exchange`   collectives and queries that need other nodes; no I/O
`published`  entries that tasks publish and look up
`messages`   messages between the processes of a step's nodes, through the step's client (`cli.jobs.launch.pmix`)

Source: the PMIx standard 4.1; srun(1) --mpi; docs/decisions/0091.
"""
