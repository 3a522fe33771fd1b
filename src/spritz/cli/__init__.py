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
`context`    the surroundings of a call: environment, directory, streams, clock
`entry`      from a process to a context and back: errors, broken pipes, exit codes
`options`    the option tables (done or refused, from which the compatibility pages are made) and their parser
`terminal`   whether the caller's terminal may be read now
`queue/`     squeue: options → question, listings of jobs and steps, sorting
`info/`      sinfo: grouping of nodes, the listing
`cancel/`    scancel
`acct/`, `stat/`, `report/`, `efficiency/`   sacct, sstat, sreport, `spritz eff`
`priority/`, `manager/`   sprio, sacctmgr
`control/`   scontrol: one file per verb or noun
`launch/`    srun and salloc
`local/`     `spritz up`, `down`, `status` …
`submit/`    the common part of sbatch, salloc and srun: options → JobSpec
`sacct`, `sacctmgr`, `salloc`, `sattach`, `sbatch`, `sbcast`, `scancel`, `scontrol`, `scrontab`, `sdiag`, `sgather`,
`sinfo`, `sprio`, `spritz`, `squeue`, `sreport`, `srun`, `sshare`, `sstat`, `strigger`   a command each
`clusters`   -M, --clusters; `repeat`: -i SECONDS; `prompt`: commands from standard input
`filters`    CliFilterPlugins: a site's defaults for and checks of the options of sbatch, salloc and srun
`already_reported`   an error whose message has been printed
"""
