"""`sackd`: the daemon of a login host. It relays commands of its users to the cluster, and vouches for the users.

`main`     from the command line to a serving daemon
`options`  its command line
`daemon`   the service: `client.relay.relay`, its certificate, and an up-to-date configuration

On nodes slurmd does the same. Source: sackd(8).
"""
