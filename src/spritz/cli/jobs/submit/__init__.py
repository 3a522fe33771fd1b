"""Code that sbatch, salloc and srun share: their option rows, and the steps from options to a `JobSpec`.

Map
---
`rows`      one table for the three commands
`values`    options as text, and their precedence: command line over environment over #SBATCH lines
`setters`   parse each option into fields of the request; `refusals` are the errors
`spec`      values → JobSpec; derives fields from several options together
`variables` SBATCH_, SALLOC_, SLURM_ and SRUN_ variables that stand for options
`request_context` working directory, umask, limits and environment of the caller
`script`    reads and checks a batch script; `foreign` its #PBS and #BSUB lines
`components` of a heterogeneous job
`binding`, `gathering`, `hardware`   rare options, imported only when they are used
`listing`, `announce`   output of -v, --test-only and --gres=help; --wait
`container`  --container, and the options of pyxis; `gpu_counts`, `per_task`: counts of GPUs and other devices
`crontab`    a crontab's jobs; `first_cluster`: which of `-M a,b` starts the job soonest
"""
