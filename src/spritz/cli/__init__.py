"""The commands: one module per command, each with `main(argv, context) -> int`.

What a command may do: parse options, talk to the controller through `spritz.client`, format, print. It keeps no module
state and never calls `sys.exit` below `entry`, so that the command server can run the same `main`. How values and
records look is in `spritz.presentation`.

Import at the top of the module. A verb of scontrol, sacctmgr or sreport is a module that is imported when it is called.
Import a module inside a function only if few calls need it: JSON, several clusters, the step that runs while the
controller decides. At the top it would slow down every other call. Tests count the modules of each call
(tests/unit/cli/test_start_up*.py): a module costs a command without a server some 0.2 ms of 25.

Map
---
`call/`      what a call of any command needs: its surroundings, options, clusters and exit code
`jobs/`      from options to jobs and their steps: sbatch, srun, salloc, sattach, sbcast, scancel
`listings/`  from options to a question and its answer in columns: squeue, sinfo, sprio, sstat, sacct
`administration/`   verbs and their keys: scontrol, sacctmgr, sreport
`local/`     `spritz up`, `down`, `status` …, and what Slurm has no command for
`sacct`, `sacctmgr`, `salloc`, `sattach`, `sbatch`, `sbcast`, `scancel`, `scontrol`, `scrontab`, `sdiag`, `sgather`,
`sinfo`, `sprio`, `spritz`, `squeue`, `sreport`, `srun`, `sshare`, `sstat`, `strigger`   a command each

Of the packages `call` is the lowest; `administration` uses `listings` and `jobs`, and `local` uses all of them.
"""
