"""Jobs and their steps, from the options of sbatch, srun, salloc, sattach, sbcast and scancel on.

`submit/`    the common part of sbatch, salloc and srun: options → JobSpec
`filters/`   CliFilterPlugins: a site's defaults for and checks of their options
`launch/`    the client's side of a running step; the allocations of srun and salloc
`cancel/`    scancel: options → filter, and the cancellation
"""
