"""`spritz up` and its kin: a cluster of one's own, without root, configuration or services.

A cluster is a directory (`paths.ClusterPaths`); nothing about it is kept elsewhere. Its slurm.conf is written once and
then belongs to the user: `spritz up`
without options starts what the file says. The daemons are the ordinary `slurmctld` and `slurmd`.
"""
