"""`sackd`: the daemon of a login host. It leads commands of the users there to the cluster, and vouches for them.

`main`     from the command line to a serving daemon
`options`  its command line
`daemon`   what it serves: `client.relay`, its certificate, and the configuration, which it keeps up to date

On nodes slurmd does the same. Source: sackd(8).
"""
