"""The only way into the state: commands one by one, released when their events are durable.

`loop`        `SingleWriter`: commands join a group; replies and effects leave after its commit
`commit`      the thread that writes and syncs the journal
`listeners`   parts of the controller that follow events
`durable`     a query's answer waits for what it shows
`timers`      `Tick` at the core's next deadline; other calls at a time of day
"""
