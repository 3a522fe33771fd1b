"""The durable data: the journal of events, scripts and environments by content, images of the whole state.

`contract`    what every store of the journal does, and its errors
`sqlite`      the store of one controller; `log`, `mark`: whether its end is missing
`postgresql`  the store of several controllers (`lead.standby` until one leads, `lead.lease` while it does)
`reader`      reads the journal while the daemon serves, in a thread
`events`, `blobs`   events as bytes; scripts and environments, and which of them nobody names any more
`kept`        the journal and its readers, as other parts are given them
`images`      periodic images of the whole state, written by a forked child
`recovery`, `state_directory`   from disk to state; `-c`, `-i`, and the check of the cluster's name
`copy`        a standby's copy of the leader's state
"""
