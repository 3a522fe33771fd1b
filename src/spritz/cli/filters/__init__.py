"""CliFilterPlugins: site and user defaults and checks for the options of sbatch, salloc and srun.

They run in the command's own process. A command whose slurm.conf names none loads nothing of this
(`cli.submit.values.filters_of`).

Map
---
`chain`      the plugins in the order of slurm.conf, and when they are called
`defaults`   user_defaults: ~/.slurm/defaults

Source: slurm.conf(5) CliFilterPlugins; https://slurm.schedmd.com/cli_filter_plugins.html.
"""
