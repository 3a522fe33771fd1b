"""Node daemons: links, messages, and machines that joined.

`links`       connections to node daemons, heartbeats, silence
`messages`    effects of the core as messages
`fanout`      messages for many nodes, through a tree of daemons (TreeWidth)
`machines`    other machines that joined: tokens, certificates, revocations
"""
