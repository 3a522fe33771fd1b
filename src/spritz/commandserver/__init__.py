"""The command server: a process that has every command imported, and children that do what the launcher is called for.

The launcher (`launcher/` in the sources, in C) is what is installed under the commands' names where a C compiler was
found. It passes its whole surroundings over a Unix socket; a child takes them over and runs the same
`main(argv, context)` that runs without a server; after a short command it serves again. One server per user, started
behind the first call. It ends when idle, and when what it has imported is no longer what is installed. A batch script
has one of its own. See docs/decisions/0168.

Map
---
`direct`   a command without a server: what the launcher executes otherwise
`commands` the module of a command, by its name
`main`     a server's own start: its directory, its socket, its loop
`preload`  importing every command
`sources`  whether a file of ours changed since (installations from a checkout)
`parent`   spare children, how they stop and end; its own end
`child`    calls: wait for one, check it, take over its surroundings, run; see whether another may follow
`call_queue` how calls come to a child, and what the child tells the parent
`process_state` environment, limits, signals and streams of a process: taken over, and put back
`warm_up`  what a child does before its first call: writing to the memory that a call writes to
`request`  the launcher's message, decoded
`reply`    what it is told

Commands are imported by name (`spritz.cli.NAME`); of `cli` itself only a call's `context`, `entry`, `options` and
`terminal` are used, and `cli` knows nothing of this package.

What must hold: the parent never reads a request, so nothing of one caller is in memory when the next one's child is
forked; nothing of a command has happened before its child has emptied the call's box; and a child between two calls is
as it was before the first.
"""
