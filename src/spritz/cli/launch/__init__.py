"""Running a step from the command's side: what srun, salloc, sattach and sbcast share.

Map
---
`request`     options → StepSpec
`settings`    options and slurm.conf → behaviour of the client
`streams`     -i, -o, -e: streams of the client, and those that supervisors open
`allocation`  a job for srun and salloc: submitted, waited for, given back
`create`      CreateStep, with Slurm's words for each refusal and the wait for busy resources
`listener`    where supervisors connect, and one connected supervisor
`run`         the loop: output, input, ends, signals, until every supervisor has said DONE
`output`      labels and destinations of output
`input`       standard input, by credit
`endings`     how tasks ended: messages and the exit status
`interrupts`  signals to srun
`terminal`    --pty: raw terminal and its size

Everything is one thread around `stepd.reactor`. Source: srun(1); texts as Slurm 22.05 prints them.
"""
