"""Programs that drive Slurm, unmodified, on a cluster of `spritz up`: `make clients`."""
