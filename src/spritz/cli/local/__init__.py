"""`spritz up` and related commands: a user's own cluster, without root, configuration or services.

A cluster is a directory (`paths.ClusterPaths`), which holds all of its files. `spritz up` writes slurm.conf once; from
then on the file belongs to the user, and `spritz up` without options starts the nodes that it names. The daemons are
the ordinary `slurmctld` and `slurmd`. One module per command, and what these share.
"""
