"""What sbatch, salloc and srun share: their option rows, and the way from options to a `JobSpec`.

Map
---
`rows`      one table for the three commands
`values`    command line over environment over #SBATCH lines: who said what
`setters`   what each option means; `refusals` how a wrong value is refused
`spec`      values → JobSpec: what follows from several options together
`variables` SBATCH_, SALLOC_, SLURM_ and SRUN_ variables that stand for options
`request_context` directory, umask, limits and environment that go along
`script`    reading and judging a batch script; `foreign` its #PBS and #BSUB lines
`components` of a heterogeneous job
`binding`, `gathering`   options that few give, loaded when they are
`listing`, `announce`   what -v, --test-only and --gres=help print; --wait
"""
