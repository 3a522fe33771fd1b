"""A run as a job of Slurm: from a command and its options to the queue, and its state there.

`settings`        options of `spritz run`: command line, then spritz.yaml, then defaults
`run_environment` the environment of a run: variables, packages, driver
`containers`      runs in a container
`resuming`        the contract with which a run stops and restarts from its checkpoint: its options, and the job's side
`script`          the batch script of a run, by template
`submission`      a command becomes a run: snapshot, record, script, and queue
`arrays`          several runs as a job array
`states`          the state of a run, from its events and from Slurm
"""
