"""`spritz up` and related commands: a user's own cluster, without root, configuration or services.

A cluster is a directory (`paths.ClusterPaths`), which holds all of its files. `spritz up` writes slurm.conf once; from
then on the file belongs to the user, and `spritz up` without options starts the nodes that it names. The daemons are
the ordinary `slurmctld` and `slurmd`.

Beside these are commands for any cluster that Slurm has no command for. One module per command, and what these share.

Map
---
`paths`      a cluster's files; `layout`: slurm.conf and gres.conf as `spritz up` writes them
`up`, `down`, `status`, `env`   start a cluster, stop it, show it, select it
`daemons`    start and stop daemons, and tell whether they run; `rest`: slurmrestd; `units`: systemd's
`network`    `up --listen`: a cluster of several machines; `join`, `token`: machines that join it
`account`    the user's account in slurmdbd
`dashboard`  start it, and print a link
`doctor/`    problems of this machine and its cluster, with remedies
`questions/` about jobs, GPUs, shares and usage: why, eff, history, gpus, shares, usage
`config`     `spritz config check`: all mistakes in a slurm.conf
`adopt`      for pam_exec: admits ssh users with a job on this node
`completion` tab completion for bash and zsh
"""
