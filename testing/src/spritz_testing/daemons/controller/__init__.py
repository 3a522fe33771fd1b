"""slurmctld as simulated processes.

`controllers`  one controller on the state directory of its host
`standby`      several controllers over one PostgreSQL
`copies`       whether their copies of the state are equal
`checks_inside`  what a controller's own objects must show
`releases`     two releases of Spritz, which store records in two formats
"""
