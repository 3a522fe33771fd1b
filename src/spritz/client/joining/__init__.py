"""A machine joins a cluster.

`joining`      takes a token to the controller and gets the machine's keys
`configless`   the configuration that the controller sends
`member`       slurmd and sackd on a machine of their own: keys, connection and configuration
"""
