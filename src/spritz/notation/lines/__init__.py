"""Lines of files that users write.

`shell`      `#SBATCH` lines
`cron`       lines of a crontab
`multiprog`  files of `srun --multi-prog`
"""
