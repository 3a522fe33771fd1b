"""The command server: a process with all commands imported, whose forked children run calls of the launcher.

The launcher (`launcher/` in the sources, in C) is installed under the commands' names if a C compiler was found. It
sends its process state over a Unix socket; a child takes the state over and runs the same `main(argv, context)` that
runs without a server; after a short command it serves again. Each user has one server, started in the background by the
first call. It ends when idle, and when the installed files change. A batch script has a server of its own. See
docs/decisions/0168.

Map
---
`direct`   a command without a server: the launcher executes it if no server can
`commands` the module of a command, by its name
`main`     a server's own start: its directory, its socket, its loop
`preload`  importing every command
`sources`  whether an imported source file changed (installations from a checkout)
`parent`   spare children, their stops and ends; the server's own end
`child`    a call: wait for it, check it, take over the caller's process state, run; decide whether another may follow
`call_queue` the listener shared by children, and their messages to the parent
`process_state` environment, limits, signals and streams of a process: taken over and restored
`warm_up`  a dry run in a new child, which touches the memory that calls write to
`request`  the launcher's message, decoded
`reply`    the messages to the launcher

Commands are imported by name (`spritz.cli.NAME`); of `cli` itself only a call's `context`, `entry`, `options` and
`terminal` are used, and `cli` knows nothing of this package.

Invariants: the parent never reads a request, so a new child's memory holds no data of other callers; no part of a
command runs before its child has emptied the call's box; between two calls a child is in the state before the first.
"""
