"""The client's side of a running step: code that srun, salloc, sattach and sbcast share.

Map
---
`request`     options → StepSpec
`settings`    options and keys of slurm.conf that change the client's behaviour
`streams/`    input, output and the terminal; -i, -o, -e
`allocation`  a job for srun and salloc: submit it, wait until it runs, complete it at the end
`create`      CreateStep: Slurm's message for each refusal, and the wait for busy resources
`listener`    the socket to which supervisors connect, and connected supervisors
`run`         the loop: output, input, ends of tasks, signals, until each supervisor has sent DONE
`endings`     ends of tasks: messages and the exit status
`interrupts`  signals to srun
`session`, `salloc_session`   a run of srun, of salloc, from its options to its exit status
`controller`  the connection to the controller, whose waits end at signals
`het_step`   a step over several components; `attaching`: sattach; `bcast`: a file to all nodes of a job
`pmi`, `pmix`   hubs of a step's PMI servers; `programs`: --multi-prog, and the interfaces of --mpi
`foreground`  salloc's command and the terminal; `site`: SrunProlog, SrunEpilog; `variables`: salloc's SLURM_
`help_text`  answers that need no controller; `verbose`: the messages of -v

Everything runs in a single thread around `stepd.reactor`. Source: srun(1); texts of Slurm 22.05.
"""
