"""Connections to Spritz's daemons: clients and servers of the protocol.

Owns connections, and requests and responses on them; knows no particular request. Requests are msgspec Structs (of
`model`), distinguished by class name; the caller names the type of the answer. Importing this package imports nothing;
commands import only `client.command.sync` and `client.locate`, which import no asyncio, no logging and no `socket`.

Commands (blocking)
-------------------
    from spritz.client.command.sync import connect_controller

    with connect_controller() as controller:                   # finds slurm.conf; Unix socket, else TCP
        reply = controller.call(SubmitJob(…), JobSubmitted)     # RemoteError if refused
        for line in controller.stream(Follow(…), Line): …

`command`   `sync` (`connect_controller`, `Connection`), submissions whose answer was lost
`locate`    `locate_controller() -> ControllerConfig`, `find_slurm_conf`, `state_home`, `controller_socket_name`
`errors`    `ClientError` (not reachable) with `ConnectionLost`, `CallTimeout`; `RemoteError` (refused).
            All are SpritzErrors: `message`, `code`, `hint`, `exit_code`; `RemoteError.errno` is Slurm's number.

Daemons (asyncio)
-----------------
    from spritz.client.channel.server import Server

    async with Server({SubmitJob: on_submit, …}, role="slurmctld", log=log) as server:
        await server.listen_unix(controller_socket_name("cluster", 6817))
        await server.listen_tcp("", 6817)

`channel`   servers, one connection (`Channel`), handlers, limits of each peer, clients that stay connected.
            A handler gets its `Call` and returns a Struct, a Rejection, None, an awaitable of these, an async iterator
            (a stream), or `DEFERRED` to answer later by `call.reply(…)`. `call.caller` is pid, uid and gid by the
            kernel; `call.on_abandon(callback)` reports that the caller has gone.
`relay`     users' connections and steps' streams between machines
`trust`     keys of a cluster that spans machines; who a caller is; hosts that are other machines
`joining`   a machine joins a cluster: keys, certificate, the configuration that its controller sends

Importing goes one way: joining > relay > command > channel > trust > locate > errors.

Invariants: every accepted request gets exactly one last response, or its connection ends; no input from a peer raises
in a daemon; every wait of a blocking caller has a deadline unless it asked for none. Before a client sends a request,
the kernel must confirm that the server runs as root, SlurmUser or the client's own user; servers on other machines are
therefore refused.

Test it with `pytest tests/unit/client`; `python -m benchmarks.wire` measures it.
"""
